"""Replacing a home whole: staged inside it, then swapped, so that a kill at any step leaves the old one or the new.

Who uses a home holds its lock together with others; who replaces it holds it alone. What a killed process had begun
to swap is completed by the next one that comes in.
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
from habitus.files import sync, write_whole
from habitus.locks import lock, take

_LOCK = "home.lock"
_ASIDE, _NEW, _OLD, _BEGUN = ".replacing", "new", "old", "begun.json"
_PATIENCE_S = 12.0  # a process that answers hooks goes within five seconds
_LONGEST_S = 600.0  # that replacing a large home takes


@contextmanager
def inside(home: Path) -> Iterator[None]:
    """Nobody replaces the home meanwhile; what somebody had begun to swap is completed first."""
    while True:
        with lock(home / _LOCK, shared=True, wait_s=_LONGEST_S):
            if not is_begun(home):
                yield
                return
        with lock(home / _LOCK, wait_s=_LONGEST_S):
            if is_begun(home):
                _swap(home)


def is_begun(home: Path) -> bool:
    """Whether a killed process has left something to be completed."""
    return (home / _ASIDE / _BEGUN).exists()


def complete(home: Path) -> None:
    """For whoever reads a file of the home before they come in."""
    with inside(home):
        pass


@contextmanager
def alone(home: Path) -> Iterator[None]:
    """Nobody else is in the home, and who wants to come in waits."""
    wait_s = 0.0
    if resident_process.is_running(home, resident_process.HOOK_SERVER):
        resident_process.end_soon(home, resident_process.HOOK_SERVER)
        wait_s = _PATIENCE_S
    held = take(home / _LOCK, wait_s=wait_s)
    if held is None:
        raise Refused(
            f"{home} is in use by another process of Habitus.",
            mend="Stop 'habitus up', workers, chats and connected agents first; nothing was changed.",
        )
    try:
        if is_begun(home):
            _swap(home)
        yield
    finally:
        os.close(held)


@contextmanager
def staging_folder(home: Path) -> Iterator[Path]:
    """An empty folder for what shall be in the home; it is gone afterwards, unless `replace` put it in place."""
    aside = home / _ASIDE
    shutil.rmtree(aside, ignore_errors=True)
    (aside / _NEW).mkdir(parents=True, mode=0o700)
    try:
        yield aside / _NEW
    finally:
        if not (aside / _BEGUN).exists():
            shutil.rmtree(aside, ignore_errors=True)


def replace(home: Path, names: Iterable[str]) -> None:
    """Put what is staged in place of these. From the moment that is written down, the new home is the one there is."""
    aside = home / _ASIDE
    for directory, _, files in os.walk(aside / _NEW):
        for place in (Path(directory), *(Path(directory, name) for name in files)):
            if not place.is_symlink():
                sync(place)
    write_whole(aside / _BEGUN, json.dumps(sorted(names)).encode())
    _swap(home)


def _swap(home: Path) -> None:
    """May be repeated after a kill: what was moved already is where it belongs."""
    aside, old = home / _ASIDE, home / _ASIDE / _OLD
    old.mkdir(exist_ok=True, mode=0o700)
    for name in json.loads((aside / _BEGUN).read_text("utf-8")):
        if os.path.lexists(home / name) and not os.path.lexists(old / name):
            (home / name).rename(old / name)
    for path in sorted((aside / _NEW).iterdir()):
        path.rename(home / path.name)
    sync(home)
    (aside / _BEGUN).unlink()
    sync(aside)
    shutil.rmtree(aside, ignore_errors=True)
