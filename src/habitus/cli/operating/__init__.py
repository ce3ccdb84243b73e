"""Commands that operate a home: settings, users, jobs, backups, database, secrets, the web server."""
