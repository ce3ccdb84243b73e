"""Layers: where skills lie, one above the other, and the one listing they make."""
