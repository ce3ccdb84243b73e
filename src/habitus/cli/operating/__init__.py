"""Commands that keep a home running: settings, people, jobs, backups, the page."""
