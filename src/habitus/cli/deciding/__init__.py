"""Commands by which a person decides: review, trust, undo, pause, forget."""
