"""Pi: one entry per line, each with its parent; only the branch that ends in the last entry counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from habitus.learning.transcripts.lines import Talk, as_list, mapping, objects, string, text_of
from habitus.learning.transcripts.model import Transcript
from habitus.redact import PATTERNS_ONLY, Redactor

SOURCE = "pi"


def looks_like(row: dict[str, object]) -> bool:
    if row.get("type") == "session":
        return "cwd" in row and "id" in row
    return "parentId" in row and isinstance(row.get("message"), dict) and "sessionId" not in row


def read(path: Path, redactor: Redactor = PATTERNS_ONLY) -> Iterator[Transcript]:
    """Yield one transcript per file, in pieces."""
    unread: Counter[str] = Counter()
    live = _live(path)
    talk = Talk(path.stem, SOURCE, redactor)
    for row in objects(path, unread):
        if row.get("type") == "session":
            talk.locate(string(row.get("cwd")))
        elif row.get("type") == "message" and (not live or string(row.get("id")) in live):
            _take(talk, mapping(row.get("message")), string(row.get("timestamp"))[:40])
            yield from talk.pieces()
    yield talk.finish(unread)


def _live(path: Path) -> set[str]:
    """Return the ids of the last entry and its ancestors.

    Empty if the entries have no parents, as in older versions.
    """
    parents: dict[str, str] = {}
    for row in objects(path, Counter()):
        if id := string(row.get("id")):
            parents[id] = string(row.get("parentId"))
    found: set[str] = set()
    at = next(reversed(parents), "")
    while at and at not in found:
        found.add(at)
        at = parents.get(at, "")
    return found if any(parents.values()) else set()


def _take(talk: Talk, message: Mapping[str, object], at: str) -> None:
    content = message.get("content")
    match message.get("role"):
        case "user":
            talk.hear(text_of(content), at=at)
        case "assistant":
            for part in map(mapping, as_list(content)):
                if part.get("type") == "toolCall":
                    talk.call(string(part.get("id")), string(part.get("name")), part.get("arguments"), at=at)
            if message.get("stopReason") == "aborted":
                talk.stop()
        case "toolResult":
            failed = message.get("isError")
            id = string(message.get("toolCallId"))
            talk.answer(id, text_of(content), has_failed=failed if isinstance(failed, bool) else None, at=at)
