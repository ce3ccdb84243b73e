"""Tools: where the code stage of skills and the sandbox meet."""
