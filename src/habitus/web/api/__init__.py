"""REST: routes built from use case declarations, and those written by hand for files and event streams."""
