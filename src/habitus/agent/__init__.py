"""The agent: a session in which skills, tools and memory meet a model. `turn.py` is the page to begin with."""
