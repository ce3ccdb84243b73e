"""Housekeeping: once a day, in whatever process lives, deletes what is past its retention and gives the space back.

Every step is a short transaction of its own, so no turn waits for it.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from habitus import sql
from habitus.app.conversations.running_code import ENVIRONMENTS_DIR
from habitus.app.home import Home
from habitus.app.home_directory import SESSION_PADS_DIR, get_parent_dir_of_solver_folders
from habitus.files import write_atomically
from habitus.llm.agents.running import remove_abandoned_workspaces
from habitus.locks import try_lock
from habitus.sandbox import venvs
from habitus.sandbox.inside import folders
from habitus.settings import Settings
from habitus.sql.outage import STORAGE_ERRORS

_FILE = "housekeeping.json"
_INTERVAL = timedelta(days=1)
# How often a resident process checks whether a day has passed.
_CHECK_INTERVAL_S = 600.0
_SHUTDOWN_WAIT_S = 5.0
# About a megabyte, which takes some milliseconds.
_PAGES_PER_STEP = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class HousekeepingReport:
    """What the last housekeeping deleted, and how many bytes the databases shrank."""

    ran_on: datetime
    turns: int
    freed_bytes: int


class Housekeeper:
    """Runs the housekeeping of a resident process in the background, whenever it is due."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._next_check = 0.0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start_if_due(self) -> None:
        """Start the housekeeping in a thread of its own if it is due; cheap enough for every turn."""
        with self._lock:
            if time.monotonic() < self._next_check:
                return
            self._next_check = time.monotonic() + _CHECK_INTERVAL_S
            self._thread = threading.Thread(
                target=run_due_housekeeping, args=(self._home,), name="habitus-housekeeping", daemon=True
            )
            self._thread.start()

    def wait_until_done(self) -> None:
        """Wait for a housekeeping that is under way, at most five seconds: what it does survives being cut off."""
        with self._lock:
            if self._thread is not None:
                self._thread.join(_SHUTDOWN_WAIT_S)


def run_due_housekeeping(home: Home) -> HousekeepingReport | None:
    """Run the housekeeping if the last one was a day ago; None if it is not due, or another process runs it.

    What killed solvers left is removed in any case: the user's next sign-in may be in it.
    """
    remove_abandoned_solver_folders(home.settings)
    with suppress(*STORAGE_ERRORS), try_lock(home.writable_dir / f"{_FILE}.lock") as held:
        last = load_housekeeping_report(home.writable_dir)
        if held is None or (last is not None and abs(home.clock() - last.ran_on) < _INTERVAL):
            return None
        engines = [one for one in {home.shared, home.local} if one.dialect.name == "sqlite"]
        before = sum(map(measure_database_size, engines))
        turns = home.journal.prune_turns()
        _remove_unused_environments_and_scratchpads(home)
        for engine in engines:
            _release_free_pages(engine)
        freed = max(0, before - sum(map(measure_database_size, engines)))
        report = HousekeepingReport(ran_on=home.clock(), turns=turns, freed_bytes=freed)
        content = json.dumps({**asdict(report), "ran_on": report.ran_on.isoformat()})
        write_atomically(home.writable_dir / _FILE, content.encode())
        return report
    return None


def load_housekeeping_report(folder: Path) -> HousekeepingReport | None:
    """Return the report of the last housekeeping; None if there was none."""
    try:
        fields = json.loads((folder / _FILE).read_bytes())
        return HousekeepingReport(
            ran_on=datetime.fromisoformat(fields["ran_on"]), turns=fields["turns"], freed_bytes=fields["freed_bytes"]
        )
    except (OSError, ValueError, TypeError, KeyError):
        # A damaged report is replaced by the next run.
        return None


def measure_database_size(engine: sa.Engine) -> int:
    """Return the size of a database in bytes, free pages included."""
    with sql.read_transaction(engine) as connection:
        if engine.dialect.name == "postgresql":
            return int(connection.execute(sa.text("SELECT pg_database_size(current_database())")).scalar_one())
        pages, size = (
            int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()) for name in ("page_count", "page_size")
        )
        return pages * size


def remove_abandoned_solver_folders(settings: Settings) -> None:
    """Remove what killed runs of agents' programs left, with copies of sign-ins in it."""
    for folder in (get_parent_dir_of_solver_folders(settings), Path(tempfile.gettempdir())):
        remove_abandoned_workspaces(folder, folders.remove_folder)


def _remove_unused_environments_and_scratchpads(home: Home) -> None:
    """Remove environments and scratchpads that no kept conversation has used within the retention period."""
    kept = home.journal.list_session_ids()
    limit = (home.clock() - home.journal.retention).timestamp()
    venvs.remove_unused_environments(home.writable_dir / ENVIRONMENTS_DIR, unused_since=limit)
    for folder in (home.writable_dir / SESSION_PADS_DIR).glob("*"):
        if folder.name not in kept and folder.stat().st_mtime < limit:
            with suppress(OSError):
                folders.remove_folder(str(folder))


def _release_free_pages(engine: sa.Engine) -> None:
    """Return free pages to the file system, a few at a time."""
    left = -1
    while True:
        with sql.write_transaction(engine) as connection:
            free = int(connection.exec_driver_sql("PRAGMA freelist_count").scalar_one())
            # A database from before incremental vacuum keeps its free pages for later rows.
            if not free or free == left:
                return
            raw: Any = connection.connection.driver_connection
            # It frees a page per row that is fetched, and SQLAlchemy fetches none.
            raw.execute(f"PRAGMA incremental_vacuum({_PAGES_PER_STEP})").fetchall()
            left = free
