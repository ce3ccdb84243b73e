"""Skills: what they are, how they are written, where they live and how they change."""
