"""Learning from failures, in our own sessions and in other agents' transcripts. Import the part you need."""
