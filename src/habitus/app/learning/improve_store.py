"""The store of improvement runs, apart from what runs them: a report reads it without importing a solver."""

from __future__ import annotations

from habitus.app.home import Home
from habitus.improve.store import ImproveStore


def open_improve_store(home: Home) -> ImproveStore:
    """Open the store of improvement runs."""
    return ImproveStore(home.shared, home.clock, home.redact)
