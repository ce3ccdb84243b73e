"""The journal records every session turn by turn: for search, evidence, sticky skills and the user's own review."""
