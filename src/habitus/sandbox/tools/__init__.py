"""Tools that an agent writes: tested before they exist, run with what they were granted, tested again when asked."""
