"""Amp: one thread per file; messages consist of texts, tool uses and tool results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from habitus.learning.transcripts.lines import Talk, as_list, mapping, objects, string, text_of
from habitus.learning.transcripts.model import Transcript
from habitus.redact import PATTERNS_ONLY, Redactor

SOURCE = "amp"


def looks_like(row: dict[str, object]) -> bool:
    return isinstance(row.get("messages"), list) and "created" in row and string(row.get("id")).startswith("T-")


def read(path: Path, redactor: Redactor = PATTERNS_ONLY) -> Iterator[Transcript]:
    """Yield one transcript per file, in pieces."""
    unread: Counter[str] = Counter()
    talk = Talk(path.stem, SOURCE, redactor)
    for thread in objects(path, unread):
        trees = as_list(mapping(mapping(thread.get("env")).get("initial")).get("trees"))
        talk.locate(next((string(mapping(tree).get("uri")) for tree in trees), ""))
        for message in map(mapping, as_list(thread.get("messages"))):
            _take(talk, message)
            yield from talk.pieces()
    yield talk.finish(unread)


def _take(talk: Talk, message: Mapping[str, object]) -> None:
    parts = [mapping(part) for part in as_list(message.get("content"))]
    if message.get("role") == "user" and not any(part.get("type") == "tool_result" for part in parts):
        talk.hear(text_of(message.get("content")))
    for part in parts:
        match part.get("type"):
            case "tool_use":
                talk.call(string(part.get("id")), string(part.get("name")), part.get("input"))
            case "tool_result":
                run = mapping(part.get("run"))
                status, result = string(run.get("status")), run.get("result")
                error = string(mapping(run.get("error")).get("message")) or string(run.get("error"))
                text = error or string(result) or string(mapping(result).get("output"))
                refused = {"status": "rejected"} if status.startswith(("rejected", "cancelled")) else {}
                has_failed = True if status == "error" else None
                talk.answer(string(part.get("toolUseID")), text, has_failed=has_failed, fields=(refused, result))
