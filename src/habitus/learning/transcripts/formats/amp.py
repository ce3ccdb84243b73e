"""Amp: one thread per file; messages consist of texts, tool uses and tool results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from habitus.learning.transcripts.lines import (
    TranscriptBuilder,
    as_list,
    as_mapping,
    as_string,
    join_text,
    read_rows,
)
from habitus.learning.transcripts.model import Transcript
from habitus.redact import PATTERNS_ONLY, Redactor

SOURCE = "amp"


def looks_like(row: dict[str, object]) -> bool:
    return isinstance(row.get("messages"), list) and "created" in row and as_string(row.get("id")).startswith("T-")


def read(path: Path, redactor: Redactor = PATTERNS_ONLY) -> Iterator[Transcript]:
    """Yield one transcript per file, in pieces."""
    talk = TranscriptBuilder(path.stem, SOURCE, redactor)
    return read_rows(path, talk, partial(_add_thread, talk))


def _add_thread(talk: TranscriptBuilder, thread: Mapping[str, object]) -> None:
    trees = as_list(as_mapping(as_mapping(thread.get("env")).get("initial")).get("trees"))
    talk.set_project(next((as_string(as_mapping(tree).get("uri")) for tree in trees), ""))
    for message in map(as_mapping, as_list(thread.get("messages"))):
        _add_message(talk, message)


def _add_message(talk: TranscriptBuilder, message: Mapping[str, object]) -> None:
    parts = [as_mapping(part) for part in as_list(message.get("content"))]
    if message.get("role") == "user" and not any(part.get("type") == "tool_result" for part in parts):
        talk.add_request(join_text(message.get("content")))
    for part in parts:
        match part.get("type"):
            case "tool_use":
                talk.add_call(as_string(part.get("id")), as_string(part.get("name")), part.get("input"))
            case "tool_result":
                run = as_mapping(part.get("run"))
                status, result = as_string(run.get("status")), run.get("result")
                error = as_string(as_mapping(run.get("error")).get("message")) or as_string(run.get("error"))
                text = error or as_string(result) or as_string(as_mapping(result).get("output"))
                refused = {"status": "rejected"} if status.startswith(("rejected", "cancelled")) else {}
                has_failed = True if status == "error" else None
                talk.add_result(as_string(part.get("toolUseID")), text, has_failed=has_failed, fields=(refused, result))
