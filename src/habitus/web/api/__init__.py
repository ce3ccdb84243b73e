"""REST, a module each for skills, what waits, lessons, conversations and requests."""
