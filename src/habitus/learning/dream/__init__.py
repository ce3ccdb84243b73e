"""Self-play: challenges are solved, lessons drawn from what went wrong, and believed only when they were seen to help."""
