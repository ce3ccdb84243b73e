"""The chat: what a person types, what a turn shows, and the commands in between."""
