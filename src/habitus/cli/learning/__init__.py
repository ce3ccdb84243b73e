"""Commands that learn, show what was learned and what it proves, and decide on it: review, trust, undo, forget."""
