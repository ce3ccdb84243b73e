"""The layouts in which skills are written: one module each, both directions."""
