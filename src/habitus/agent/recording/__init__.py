"""What stays of a turn: its journal entry, its uses, what was credited, and its outcome."""
