"""Use cases over skills: look, write, take in, trust, undo, and choose what a request gets."""
