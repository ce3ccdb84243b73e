"""Replace a home as a whole: staged inside it and then swapped, so a kill at any step leaves the old or the new one.

Every process that uses a home holds its lock shared; the one that replaces it holds it exclusively. A swap that a
killed process left unfinished is completed by the next process.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from habitus import resident_process
from habitus.errors import Refused
from habitus.files import write_atomically
from habitus.locks import acquire_lock, hold_lock
from habitus.operating_system import sync_to_disk

_LOCK_FILE = "home.lock"
_ASIDE, _NEW, _OLD, _BEGUN = ".replacing", "new", "old", "begun.json"
# The hook daemon ends within five seconds.
_DAEMON_PATIENCE_S = 12.0
# The longest that replacing a large home takes.
_MAX_WAIT_S = 600.0


@contextmanager
def lock_home_against_replacement(home: Path) -> Iterator[None]:
    """Keep the home from being replaced meanwhile; an unfinished swap is completed first."""
    while True:
        # A shared lock can't be upgraded, so it is released, and the exclusive one checks again.
        with hold_lock(home / _LOCK_FILE, shared=True, wait_s=_MAX_WAIT_S):
            if not has_unfinished_home_swap(home):
                yield
                return
        with hold_lock(home / _LOCK_FILE, wait_s=_MAX_WAIT_S):
            if has_unfinished_home_swap(home):
                _swap_staged_entries(home)


def has_unfinished_home_swap(home: Path) -> bool:
    """Whether a killed process left a swap to be completed."""
    return (home / _ASIDE / _BEGUN).exists()


def complete_unfinished_home_swap(home: Path) -> None:
    """Complete an unfinished swap, for callers that read a file of the home before they open it."""
    with lock_home_against_replacement(home):
        pass


@contextmanager
def lock_home_exclusively(home: Path) -> Iterator[None]:
    """Keep all other processes out of the home; refused if one is using it."""
    wait_s = 0.0
    if resident_process.is_process_running(home, resident_process.HOOK_SERVER):
        resident_process.request_stop(home, resident_process.HOOK_SERVER)
        wait_s = _DAEMON_PATIENCE_S
    held = acquire_lock(home / _LOCK_FILE, wait_s=wait_s)
    if held is None:
        raise Refused(
            f"{home} is in use by another process of Habitus.",
            hint="Stop 'habitus up', workers, chats and connected agents first; nothing was changed.",
        )
    try:
        if has_unfinished_home_swap(home):
            _swap_staged_entries(home)
        yield
    finally:
        os.close(held)


@contextmanager
def create_staging_folder(home: Path) -> Iterator[Path]:
    """Create an empty folder for the new contents of the home.

    It is removed afterwards unless `replace_home_entries_with_staged_ones` swapped it in.
    """
    aside = home / _ASIDE
    shutil.rmtree(aside, ignore_errors=True)
    (aside / _NEW).mkdir(parents=True, mode=0o700)
    try:
        yield aside / _NEW
    finally:
        if not (aside / _BEGUN).exists():
            shutil.rmtree(aside, ignore_errors=True)


def replace_home_entries_with_staged_ones(home: Path, names: Iterable[str]) -> None:
    """Replace these entries of the home with the staged ones.

    Once the list is written, the new home is the valid one.
    """
    aside = home / _ASIDE
    # Everything must be on disk before the list is, or a crash could leave an empty file in the new home.
    for directory, _, files in os.walk(aside / _NEW):
        for place in (Path(directory), *(Path(directory, name) for name in files)):
            if not place.is_symlink():
                sync_to_disk(place)
    write_atomically(aside / _BEGUN, json.dumps(sorted(names)).encode())
    _swap_staged_entries(home)


def _swap_staged_entries(home: Path) -> None:
    """Move the old entries away and the staged ones in; can be repeated after a kill."""
    aside, old = home / _ASIDE, home / _ASIDE / _OLD
    old.mkdir(exist_ok=True, mode=0o700)
    for name in json.loads((aside / _BEGUN).read_text("utf-8")):
        if os.path.lexists(home / name) and not os.path.lexists(old / name):
            (home / name).rename(old / name)
    for path in sorted((aside / _NEW).iterdir()):
        path.rename(home / path.name)
    sync_to_disk(home)
    (aside / _BEGUN).unlink()
    sync_to_disk(aside)
    shutil.rmtree(aside, ignore_errors=True)
