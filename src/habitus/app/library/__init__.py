"""Use cases over the skill library: browse, save, import, trust, undo, publish, sync, and explain selections."""
