"""Jobs: long work in parts that goes on where a killed process left it."""
