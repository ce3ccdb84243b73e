"""Learning and evidence put together: what teaches memory, what earns the next stage, and what goes."""
