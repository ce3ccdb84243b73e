"""A database that hosts share: reached, copied, stood in for while it is away, and what others decide carried out."""
