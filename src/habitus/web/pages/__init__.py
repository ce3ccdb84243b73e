"""Pages, a module each, rendered on the server; htmx swaps what changes."""
