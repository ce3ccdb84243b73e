"""Zed: a database of threads, each a JSON document, usually compressed."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from habitus.learning.transcripts.model import Transcript
from habitus.learning.transcripts.reading import (
    TranscriptBuilder,
    has_sqlite_tables,
    list_or_empty,
    mapping_or_empty,
    parse_json_or_none,
    read_database_transcripts,
    string_or_empty,
)
from habitus.redact import PATTERNS_ONLY, Redactor

SOURCE = "zed"
_MAX_THREAD_BYTES = 64 << 20


def recognizes_file(path: Path) -> bool:
    return has_sqlite_tables(path, ("threads",))


def read_transcript_pieces(path: Path, redactor: Redactor = PATTERNS_ONLY) -> Iterator[Transcript]:
    """Yield one transcript per thread."""
    return read_database_transcripts(
        path, SOURCE, "SELECT * FROM threads ORDER BY rowid", partial(_read_thread, redactor)
    )


def _read_thread(redactor: Redactor, database: sqlite3.Connection, row: sqlite3.Row) -> Transcript:
    parent = string_or_empty(row["parent_id"]) if "parent_id" in row.keys() else ""  # noqa: SIM118  # a row is no mapping
    talk = TranscriptBuilder(str(row["id"]), SOURCE, redactor, is_side=bool(parent))
    talk.draft.conversation = parent
    thread = mapping_or_empty(_unpack_thread(row["data_type"], row["data"]))
    trees = list_or_empty(mapping_or_empty(thread.get("initial_project_snapshot")).get("worktree_snapshots"))
    talk.set_project_if_unknown(
        next((string_or_empty(mapping_or_empty(tree).get("worktree_path")) for tree in trees), "")
    )
    for message in map(mapping_or_empty, list_or_empty(thread.get("messages"))):
        if said := mapping_or_empty(message.get("User")):
            talk.add_request(
                "\n".join(
                    string_or_empty(mapping_or_empty(part).get("Text")) for part in list_or_empty(said.get("content"))
                )
            )
        _add_message(talk, mapping_or_empty(message.get("Agent")))
    return talk.finish({} if thread else {"thread that can't be unpacked": 1})


def _add_message(talk: TranscriptBuilder, message: Mapping[str, object]) -> None:
    for part in map(mapping_or_empty, list_or_empty(message.get("content"))):
        if use := mapping_or_empty(part.get("ToolUse")):
            talk.add_call(string_or_empty(use.get("id")), string_or_empty(use.get("name")), use.get("input"))
    for id, result in mapping_or_empty(message.get("tool_results")).items():
        fields = mapping_or_empty(result)
        content = fields.get("content")
        text = string_or_empty(mapping_or_empty(content).get("Text")) or string_or_empty(content)
        text = text or "\n".join(string_or_empty(mapping_or_empty(part).get("Text")) for part in list_or_empty(content))
        failed = fields.get("is_error")
        talk.add_result(id, text, has_failed=True if failed is True else None)


def _unpack_thread(kind: object, data: object) -> object:
    """Return the document of a thread; None if it is damaged or too large."""
    if kind != "zstd" or not isinstance(data, bytes):
        return parse_json_or_none(data)
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd

    unpacking = zstd.ZstdDecompressor()
    try:
        return json.loads(unpacking.decompress(data, max_length=_MAX_THREAD_BYTES))
    except (zstd.ZstdError, EOFError, ValueError, RecursionError):
        return None
