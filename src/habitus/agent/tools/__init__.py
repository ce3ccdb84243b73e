"""The tools of the agent by subject: each is a function of what it needs, and the arguments a model gives it."""
