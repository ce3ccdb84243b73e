"""Commands for agents that people already use: check, connect, sync, MCP, hooks."""
