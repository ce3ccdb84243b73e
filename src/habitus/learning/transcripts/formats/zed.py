"""Zed: a database of threads, each a JSON document, usually compressed."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from habitus.learning.transcripts.lines import Talk, as_list, has_tables, mapping, open_database, parse_json, string
from habitus.learning.transcripts.model import Transcript
from habitus.redact import PATTERNS_ONLY, Redactor

SOURCE = "zed"
_LARGEST = 64 << 20


def owns(path: Path) -> bool:
    return has_tables(path, ("threads",))


def looks_like(row: dict[str, object]) -> bool:
    """Always False: the database is known by its tables."""
    return False


def read(path: Path, redactor: Redactor = PATTERNS_ONLY) -> Iterator[Transcript]:
    """Yield one transcript per thread."""
    try:
        with open_database(path) as database:
            keys = {row["name"] for row in database.execute("PRAGMA table_info(threads)")}
            side = "parent_id" if "parent_id" in keys else "NULL"
            query = f"SELECT id, {side} AS parent, data_type, data FROM threads ORDER BY rowid"
            for row in database.execute(query):
                yield _thread(row, redactor)
    except sqlite3.Error as error:
        yield Transcript(id=path.stem, source=SOURCE, unread={f"database: {error}": 1})


def _thread(row: sqlite3.Row, redactor: Redactor) -> Transcript:
    talk = Talk(str(row["id"]), SOURCE, redactor, is_side=bool(row["parent"]))
    thread = mapping(_unpack(row["data_type"], row["data"]))
    trees = as_list(mapping(thread.get("initial_project_snapshot")).get("worktree_snapshots"))
    talk.locate(next((string(mapping(tree).get("worktree_path")) for tree in trees), ""))
    for message in map(mapping, as_list(thread.get("messages"))):
        if said := mapping(message.get("User")):
            talk.hear("\n".join(string(mapping(part).get("Text")) for part in as_list(said.get("content"))))
        _take(talk, mapping(message.get("Agent")))
    return talk.finish({} if thread else {"thread that can't be unpacked": 1})


def _take(talk: Talk, message: Mapping[str, object]) -> None:
    for part in map(mapping, as_list(message.get("content"))):
        if use := mapping(part.get("ToolUse")):
            talk.call(string(use.get("id")), string(use.get("name")), use.get("input"))
    for id, result in mapping(message.get("tool_results")).items():
        fields = mapping(result)
        content = fields.get("content")
        text = string(mapping(content).get("Text")) or string(content)
        text = text or "\n".join(string(mapping(part).get("Text")) for part in as_list(content))
        failed = fields.get("is_error")
        talk.answer(id, text, has_failed=True if failed is True else None)


def _unpack(kind: object, data: object) -> object:
    """Return the document of a thread; None if it is damaged or too large."""
    if kind != "zstd" or not isinstance(data, bytes):
        return parse_json(data)
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd

    unpacking = zstd.ZstdDecompressor()
    try:
        return json.loads(unpacking.decompress(data, max_length=_LARGEST))
    except (zstd.ZstdError, EOFError, ValueError, RecursionError):
        return None
