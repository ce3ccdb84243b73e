"""Use cases as every surface calls them: one module per group, each use case declared once."""
