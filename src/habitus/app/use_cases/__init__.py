"""Use cases as every surface calls them: one module a group, each use case declared once."""
