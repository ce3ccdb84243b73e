"""Other agents: where each keeps its config, skills and instructions, and edits to those files that leave the rest."""
