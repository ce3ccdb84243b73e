"""opencode: sessions, messages and parts of messages; a tool call carries its own result.

They are in a database, which is opened read-only and read one session at a time. Older versions have a folder `storage`
of small files: `session/…/ID.json`, `message/SESSION/ID.json`, `part/MESSAGE/ID.json`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

from habitus.learning.transcripts.lines import (
    Talk,
    is_database,
    iso_timestamp,
    mapping,
    open_database,
    parse_json,
    string,
)
from habitus.learning.transcripts.model import Transcript
from habitus.redact import PATTERNS_ONLY, Redactor

SOURCE = "opencode"
_FAILED = {"completed": False, "error": True}


def owns(path: Path) -> bool:
    return is_database(path)


def looks_like(row: Mapping[str, object]) -> bool:
    """Whether this is the file of a session."""
    return string(row.get("id")).startswith("ses") and "directory" in row and "role" not in row


def read(path: Path, redactor: Redactor = PATTERNS_ONLY) -> Iterator[Transcript]:
    """Yield one transcript per session; an unknown database yields one that reports the error."""
    if not is_database(path):
        yield _read_stored(path, redactor)
        return
    try:
        with open_database(path) as database:
            sessions = database.execute("SELECT * FROM session ORDER BY rowid").fetchall()
            for row in sessions:
                yield _session(database, row, redactor)
    except sqlite3.Error as error:
        yield Transcript(id=path.stem, source=SOURCE, unread={f"database: {error}": 1})


def _session(database: sqlite3.Connection, row: sqlite3.Row, redactor: Redactor) -> Transcript:
    keys = row.keys()
    talk = Talk(str(row["id"]), SOURCE, redactor, is_side="parent_id" in keys and bool(row["parent_id"]))
    talk.locate(string(row["directory"]) if "directory" in keys else "")
    query = (
        "SELECT message.data AS message, part.data AS part FROM part JOIN message ON message.id = part.message_id "
        "WHERE message.session_id = ? ORDER BY message.id, part.id"
    )
    for found in database.execute(query, (row["id"],)):
        _take(talk, mapping(parse_json(found["message"])), mapping(parse_json(found["part"])))
    return talk.finish()


def _read_stored(path: Path, redactor: Redactor) -> Transcript:
    """Read the session of one file, with its messages and parts in the folders beside it."""
    session = mapping(parse_json(path.read_bytes()))
    storage = next((place.parent for place in path.parents if place.name == "session"), path.parent)
    talk = Talk(string(session.get("id")) or path.stem, SOURCE, redactor, is_side=bool(session.get("parentID")))
    talk.locate(string(session.get("directory")))
    for message in sorted((storage / "message" / path.stem).glob("*.json")):
        for part in sorted((storage / "part" / message.stem).glob("*.json")):
            _take(talk, mapping(parse_json(message.read_bytes())), mapping(parse_json(part.read_bytes())))
    return talk.finish()


def _take(talk: Talk, message: Mapping[str, object], part: Mapping[str, object]) -> None:
    at = iso_timestamp(mapping(message.get("time")).get("created"))
    match part.get("type"):
        case "text" if message.get("role") == "user" and not part.get("synthetic"):
            talk.hear(string(part.get("text")), at=at)
        case "tool":
            _call(talk, part, at)


def _call(talk: Talk, part: Mapping[str, object], at: str) -> None:
    """Add a tool call with its result; a failed command is also `completed`, so its exit code decides."""
    state, id = mapping(part.get("state")), string(part.get("callID"))
    when = mapping(state.get("time"))
    talk.call(id, string(part.get("tool")), state.get("input"), at=iso_timestamp(when.get("start")) or at)
    text, code = string(state.get("error")) or string(state.get("output")), mapping(state.get("metadata")).get("exit")
    fields = {"exit_code": code, "output": text} if isinstance(code, int) else {}
    has_failed = None if fields else _FAILED.get(string(state.get("status")))
    talk.answer(id, text, fields=(fields,), has_failed=has_failed, at=iso_timestamp(when.get("end")) or at)
