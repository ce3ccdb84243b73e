"""Gemini CLI: messages with their tool calls and results, as one JSON document or one message per line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from habitus.learning.transcripts.lines import (
    TranscriptBuilder,
    as_list,
    as_mapping,
    as_string,
    join_text,
    read_objects,
)
from habitus.learning.transcripts.model import Transcript
from habitus.redact import PATTERNS_ONLY, Redactor

SOURCE = "gemini"
_FAILED_BY_STATUS = {"success": False, "error": True}


def looks_like(row: dict[str, object]) -> bool:
    if isinstance(row.get("messages"), list):
        return "sessionId" in row and "projectHash" in row
    return "projectHash" in row or isinstance(row.get("toolCalls"), list) or row.get("type") == "gemini"


def read(path: Path, redactor: Redactor = PATTERNS_ONLY) -> Iterator[Transcript]:
    """Yield one transcript per file, in pieces."""
    unread: Counter[str] = Counter()
    talk = TranscriptBuilder(path.stem, SOURCE, redactor)
    for row in read_objects(path, unread):
        # Only some versions write the directory; the folder's name, set below, replaces it otherwise.
        talk.set_project(next(filter(None, map(as_string, as_list(row.get("directories")))), ""))
        messages = row.get("messages")
        for message in messages if isinstance(messages, list) else (row,):
            _add_message(talk, as_mapping(message))
            yield from talk.take_pieces()
    talk.set_project(path.parent.parent.name if path.parent.name == "chats" else "")
    yield talk.finish(unread)


def _add_message(talk: TranscriptBuilder, message: Mapping[str, object]) -> None:
    at = as_string(message.get("timestamp"))[:40]
    match message.get("type"):
        case "user":
            talk.add_request(join_text(message.get("content")), at=at)
        case "gemini":
            for call in map(as_mapping, as_list(message.get("toolCalls"))):
                _add_call(talk, call, as_string(call.get("timestamp"))[:40] or at)
        case None if "projectHash" in message:
            pass
        case "info" | "error" | "warning":
            pass
        case _:
            talk.draft.unread["unknown message"] += 1


def _add_call(talk: TranscriptBuilder, call: Mapping[str, object], at: str) -> None:
    id, status = as_string(call.get("id")), as_string(call.get("status")).lower()
    talk.add_call(id, as_string(call.get("name")), call.get("args"), at=at)
    talk.add_result(
        id, _join_results(call.get("result")), fields=(call,), has_failed=_FAILED_BY_STATUS.get(status), at=at
    )


def _join_results(value: object) -> str:
    """Return a tool's result: a text, or the `output` or `error` of its function responses."""
    if isinstance(value, str):
        return value
    responses = [
        as_mapping(as_mapping(as_mapping(part).get("functionResponse")).get("response")) for part in as_list(value)
    ]
    said = [as_string(response.get("output")) or as_string(response.get("error")) for response in responses]
    return "\n".join(filter(None, said)) or join_text(value)
