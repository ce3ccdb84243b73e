"""Amp: one thread per file; messages consist of texts, tool uses and tool results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from habitus.learning.transcripts.model import Transcript
from habitus.learning.transcripts.reading import (
    TranscriptBuilder,
    extract_message_text,
    list_or_empty,
    mapping_or_empty,
    read_transcript_by_rows,
    string_or_empty,
)
from habitus.redact import PATTERNS_ONLY, Redactor

SOURCE = "amp"


def recognizes_row(row: dict[str, object]) -> bool:
    return (
        isinstance(row.get("messages"), list) and "created" in row and string_or_empty(row.get("id")).startswith("T-")
    )


def read_transcript_pieces(path: Path, redactor: Redactor = PATTERNS_ONLY) -> Iterator[Transcript]:
    """Yield one transcript per file, in pieces."""
    talk = TranscriptBuilder(path.stem, SOURCE, redactor)
    return read_transcript_by_rows(path, talk, partial(_add_thread, talk))


def _add_thread(talk: TranscriptBuilder, thread: Mapping[str, object]) -> None:
    trees = list_or_empty(mapping_or_empty(mapping_or_empty(thread.get("env")).get("initial")).get("trees"))
    talk.set_project_if_unknown(next((string_or_empty(mapping_or_empty(tree).get("uri")) for tree in trees), ""))
    for message in map(mapping_or_empty, list_or_empty(thread.get("messages"))):
        _add_message(talk, message)


def _add_message(talk: TranscriptBuilder, message: Mapping[str, object]) -> None:
    parts = [mapping_or_empty(part) for part in list_or_empty(message.get("content"))]
    if message.get("role") == "user" and not any(part.get("type") == "tool_result" for part in parts):
        talk.add_request(extract_message_text(message.get("content")))
    for part in parts:
        match part.get("type"):
            case "tool_use":
                talk.add_call(string_or_empty(part.get("id")), string_or_empty(part.get("name")), part.get("input"))
            case "tool_result":
                run = mapping_or_empty(part.get("run"))
                status, result = string_or_empty(run.get("status")), run.get("result")
                error = string_or_empty(mapping_or_empty(run.get("error")).get("message")) or string_or_empty(
                    run.get("error")
                )
                text = error or string_or_empty(result) or string_or_empty(mapping_or_empty(result).get("output"))
                refused = {"status": "rejected"} if status.startswith(("rejected", "cancelled")) else {}
                has_failed = True if status == "error" else None
                talk.add_result(
                    string_or_empty(part.get("toolUseID")), text, has_failed=has_failed, fields=(refused, result)
                )
