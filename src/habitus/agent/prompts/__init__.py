"""The prompt: its texts and how its sections are composed."""
