"""The chat: parses typed lines, shows turns, and runs slash commands."""
