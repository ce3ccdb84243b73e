"""Copilot CLI: `session-state/ID/events.jsonl`, one event per line with its `type` and `data`."""

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

SOURCE = "copilot"
_EVENT_PREFIXES = ("session.", "user.", "assistant.", "tool.")


def recognizes_row(row: dict[str, object]) -> bool:
    return string_or_empty(row.get("type")).startswith(_EVENT_PREFIXES) and isinstance(row.get("data"), dict)


def read_transcript_pieces(path: Path, redactor: Redactor = PATTERNS_ONLY) -> Iterator[Transcript]:
    """Yield one transcript per file, in pieces."""
    talk = TranscriptBuilder(path.parent.name if path.stem == "events" else path.stem, SOURCE, redactor)
    return read_transcript_by_rows(path, talk, partial(_add_event, talk))


def _add_event(talk: TranscriptBuilder, row: Mapping[str, object]) -> None:
    kind, data, at = (
        string_or_empty(row.get("type")),
        mapping_or_empty(row.get("data")),
        string_or_empty(row.get("timestamp"))[:40],
    )
    match kind:
        case "session.start" | "session.resume":
            talk.set_project_if_unknown(
                string_or_empty(mapping_or_empty(data.get("context")).get("cwd")) or string_or_empty(data.get("cwd"))
            )
        case "user.message":
            talk.add_request(string_or_empty(data.get("content")), at=at)
        case "assistant.message":
            for request in map(mapping_or_empty, list_or_empty(data.get("toolRequests"))):
                talk.add_call(
                    string_or_empty(request.get("toolCallId")),
                    string_or_empty(request.get("name")),
                    request.get("arguments"),
                    at=at,
                )
        case "abort" | "session.aborted":
            talk.mark_interrupted()
        case _ if kind.startswith("tool.") and ("result" in data or "error" in data):
            _add_result(talk, data, at)


def _add_result(talk: TranscriptBuilder, data: Mapping[str, object], at: str) -> None:
    result, error = data.get("result"), data.get("error")
    text = string_or_empty(mapping_or_empty(error).get("message")) or string_or_empty(error) or string_or_empty(result)
    text = text or extract_message_text(mapping_or_empty(result).get("content")) or extract_message_text(result)
    said = data.get("success")
    has_failed = not said if isinstance(said, bool) else True if error else None
    talk.add_result(
        string_or_empty(data.get("toolCallId")),
        text,
        has_failed=has_failed,
        fields=(mapping_or_empty(error), result),
        at=at,
    )
