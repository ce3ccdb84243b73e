"""Tools: the code stages of skills, run in the sandbox."""
