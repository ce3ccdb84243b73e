"""Skill stores of a layer: files in a directory, in memory or in SQL, behind one interface, with history in SQL."""
