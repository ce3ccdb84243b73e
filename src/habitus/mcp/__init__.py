"""Habitus for agents that speak MCP: its tools, the code of skills, skills as resources, and prompts."""
