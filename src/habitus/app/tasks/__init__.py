"""Tasks of skills: where they are stored, mined from, laid out and validated."""
