"""Texts as the index takes them: cut into terms, and turned into vectors."""
