"""opencode's sessions, their messages, and parts of messages, of which tool calls carry their own result.

They lie in its database, which is opened read-only and read one session at a time; before it had one, in a folder
`storage` of small files: `session/…/ID.json`, `message/SESSION/ID.json`, `part/MESSAGE/ID.json`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from habitus.learning.transcripts.model import Stop, Transcript, TranscriptDraft, TurnDraft
from habitus.learning.transcripts.refusals import said_no
from habitus.learning.transcripts.results import Reading, came_to
from habitus.learning.transcripts.values import mapping, string
from habitus.redact import PATTERNS_ONLY, Redactor

SOURCE = "opencode"
_MAGIC = b"SQLite format 3\x00"
_FAILED = {"completed": False, "error": True}


def is_database(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def looks_like(row: Mapping[str, object]) -> bool:
    """Whether this is the file of a session."""
    return string(row.get("id")).startswith("ses") and "directory" in row and "role" not in row


def read(path: Path, redactor: Redactor = PATTERNS_ONLY) -> Iterator[Transcript]:
    """One transcript per session. A database of another make gives one that says so."""
    if not is_database(path):
        yield _stored(path, redactor)
        return
    try:
        with _opened(path) as database:
            sessions = database.execute("SELECT * FROM session ORDER BY rowid").fetchall()
            for row in sessions:
                yield _session(database, row, redactor)
    except sqlite3.Error as error:
        yield Transcript(id=path.stem, source=SOURCE, unread={f"database: {error}": 1})


def _opened(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    database.row_factory = sqlite3.Row
    return database


def _session(database: sqlite3.Connection, row: sqlite3.Row, redactor: Redactor) -> Transcript:
    draft = TranscriptDraft(id=str(row["id"]), source=SOURCE, redactor=redactor)
    keys = row.keys()
    place = row["directory"] if "directory" in keys else ""
    draft.project = redactor.redact(string(place)[:1000]).text
    is_side = "parent_id" in keys and bool(row["parent_id"])
    reader = _Parts(draft, is_side=is_side)
    query = (
        "SELECT message.data AS message, part.data AS part FROM part JOIN message ON message.id = part.message_id "
        "WHERE message.session_id = ? ORDER BY message.id, part.id"
    )
    for found in database.execute(query, (row["id"],)):
        reader.take(_parsed(found["message"]), _parsed(found["part"]))
    return draft.finished()


def _stored(path: Path, redactor: Redactor) -> Transcript:
    """The session of one file, with the messages and parts that lie beside it."""
    session = _parsed(path.read_bytes())
    storage = next((place.parent for place in path.parents if place.name == "session"), path.parent)
    draft = TranscriptDraft(id=string(session.get("id")) or path.stem, source=SOURCE, redactor=redactor)
    draft.project = redactor.redact(string(session.get("directory"))[:1000]).text
    reader = _Parts(draft, is_side=bool(session.get("parentID")))
    for message in sorted((storage / "message" / path.stem).glob("*.json")):
        for part in sorted((storage / "part" / message.stem).glob("*.json")):
            reader.take(_parsed(message.read_bytes()), _parsed(part.read_bytes()))
    return draft.finished()


class _Parts:
    def __init__(self, draft: TranscriptDraft, *, is_side: bool) -> None:
        self._draft = draft
        self._is_side = is_side
        self._stopped: Stop | None = None

    def take(self, message: Mapping[str, object], part: Mapping[str, object]) -> None:
        at = _at(mapping(message.get("time")).get("created"))
        match part.get("type"):
            case "text" if message.get("role") == "user" and not part.get("synthetic"):
                turn = self._draft.open(is_sidechain=self._is_side)
                self._draft.hear(turn, string(part.get("text")), after=self._stopped, at=at)
                self._stopped = None
            case "tool":
                self._call(part, at)

    def _call(self, part: Mapping[str, object], at: str) -> None:
        turn, state = self._turn(), mapping(part.get("state"))
        turn.round_idx += 1
        name, id, args = string(part.get("tool")) or "unknown", string(part.get("callID")), state.get("input")
        when = mapping(state.get("time"))
        began, ended = _at(when.get("start")) or at, _at(when.get("end")) or at
        made = self._draft.call(turn, id, name, args, at=began)
        reading, text = _reading(args, state)
        if reading.success is None and said_no(texts=(text,))[0]:
            self._stopped = Stop.REFUSED
        self._draft.answer(made, reading, text, at=ended)

    def _turn(self) -> TurnDraft:
        return self._draft.turns[-1] if self._draft.turns else self._draft.open(is_sidechain=self._is_side)


def _reading(args: object, state: Mapping[str, object]) -> tuple[Reading, str]:
    """A command that ended badly is `completed` all the same; its exit code stands beside."""
    text = string(state.get("error")) or string(state.get("output"))
    status, code = string(state.get("status")), mapping(state.get("metadata")).get("exit")
    fields = {"exit_code": code, "output": text} if isinstance(code, int) else {}
    return came_to(args, text, fields=(fields,), has_failed=None if fields else _FAILED.get(status)), text


def _at(milliseconds: object) -> str:
    if not isinstance(milliseconds, int | float) or isinstance(milliseconds, bool):
        return ""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return ""


def _parsed(text: object) -> Mapping[str, object]:
    try:
        return mapping(json.loads(text)) if isinstance(text, str | bytes) else {}
    except (ValueError, RecursionError):
        return {}
