"""Commands that learn, and that show what was learned and what it proves."""
