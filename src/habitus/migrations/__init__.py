"""How the database came to its present tables, one numbered step at a time."""
