"""Copilot CLI: `session-state/ID/events.jsonl`, one event per line with its `type` and `data`."""

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

SOURCE = "copilot"
_EVENT_PREFIXES = ("session.", "user.", "assistant.", "tool.")


def looks_like(row: dict[str, object]) -> bool:
    return as_string(row.get("type")).startswith(_EVENT_PREFIXES) and isinstance(row.get("data"), dict)


def read(path: Path, redactor: Redactor = PATTERNS_ONLY) -> Iterator[Transcript]:
    """Yield one transcript per file, in pieces."""
    talk = TranscriptBuilder(path.parent.name if path.stem == "events" else path.stem, SOURCE, redactor)
    return read_rows(path, talk, partial(_add_event, talk))


def _add_event(talk: TranscriptBuilder, row: Mapping[str, object]) -> None:
    kind, data, at = as_string(row.get("type")), as_mapping(row.get("data")), as_string(row.get("timestamp"))[:40]
    match kind:
        case "session.start" | "session.resume":
            talk.set_project(as_string(as_mapping(data.get("context")).get("cwd")) or as_string(data.get("cwd")))
        case "user.message":
            talk.add_request(as_string(data.get("content")), at=at)
        case "assistant.message":
            for request in map(as_mapping, as_list(data.get("toolRequests"))):
                talk.add_call(
                    as_string(request.get("toolCallId")),
                    as_string(request.get("name")),
                    request.get("arguments"),
                    at=at,
                )
        case "abort" | "session.aborted":
            talk.mark_interrupted()
        case _ if kind.startswith("tool.") and ("result" in data or "error" in data):
            _add_result(talk, data, at)


def _add_result(talk: TranscriptBuilder, data: Mapping[str, object], at: str) -> None:
    result, error = data.get("result"), data.get("error")
    text = as_string(as_mapping(error).get("message")) or as_string(error) or as_string(result)
    text = text or join_text(as_mapping(result).get("content")) or join_text(result)
    said = data.get("success")
    has_failed = not said if isinstance(said, bool) else True if error else None
    talk.add_result(
        as_string(data.get("toolCallId")), text, has_failed=has_failed, fields=(as_mapping(error), result), at=at
    )
