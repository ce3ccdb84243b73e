"""The skill formats of other systems, one module each, for import and export."""
