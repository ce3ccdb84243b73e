"""Agents that people already use: connected, heard through their hooks, and looked at as they are."""
