"""A conversation as a reader meets it: the person said, a tool was called, it came back."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from habitus.learning.transcripts.lines import mapping, string
from habitus.learning.transcripts.model import Stop, Transcript, TranscriptDraft
from habitus.learning.transcripts.results import came_to, said_no
from habitus.redact import Redactor

_MAGIC = b"SQLite format 3\x00"


class Talk:
    """One transcript while it is read. A result is that of the call with its id, wherever it stands."""

    def __init__(self, id: str, source: str, redactor: Redactor, *, is_side: bool = False) -> None:
        self.draft = TranscriptDraft(id=id, source=source, redactor=redactor)
        self._redactor = redactor
        self._is_side = is_side
        self._stopped: Stop | None = None

    def locate(self, folder: str) -> None:
        """The directory in which the work is done, as far as it is known."""
        if folder and not self.draft.project:
            self.draft.project = self._redactor.redact(folder.removeprefix("file://")[:1000]).text

    def hear(self, words: str, *, at: str = "") -> None:
        """A request of the person; with it a turn begins."""
        if words.strip():
            self.draft.hear(self.draft.open(is_sidechain=self._is_side), words, after=self._stopped, at=at)
            self._stopped = None

    def call(self, id: str, name: str, args: object, *, at: str = "") -> None:
        turn = self.draft.turn if self.draft.turns else self.draft.open(is_sidechain=self._is_side)
        turn.round_idx += 1
        self.draft.call(turn, id, name or "unknown", args, at=at)

    def answer(
        self,
        id: str,
        text: str,
        *,
        has_failed: bool | None = None,
        fields: Sequence[object] = (),
        at: str = "",
    ) -> None:
        call = self.draft.calls.pop(id, None)
        if call is None:
            self.draft.unread["result without a call"] += 1
            return
        reading = came_to(call.args, text, fields=fields, has_failed=has_failed)
        if reading.success is None and (said_no(texts=(text,))[0] or any(map(_is_refusal, fields))):
            self._stopped = Stop.REFUSED
        self.draft.answer(call, reading, text, at=at)

    def stop(self) -> None:
        """The person interrupted the agent."""
        self._stopped = self._stopped or Stop.INTERRUPTED

    def pieces(self) -> Iterator[Transcript]:
        """The turns that have ended, once they are many."""
        if self.draft.is_large:
            yield self.draft.piece(without=self.draft.turns[-1:])

    def finish(self, unread: Mapping[str, int] | None = None) -> Transcript:
        self.draft.unread.update(unread or {})
        return self.draft.finish()


def _is_refusal(fields: object) -> bool:
    return string(mapping(fields).get("status")).lower() in ("rejected", "cancelled", "canceled", "declined", "denied")


def as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def parse_json(text: object) -> object:
    """JSON out of a column or a file; None where it is none."""
    try:
        return json.loads(text) if isinstance(text, str | bytes) else None
    except (ValueError, RecursionError):
        return None


def moment(seconds: object) -> str:
    """A time stamp in seconds or milliseconds, in the usual form."""
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        return ""
    try:
        return datetime.fromtimestamp(seconds / 1000 if seconds > 1e11 else seconds, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return ""


def has_tables(path: Path, names: Iterable[str]) -> bool:
    """Whether this is a database with these tables."""
    if not is_database(path):
        return False
    try:
        with open_database(path) as database:
            found = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            return found.issuperset(names)
    except sqlite3.Error:
        return False


def is_database(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def open_database(path: Path) -> sqlite3.Connection:
    """To read it only, whoever writes it meanwhile."""
    database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    database.row_factory = sqlite3.Row
    return database
