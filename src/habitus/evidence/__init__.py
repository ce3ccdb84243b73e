"""Evidence: which items were offered or withheld, how the requests went, and what that shows."""
