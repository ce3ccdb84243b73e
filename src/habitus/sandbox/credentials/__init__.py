"""Credentials: values that only a skill's own command line gets, and only what a person granted it."""
