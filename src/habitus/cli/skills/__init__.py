"""Commands about skills: list, write, find, import, improve them, and use their tools, recipes and tasks."""
