"""The formats of skills, one module each, for reading and writing."""
