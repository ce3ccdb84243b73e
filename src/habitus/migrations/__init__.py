"""The tables of the database: a baseline, and one numbered step for every change since.

The release before goes on working on a database that was migrated: so a step only adds. A new table, a column that may
be empty or has a `server_default`, an index, which may also go. One that older code would trip over, or misread, states
the oldest schema whose code may use it, which is its own: `INSERT INTO schema_compatibility VALUES ('0042', '0042')`.
"""
