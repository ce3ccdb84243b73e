"""Gemini CLI: messages with their tool calls and results, as one JSON document or one message per line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from habitus.learning.transcripts.lines import Talk, as_list, mapping, objects, string, text_of
from habitus.learning.transcripts.model import Transcript
from habitus.redact import PATTERNS_ONLY, Redactor

SOURCE = "gemini"
_FAILED = {"success": False, "error": True}


def looks_like(row: dict[str, object]) -> bool:
    if isinstance(row.get("messages"), list):
        return "sessionId" in row and "projectHash" in row
    return "projectHash" in row or isinstance(row.get("toolCalls"), list) or row.get("type") == "gemini"


def read(path: Path, redactor: Redactor = PATTERNS_ONLY) -> Iterator[Transcript]:
    """Yield one transcript per file, in pieces."""
    unread: Counter[str] = Counter()
    talk = Talk(path.stem, SOURCE, redactor)
    for row in objects(path, unread):
        # Only some versions write the directory; the folder's name, set below, replaces it otherwise.
        talk.locate(next(filter(None, map(string, as_list(row.get("directories")))), ""))
        messages = row.get("messages")
        for message in messages if isinstance(messages, list) else (row,):
            _take(talk, mapping(message))
            yield from talk.pieces()
    talk.locate(path.parent.parent.name if path.parent.name == "chats" else "")
    yield talk.finish(unread)


def _take(talk: Talk, message: Mapping[str, object]) -> None:
    at = string(message.get("timestamp"))[:40]
    match message.get("type"):
        case "user":
            talk.hear(text_of(message.get("content")), at=at)
        case "gemini":
            for call in map(mapping, as_list(message.get("toolCalls"))):
                _call(talk, call, string(call.get("timestamp"))[:40] or at)
        case None if "projectHash" in message:
            pass
        case "info" | "error" | "warning":
            pass
        case _:
            talk.draft.unread["unknown message"] += 1


def _call(talk: Talk, call: Mapping[str, object], at: str) -> None:
    id, status = string(call.get("id")), string(call.get("status")).lower()
    talk.call(id, string(call.get("name")), call.get("args"), at=at)
    talk.answer(id, _result(call.get("result")), fields=(call,), has_failed=_FAILED.get(status), at=at)


def _result(value: object) -> str:
    """Return a tool's result: a text, or the `output` or `error` of its function responses."""
    if isinstance(value, str):
        return value
    responses = [mapping(mapping(mapping(part).get("functionResponse")).get("response")) for part in as_list(value)]
    said = [string(response.get("output")) or string(response.get("error")) for response in responses]
    return "\n".join(filter(None, said)) or text_of(value)
