"""How the database came to its present tables, one numbered step at a time.

The release before goes on working on a database that was migrated: so a step only adds. A new table, a column that may
be empty or has a `server_default`, an index. One that older code would trip over, or misread, states the oldest
schema whose code may use it, which is its own: `INSERT INTO schema_compatibility VALUES ('0042', '0042')`.
"""
