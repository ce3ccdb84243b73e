"""Other agents: where each keeps its config, skills and instructions, and edits of those files that leave the rest
alone.
"""
