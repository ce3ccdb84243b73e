"""Layers: the sources of skills, in order of precedence, and the listing they make together."""
