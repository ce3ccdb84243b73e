"""Tasks: what is asked, what is laid out for it, and what says whether it went well."""
