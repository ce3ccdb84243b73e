"""The journal's outbox: turns and outcomes that can't be written now wait in a local file and are replayed in order.

A line is a checksum and JSON. Turns and outcomes have keys, so replaying one twice is harmless; a process killed during
a replay leaves the rest to the next one.
"""

from __future__ import annotations

import hashlib
import json
import logging
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from habitus.errors import NotFound, StorageFailed
from habitus.files import append, write_whole
from habitus.journal.journal import Journal
from habitus.journal.model import Turn, TurnOutcome
from habitus.locks import try_lock
from habitus.redact import Redactor
from habitus.text import encodable

if TYPE_CHECKING:
    from pydantic import TypeAdapter

log = logging.getLogger(__name__)

MOST_BYTES = 64 << 20
_WAITING, _REPLAYING, _ASIDE, _DROPPED = "waiting", "replaying", "unreadable", "dropped"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Entry:
    """A turn, or an outcome of one."""

    turn: Turn | None = None
    judged: str = ""
    outcome: TurnOutcome | None = None


class Spool:
    """Files of pending journal entries on this host, for times when the database can't be written."""

    def __init__(self, folder: Path, redactor: Redactor, *, most: int = MOST_BYTES) -> None:
        self.folder = folder
        self._redactor = redactor
        self._most = most

    @property
    def is_empty(self) -> bool:
        """True if nothing is pending."""
        return not any((self.folder / name).exists() for name in (_WAITING, _REPLAYING))

    @property
    def waiting(self) -> int:
        """The number of turns and outcomes that are pending."""
        return sum(len(self._lines(name)) for name in (_REPLAYING, _WAITING))

    @property
    def count_dropped(self) -> int:
        """The number of entries that did not fit or could not be stored, since this home was created."""
        return self._size(_DROPPED)

    def keep_turn(self, turn: Turn) -> bool:
        """Store a turn for later; False if that failed, which counts it as dropped."""
        return self._keep(_Entry(turn=turn))

    def keep_judgement(self, turn: str, outcome: TurnOutcome) -> bool:
        """Store an outcome for later; False if that failed, which counts it as dropped."""
        return self._keep(_Entry(judged=turn, outcome=outcome))

    def drop(self) -> None:
        """Count a lost entry."""
        # One byte per loss: appending needs no lock, and the file's size is the count.
        with suppress(OSError):
            self._append(_DROPPED, b".")

    def replay(self, journal: Journal) -> None:
        """Write the pending entries to the journal, oldest first; on an error, that entry and all later ones stay.

        Does nothing while another process replays.
        """
        if self.is_empty:
            return
        aside = 0
        with try_lock(self.folder / "lock") as held:
            # New entries may arrive during the replay, so it continues until the pending file is gone.
            while held is not None and (lines := self._take_lines()):
                try:
                    while lines:
                        if not _write(journal, lines[0]):
                            self._append(_ASIDE, lines[0] + b"\n")
                            aside += 1
                        del lines[0]
                finally:
                    self._put_back(lines)
        if aside:
            log.warning("%d lines of %s could not be used; they are in '%s' there.", aside, self.folder, _ASIDE)

    def _keep(self, entry: _Entry) -> bool:
        value = _entries().dump_python(entry, mode="json", exclude_defaults=True)
        line = encodable(json.dumps(self._redactor.redact_value(value), ensure_ascii=False)).encode()
        try:
            if self._size(_WAITING) + len(line) > self._most:
                raise OSError("the spool is full")
            self._append(_WAITING, b"%s %s\n" % (_checksum(line), line))
        except OSError as error:
            log.info("A turn could not wait on the disk: %s.", error)
            self.drop()
            return False
        return True

    def _append(self, name: str, data: bytes) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        append(self.folder / name, data)

    def _take_lines(self) -> list[bytes]:
        """Move the pending lines out of the way of new ones and return them."""
        # Lines left by a killed process are older than the pending ones, so they are replayed first and alone.
        if not (self.folder / _REPLAYING).exists():
            with suppress(FileNotFoundError):
                (self.folder / _WAITING).rename(self.folder / _REPLAYING)
        return self._lines(_REPLAYING)

    def _put_back(self, lines: list[bytes]) -> None:
        place = self.folder / _REPLAYING
        if lines:
            write_whole(place, b"".join(line + b"\n" for line in lines))
        else:
            place.unlink(missing_ok=True)

    def _lines(self, name: str) -> list[bytes]:
        try:
            return (self.folder / name).read_bytes().splitlines()
        except OSError:
            return []

    def _size(self, name: str) -> int:
        try:
            return (self.folder / name).stat().st_size
        except OSError:
            return 0


def _write(journal: Journal, line: bytes) -> bool:
    """Write one line to the journal; False if the line can't be used."""
    checksum, _, text = line.partition(b" ")
    try:
        entry = _entries().validate_json(text) if checksum == _checksum(text) else _Entry()
    except ValueError:
        # A different Habitus version wrote it in another format.
        return False
    try:
        if entry.turn is not None:
            journal.record(entry.turn)
        elif entry.outcome is not None:
            journal.judge(entry.judged, entry.outcome)
    except NotFound:
        # The turn of this outcome was deleted meanwhile.
        pass
    except StorageFailed as failed:
        # The database will always reject these values; any other failure is worth a retry.
        if type(failed.__cause__).__name__ not in ("IntegrityError", "DataError"):
            raise
        return False
    return entry != _Entry()


def _checksum(line: bytes) -> bytes:
    return hashlib.sha256(line).hexdigest()[:16].encode()


@cache
def _entries() -> TypeAdapter[_Entry]:
    from pydantic import TypeAdapter

    return TypeAdapter(_Entry)
