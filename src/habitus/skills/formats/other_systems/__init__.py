"""Layouts of other systems, one module each: read into skills, and skills written as they keep them."""
