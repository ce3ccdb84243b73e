"""Copilot CLI: `session-state/ID/events.jsonl`, one event per line with its `type` and `data`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from habitus.learning.transcripts.lines import Talk, as_list, mapping, objects, string, text_of
from habitus.learning.transcripts.model import Transcript
from habitus.redact import PATTERNS_ONLY, Redactor

SOURCE = "copilot"
_KINDS = ("session.", "user.", "assistant.", "tool.")


def looks_like(row: dict[str, object]) -> bool:
    return string(row.get("type")).startswith(_KINDS) and isinstance(row.get("data"), dict)


def read(path: Path, redactor: Redactor = PATTERNS_ONLY) -> Iterator[Transcript]:
    """Yield one transcript per file, in pieces."""
    unread: Counter[str] = Counter()
    talk = Talk(path.parent.name if path.stem == "events" else path.stem, SOURCE, redactor)
    for row in objects(path, unread):
        _take(talk, string(row.get("type")), mapping(row.get("data")), string(row.get("timestamp"))[:40])
        yield from talk.pieces()
    yield talk.finish(unread)


def _take(talk: Talk, kind: str, data: Mapping[str, object], at: str) -> None:
    match kind:
        case "session.start" | "session.resume":
            talk.locate(string(mapping(data.get("context")).get("cwd")) or string(data.get("cwd")))
        case "user.message":
            talk.hear(string(data.get("content")), at=at)
        case "assistant.message":
            for request in map(mapping, as_list(data.get("toolRequests"))):
                talk.call(
                    string(request.get("toolCallId")), string(request.get("name")), request.get("arguments"), at=at
                )
        case "abort" | "session.aborted":
            talk.stop()
        case _ if kind.startswith("tool.") and ("result" in data or "error" in data):
            _answer(talk, data, at)


def _answer(talk: Talk, data: Mapping[str, object], at: str) -> None:
    result, error = data.get("result"), data.get("error")
    text = string(mapping(error).get("message")) or string(error) or string(result)
    text = text or text_of(mapping(result).get("content")) or text_of(result)
    said = data.get("success")
    has_failed = not said if isinstance(said, bool) else True if error else None
    talk.answer(string(data.get("toolCallId")), text, has_failed=has_failed, fields=(mapping(error), result), at=at)
