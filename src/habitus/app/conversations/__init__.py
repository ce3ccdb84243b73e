"""Assemble conversations: sessions of our own agent, turns of other loops, the code they run and their secrets."""
