"""Evidence: what was offered or withheld, how it went, and what that proves."""
