"""Operating a home: health checks, settings and users, backups, jobs, and erasing a user's data."""
