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
from habitus.files import append_to_file, write_atomically
from habitus.journal.journal import Journal
from habitus.journal.model import Turn, TurnOutcome
from habitus.locks import try_lock
from habitus.redact import Redactor
from habitus.text import replace_surrogates

if TYPE_CHECKING:
    from pydantic import TypeAdapter

log = logging.getLogger(__name__)

MAX_OUTBOX_BYTES = 64 << 20
_PENDING_FILE, _REPLAYING_FILE, _UNREADABLE_FILE, _DROPPED_FILE = "waiting", "replaying", "unreadable", "dropped"


@dataclass(frozen=True, kw_only=True, slots=True)
class _OutboxEntry:
    """A turn, or an outcome of one. Later releases read the fields from files, so these keep their names."""

    turn: Turn | None = None
    # The id of the turn that the outcome judges.
    judged: str = ""
    outcome: TurnOutcome | None = None


class JournalOutbox:
    """Files of pending journal entries on this host, for times when the database can't be written."""

    def __init__(self, folder: Path, redactor: Redactor, *, max_bytes: int = MAX_OUTBOX_BYTES) -> None:
        self.folder = folder
        self._redactor = redactor
        self._most = max_bytes

    @property
    def is_empty(self) -> bool:
        """True if nothing is pending."""
        return not any((self.folder / name).exists() for name in (_PENDING_FILE, _REPLAYING_FILE))

    @property
    def pending_count(self) -> int:
        """The number of turns and outcomes that are pending."""
        return sum(len(self._read_lines(name)) for name in (_REPLAYING_FILE, _PENDING_FILE))

    @property
    def dropped_count(self) -> int:
        """The number of entries that did not fit or could not be stored, since this home was created."""
        return self._get_file_size(_DROPPED_FILE)

    def add_turn(self, turn: Turn) -> bool:
        """Store a turn for later; False if that failed, which counts it as dropped."""
        return self._append_entry(_OutboxEntry(turn=turn))

    def add_outcome(self, turn: str, outcome: TurnOutcome) -> bool:
        """Store an outcome for later; False if that failed, which counts it as dropped."""
        return self._append_entry(_OutboxEntry(judged=turn, outcome=outcome))

    def record_dropped_entry(self) -> None:
        """Count a lost entry."""
        # One byte per loss: appending needs no lock, and the file's size is the count.
        with suppress(OSError):
            self._append_bytes(_DROPPED_FILE, b".")

    def replay_into_journal(self, journal: Journal, *, wait_s: float = 0.0) -> None:
        """Write the pending entries to the journal, oldest first; on an error, that entry and all later ones stay.

        Does nothing if another process replays for `wait_s` seconds.
        """
        if self.is_empty:
            return
        aside = 0
        with try_lock(self.folder / "lock", wait_s=wait_s) as held:
            # New entries may arrive during the replay, so it continues until the pending file is gone.
            while held is not None and (lines := self._move_and_read_pending_lines()):
                try:
                    while lines:
                        if not _write_line_to_journal(journal, lines[0]):
                            self._append_bytes(_UNREADABLE_FILE, lines[0] + b"\n")
                            aside += 1
                        del lines[0]
                finally:
                    self._rewrite_remaining_lines(lines)
        if aside:
            log.warning(
                "%d lines of %s could not be used; they are in '%s' there.", aside, self.folder, _UNREADABLE_FILE
            )

    def _append_entry(self, entry: _OutboxEntry) -> bool:
        value = _get_entry_adapter().dump_python(entry, mode="json", exclude_defaults=True)
        line = replace_surrogates(json.dumps(self._redactor.redact_value(value), ensure_ascii=False)).encode()
        try:
            if self._get_file_size(_PENDING_FILE) + len(line) > self._most:
                raise OSError("the spool is full")
            self._append_bytes(_PENDING_FILE, b"%s %s\n" % (_compute_checksum(line), line))
        except OSError as error:
            log.info("A turn could not wait on the disk: %s.", error)
            self.record_dropped_entry()
            return False
        return True

    def _append_bytes(self, name: str, data: bytes) -> None:
        self.folder.mkdir(exist_ok=True, mode=0o700)
        append_to_file(self.folder / name, data)

    def _move_and_read_pending_lines(self) -> list[bytes]:
        """Move the pending lines out of the way of new ones and return them."""
        # Lines left by a killed process are older than the pending ones, so they are replayed first and alone.
        if not (self.folder / _REPLAYING_FILE).exists():
            with suppress(FileNotFoundError):
                (self.folder / _PENDING_FILE).rename(self.folder / _REPLAYING_FILE)
        return self._read_lines(_REPLAYING_FILE)

    def _rewrite_remaining_lines(self, lines: list[bytes]) -> None:
        place = self.folder / _REPLAYING_FILE
        if lines:
            write_atomically(place, b"".join(line + b"\n" for line in lines))
        else:
            place.unlink(missing_ok=True)

    def _read_lines(self, name: str) -> list[bytes]:
        try:
            return (self.folder / name).read_bytes().splitlines()
        except OSError:
            return []

    def _get_file_size(self, name: str) -> int:
        try:
            return (self.folder / name).stat().st_size
        except OSError:
            return 0


def _write_line_to_journal(journal: Journal, line: bytes) -> bool:
    """Write one line to the journal; False if the line can't be used."""
    checksum, _, text = line.partition(b" ")
    try:
        entry = _get_entry_adapter().validate_json(text) if checksum == _compute_checksum(text) else _OutboxEntry()
    except ValueError:
        # A different Habitus version wrote it in another format.
        return False
    try:
        if entry.turn is not None:
            journal.record_complete_turn(entry.turn)
        elif entry.outcome is not None:
            journal.record_outcome(entry.judged, entry.outcome)
    except NotFound:
        # The turn of this outcome was deleted meanwhile.
        pass
    except StorageFailed as failed:
        # The database will always reject these values; any other failure is worth a retry.
        if type(failed.__cause__).__name__ not in ("IntegrityError", "DataError"):
            raise
        return False
    return entry != _OutboxEntry()


def _compute_checksum(line: bytes) -> bytes:
    return hashlib.sha256(line).hexdigest()[:16].encode()


@cache
def _get_entry_adapter() -> TypeAdapter[_OutboxEntry]:
    from pydantic import TypeAdapter

    return TypeAdapter(_OutboxEntry)
