"""Learning from what went wrong, here and in other agents' transcripts. Import the part you need."""
