"""Gemini CLI sessions: messages with their tool calls and what came of each, as one JSON document or a line each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from habitus.learning.transcripts.lines import objects
from habitus.learning.transcripts.model import Stop, Transcript, TranscriptDraft, TurnDraft
from habitus.learning.transcripts.results import came_to
from habitus.learning.transcripts.values import mapping, string, text_of
from habitus.redact import PATTERNS_ONLY, Redactor

SOURCE = "gemini"
_FAILED = {"success": False, "error": True}


def looks_like(row: dict[str, object]) -> bool:
    if isinstance(row.get("messages"), list):
        return "sessionId" in row and "projectHash" in row
    return "projectHash" in row or isinstance(row.get("toolCalls"), list) or row.get("type") == "gemini"


def read(path: Path, redactor: Redactor = PATTERNS_ONLY) -> Iterator[Transcript]:
    """One transcript per file, in pieces."""
    unread: Counter[str] = Counter()
    session = _Session(path.stem, redactor)
    if path.parent.name == "chats":
        session.draft.project = path.parent.parent.name
    for row in objects(path, unread):
        session.place(row)
        messages = row.get("messages")
        for message in messages if isinstance(messages, list) else (row,):
            session.take(mapping(message))
            if session.draft.is_large:
                yield session.draft.piece(without=session.draft.turns[-1:])
    session.draft.unread.update(unread)
    yield session.draft.finished()


class _Session:
    def __init__(self, id: str, redactor: Redactor) -> None:
        self.draft = TranscriptDraft(id=id, source=SOURCE, redactor=redactor)
        self._redactor = redactor
        self._stopped: Stop | None = None

    def place(self, row: Mapping[str, object]) -> None:
        """The project by its directory, where a version writes that down; else its folder's name stands for it."""
        if found := next(filter(None, map(string, _listed(row.get("directories")))), ""):
            self.draft.project = self._redactor.redact(found[:1000]).text

    def take(self, message: Mapping[str, object]) -> None:
        at = string(message.get("timestamp"))[:40]
        match message.get("type"):
            case "user":
                turn = self.draft.open()
                self.draft.hear(turn, text_of(message.get("content")), after=self._stopped, at=at)
                self._stopped = None
            case "gemini":
                self._answer(message, at)
            case None if "projectHash" in message:
                pass
            case "info" | "error" | "warning":
                pass
            case _:
                self.draft.unread["unknown message"] += 1

    def _answer(self, message: Mapping[str, object], at: str) -> None:
        turn = self.draft.turn
        turn.round_idx += 1
        for call in map(mapping, _listed(message.get("toolCalls"))):
            self._call(turn, call, string(call.get("timestamp"))[:40] or at)

    def _call(self, turn: TurnDraft, call: Mapping[str, object], at: str) -> None:
        name, id, args = string(call.get("name")) or "unknown", string(call.get("id")), call.get("args")
        text, status = _result(call.get("result")), string(call.get("status")).lower()
        made = self.draft.call(turn, id, name, args, at=at)
        reading = came_to(args, text, fields=(call,), has_failed=_FAILED.get(status))
        if status in ("cancelled", "canceled"):
            self._stopped = Stop.REFUSED
        self.draft.answer(made, reading, text, at=at)


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _result(value: object) -> str:
    """What a tool said: a text, or the answers of functions with `output` or `error` in them."""
    if isinstance(value, str):
        return value
    responses = [mapping(mapping(mapping(part).get("functionResponse")).get("response")) for part in _listed(value)]
    said = [string(response.get("output")) or string(response.get("error")) for response in responses]
    return "\n".join(filter(None, said)) or text_of(value)
