"""Commands that learn, show what was learned, and decide on it: learn, lessons, evidence, review, trust, undo."""
