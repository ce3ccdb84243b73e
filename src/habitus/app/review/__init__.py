"""What waits for a person: one list of it, what approving it would change, and word that it waits."""
