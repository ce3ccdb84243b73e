"""Integrations: Habitus turns inside the agents of other frameworks."""
