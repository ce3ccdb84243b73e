"""Support for other agents on this machine: connect them, serve their hooks, and examine their skills."""
