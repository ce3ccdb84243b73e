"""Conversations put together: sessions of our own agent, turns of other loops, their code and their secrets."""
