"""Other agents: where each keeps its files, and edits of those files that leave the rest alone."""
