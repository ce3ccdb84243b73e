"""Commands around agents: talk to the built-in one (chat, sessions, tour), serve others (check, connect, mcp)."""
