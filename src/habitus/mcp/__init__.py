"""Habitus as an MCP server: its tools, the code of skills, skills as resources, and prompts."""
