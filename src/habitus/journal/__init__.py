"""The journal: what happened in every session, turn by turn, for stickiness, search, evidence and the person."""
