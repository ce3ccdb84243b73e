"""Background jobs: long work in parts that resumes where a killed process stopped."""
