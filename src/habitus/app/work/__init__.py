"""Jobs over the use cases: their kinds, their schedules, and the worker."""
