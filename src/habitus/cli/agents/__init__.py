"""Commands for agents: talk with ours (chat, sessions, tour), and serve those people use (check, connect, mcp)."""
