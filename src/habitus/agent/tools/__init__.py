"""The tools of the agent, one file each: a function of what it needs, and the arguments a model gives it."""
