"""Self-play: challenges are solved, and a lesson drawn from one is believed when it was seen to help."""
