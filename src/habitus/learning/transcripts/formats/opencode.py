"""opencode: sessions, messages and parts of messages; a tool call carries its own result.

They are in a database, which is opened read-only and read one session at a time. Older versions have a folder `storage`
of small files: `session/…/ID.json`, `message/SESSION/ID.json`, `part/MESSAGE/ID.json`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from habitus.learning.transcripts.model import Transcript
from habitus.learning.transcripts.reading import (
    TranscriptBuilder,
    format_unix_timestamp,
    is_sqlite_database,
    mapping_or_empty,
    parse_json_or_none,
    read_database_transcripts,
    string_or_empty,
)
from habitus.redact import PATTERNS_ONLY, Redactor

SOURCE = "opencode"
_FAILED_BY_STATUS = {"completed": False, "error": True}


def recognizes_file(path: Path) -> bool:
    return is_sqlite_database(path)


def recognizes_row(row: Mapping[str, object]) -> bool:
    """Whether this is the file of a session."""
    return string_or_empty(row.get("id")).startswith("ses") and "directory" in row and "role" not in row


def read_transcript_pieces(path: Path, redactor: Redactor = PATTERNS_ONLY) -> Iterator[Transcript]:
    """Yield one transcript per session; an unknown database yields one that reports the error."""
    if not is_sqlite_database(path):
        return iter([_read_session_file(path, redactor)])
    return read_database_transcripts(
        path, SOURCE, "SELECT * FROM session ORDER BY rowid", partial(_read_session, redactor)
    )


def _read_session(redactor: Redactor, database: sqlite3.Connection, row: sqlite3.Row) -> Transcript:
    keys = row.keys()
    parent = string_or_empty(row["parent_id"]) if "parent_id" in keys else ""
    talk = TranscriptBuilder(str(row["id"]), SOURCE, redactor, is_side=bool(parent))
    talk.draft.conversation = parent
    talk.set_project_if_unknown(string_or_empty(row["directory"]) if "directory" in keys else "")
    query = (
        "SELECT message.data AS message, part.data AS part FROM part JOIN message ON message.id = part.message_id "
        "WHERE message.session_id = ? ORDER BY message.id, part.id"
    )
    for found in database.execute(query, (row["id"],)):
        _add_part(
            talk,
            mapping_or_empty(parse_json_or_none(found["message"])),
            mapping_or_empty(parse_json_or_none(found["part"])),
        )
    return talk.finish()


def _read_session_file(path: Path, redactor: Redactor) -> Transcript:
    """Read the session of one file, with its messages and parts in the folders beside it."""
    session = mapping_or_empty(parse_json_or_none(path.read_bytes()))
    storage = next((place.parent for place in path.parents if place.name == "session"), path.parent)
    parent = string_or_empty(session.get("parentID"))
    talk = TranscriptBuilder(string_or_empty(session.get("id")) or path.stem, SOURCE, redactor, is_side=bool(parent))
    talk.draft.conversation = parent
    talk.set_project_if_unknown(string_or_empty(session.get("directory")))
    for message in sorted((storage / "message" / path.stem).glob("*.json")):
        for part in sorted((storage / "part" / message.stem).glob("*.json")):
            _add_part(
                talk,
                mapping_or_empty(parse_json_or_none(message.read_bytes())),
                mapping_or_empty(parse_json_or_none(part.read_bytes())),
            )
    return talk.finish()


def _add_part(talk: TranscriptBuilder, message: Mapping[str, object], part: Mapping[str, object]) -> None:
    at = format_unix_timestamp(mapping_or_empty(message.get("time")).get("created"))
    match part.get("type"):
        case "text" if message.get("role") == "user" and not part.get("synthetic"):
            talk.add_request(string_or_empty(part.get("text")), at=at)
        case "tool":
            _add_call_with_result(talk, part, at)


def _add_call_with_result(talk: TranscriptBuilder, part: Mapping[str, object], at: str) -> None:
    """Add a tool call with its result; a failed command is also `completed`, so its exit code decides."""
    state, id = mapping_or_empty(part.get("state")), string_or_empty(part.get("callID"))
    when = mapping_or_empty(state.get("time"))
    talk.add_call(
        id, string_or_empty(part.get("tool")), state.get("input"), at=format_unix_timestamp(when.get("start")) or at
    )
    text, code = (
        string_or_empty(state.get("error")) or string_or_empty(state.get("output")),
        mapping_or_empty(state.get("metadata")).get("exit"),
    )
    fields = {"exit_code": code, "output": text} if isinstance(code, int) else {}
    has_failed = None if fields else _FAILED_BY_STATUS.get(string_or_empty(state.get("status")))
    talk.add_result(id, text, fields=(fields,), has_failed=has_failed, at=format_unix_timestamp(when.get("end")) or at)
