"""Operation: what works here, settings and people, backups, and forgetting somebody."""
