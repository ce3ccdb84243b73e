"""Commands to talk with an agent: chat, past sessions, scratchpads, the tour."""
