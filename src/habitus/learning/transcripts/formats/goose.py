"""Goose: a database of sessions and messages, which consist of texts, tool requests and tool responses."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from habitus.learning.transcripts.model import Transcript
from habitus.learning.transcripts.reading import (
    TranscriptBuilder,
    extract_message_text,
    format_unix_timestamp,
    has_sqlite_tables,
    list_or_empty,
    mapping_or_empty,
    parse_json_or_none,
    read_database_transcripts,
    string_or_empty,
)
from habitus.redact import PATTERNS_ONLY, Redactor

SOURCE = "goose"


def recognizes_file(path: Path) -> bool:
    return has_sqlite_tables(path, ("sessions", "messages"))


def read_transcript_pieces(path: Path, redactor: Redactor = PATTERNS_ONLY) -> Iterator[Transcript]:
    """Yield one transcript per session."""
    return read_database_transcripts(
        path, SOURCE, "SELECT * FROM sessions ORDER BY rowid", partial(_read_session, redactor)
    )


def _read_session(redactor: Redactor, database: sqlite3.Connection, row: sqlite3.Row) -> Transcript:
    talk, columns = TranscriptBuilder(str(row["id"]), SOURCE, redactor), row.keys()
    talk.set_project_if_unknown(string_or_empty(row["working_dir"]) if "working_dir" in columns else "")
    query = (
        "SELECT role, content_json, created_timestamp FROM messages WHERE session_id = ? ORDER BY created_timestamp, id"
    )
    for message in database.execute(query, (row["id"],)):
        at = format_unix_timestamp(message["created_timestamp"])
        parts = [mapping_or_empty(part) for part in list_or_empty(parse_json_or_none(message["content_json"]))]
        said = "\n".join(string_or_empty(part.get("text")) for part in parts if part.get("type") == "text")
        if message["role"] == "user" and not any(part.get("type") == "toolResponse" for part in parts):
            talk.add_request(said, at=at)
        for part in parts:
            _add_part(talk, part, at)
    return talk.finish()


def _add_part(talk: TranscriptBuilder, part: Mapping[str, object], at: str) -> None:
    id = string_or_empty(part.get("id"))
    match part.get("type"):
        case "toolRequest":
            wanted = mapping_or_empty(mapping_or_empty(part.get("toolCall")).get("value"))
            talk.add_call(id, string_or_empty(wanted.get("name")), wanted.get("arguments"), at=at)
        case "toolResponse":
            result = mapping_or_empty(part.get("toolResult"))
            value = result.get("value")
            content = mapping_or_empty(value).get("content") if isinstance(value, Mapping) else value
            has_failed = (
                True if result.get("status") == "error" or mapping_or_empty(value).get("isError") is True else None
            )
            talk.add_result(
                id, string_or_empty(result.get("error")) or extract_message_text(content), has_failed=has_failed, at=at
            )
