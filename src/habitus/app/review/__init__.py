"""Everything that waits for a person: one list, the effect of approving, and word that something waits."""
