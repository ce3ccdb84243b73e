"""Where engrams are kept: in SQL, or in memory; one contract suite for both."""
