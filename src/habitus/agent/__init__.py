"""The agent: a session in which skills, tools and memory meet a model. Start reading with `turn.py`."""
