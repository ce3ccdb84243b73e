"""The spool of the journal: what can't be written now waits in a file of this host, and is written once, in its order.

A line is a checksum and JSON. Turns and judgements have keys, so that writing one twice is writing it once; a process
that is killed while it replays leaves the rest to the next.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
class Replayed:
    written: int = 0
    aside: int = 0  # lines that nobody can read, kept in a file of their own


class Spool:
    def __init__(self, folder: Path, redactor: Redactor, *, most: int = MOST_BYTES) -> None:
        self.folder = folder
        self._redactor = redactor
        self._most = most

    @property
    def is_empty(self) -> bool:
        return not any((self.folder / name).exists() for name in (_WAITING, _REPLAYING))

    @property
    def waiting(self) -> int:
        """How many turns and judgements wait to be written."""
        return sum(len(self._lines(name)) for name in (_REPLAYING, _WAITING))

    @property
    def count_dropped(self) -> int:
        """How many found no room, or could not be kept at all, since this home was made."""
        try:
            return (self.folder / _DROPPED).stat().st_size
        except OSError:
            return 0

    def keep_turn(self, turn: Turn) -> bool:
        """Whether it waits now; what can't is counted as dropped."""
        return self._keep({"turn": _turns().dump_python(turn, mode="json")})

    def keep_judgement(self, turn: str, outcome: TurnOutcome) -> bool:
        return self._keep({"judged": turn, "outcome": _outcomes().dump_python(outcome, mode="json")})

    def drop(self) -> None:
        """Something else was lost that is only counted; one byte each."""
        with suppress(OSError):
            self._append(_DROPPED, b".")

    def replay(self, journal: Journal) -> Replayed:
        """Write what waits, oldest first; what fails stays, with all that came after it."""
        written = aside = 0
        for _ in (_REPLAYING, _WAITING):  # what was left on the way, then what has come since
            with self._replaying() as lines:
                while lines:
                    entry = _read(lines[0])
                    if entry is None or not self._write(journal, entry):
                        self._append(_ASIDE, lines[0] + b"\n")
                        aside += 1
                    else:
                        written += 1
                    del lines[0]
        if aside:
            log.warning("%d lines of %s could not be used; they are in '%s' there.", aside, self.folder, _ASIDE)
        return Replayed(written=written, aside=aside)

    def _write(self, journal: Journal, entry: Mapping[str, Any]) -> bool:
        """Whether the database took it; what it refuses for what it says will be refused for ever."""
        try:
            write = _writing(journal, entry)
        except (KeyError, TypeError, ValueError):
            return False  # another version wrote it in another way
        try:
            write()
        except NotFound:
            pass  # a judgement on a turn that has gone
        except StorageFailed as failed:
            if type(failed.__cause__).__name__ in ("IntegrityError", "DataError"):
                return False
            raise
        return True

    def _keep(self, entry: Mapping[str, Any]) -> bool:
        text = json.dumps(self._redactor.redact_value(entry), ensure_ascii=False)
        line = encodable(text).encode()
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

    @contextmanager
    def _replaying(self) -> Iterator[list[bytes]]:
        """The lines that wait, moved out of the way of those that come; what the block leaves of them stays.

        Nobody else replays meanwhile: for them there are none.
        """
        if self.is_empty:
            yield []
            return
        with try_lock(self.folder / "lock") as held:
            lines = [] if held is None else self._take_lines()
            try:
                yield lines
            finally:
                if held is not None:
                    self._put_back(lines)

    def _take_lines(self) -> list[bytes]:
        """The lines that wait; those a killed process left come first, alone: they are the oldest."""
        if not (self.folder / _REPLAYING).exists():
            with suppress(FileNotFoundError):
                (self.folder / _WAITING).rename(self.folder / _REPLAYING)
        return self._lines(_REPLAYING)

    def _put_back(self, lines: list[bytes]) -> None:
        place = self.folder / _REPLAYING
        if not lines:
            place.unlink(missing_ok=True)
            return
        write_whole(place, b"".join(line + b"\n" for line in lines))

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


def _checksum(line: bytes) -> bytes:
    return hashlib.sha256(line).hexdigest()[:16].encode()


def _read(line: bytes) -> Mapping[str, Any] | None:
    checksum, _, text = line.partition(b" ")
    if checksum != _checksum(text):
        return None
    entry = json.loads(text)
    return entry if isinstance(entry, dict) else None


def _writing(journal: Journal, entry: Mapping[str, Any]) -> Callable[[], object]:
    if "turn" in entry:
        turn = _turns().validate_python(entry["turn"])
        return lambda: journal.record(turn)
    judged, outcome = str(entry["judged"]), _outcomes().validate_python(entry["outcome"])
    return lambda: journal.judge(judged, outcome)


@cache
def _turns() -> TypeAdapter[Turn]:
    from pydantic import TypeAdapter

    return TypeAdapter(Turn)


@cache
def _outcomes() -> TypeAdapter[TurnOutcome]:
    from pydantic import TypeAdapter

    return TypeAdapter(TurnOutcome)
