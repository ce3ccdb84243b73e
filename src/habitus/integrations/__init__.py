"""Integrations: the turn as an object in the hands of other frameworks."""
