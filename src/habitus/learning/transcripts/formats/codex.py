"""Codex: rollout files of `{timestamp, type, payload}` lines with Responses API items, events and session data.

Results have no flag for failure; their first lines state the exit code. Files from before September 2025 lack the
envelope and are read as OpenAI items.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from habitus.learning.transcripts.lines import as_mapping, as_string, join_text, read_objects
from habitus.learning.transcripts.model import (
    Transcript,
    TranscriptDraft,
    UserStopKind,
    infer_outcome,
    parse_user_refusal,
)
from habitus.redact import PATTERNS_ONLY, Redactor

SOURCE = "codex"
_KINDS = frozenset({"session_meta", "turn_context", "response_item", "event_msg", "compacted"})
_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call"})
_RESULTS = frozenset({"function_call_output", "custom_tool_call_output", "local_shell_call_output"})


def looks_like(row: dict[str, object]) -> bool:
    return as_string(row.get("type")) in _KINDS and isinstance(row.get("payload"), dict)


def read(path: Path, redactor: Redactor = PATTERNS_ONLY) -> Iterator[Transcript]:
    """Yield one transcript per file, in pieces."""
    unread: Counter[str] = Counter()
    rollout = _CodexRollout(path.stem, redactor)
    for row in read_objects(path, unread):
        rollout.add_row(row)
        if rollout.draft.is_large:
            yield rollout.draft.take_piece(without=rollout.draft.turns[-1:])
    rollout.draft.unread.update(unread)
    yield rollout.draft.finish()


class _CodexRollout:
    def __init__(self, id: str, redactor: Redactor) -> None:
        self.draft = TranscriptDraft(id=id, source=SOURCE, redactor=redactor)
        self._redactor = redactor
        self._cwd = ""
        self._stopped: UserStopKind | None = None

    def add_row(self, row: Mapping[str, object]) -> None:
        payload, at = as_mapping(row.get("payload")), as_string(row.get("timestamp"))[:40]
        match row.get("type"):
            case "session_meta" | "turn_context":
                self._set_directory(as_string(payload.get("cwd")))
            case "response_item":
                self._add_item(payload, at)
            case "event_msg":
                self._add_event(payload, at)
            case "compacted" | "world_state" | "token_usage_record":
                pass
            case _:
                self.draft.unread["unknown line"] += 1

    def _set_directory(self, cwd: str) -> None:
        if cwd:
            self._cwd = self._redactor.redact(cwd[:1000]).text
            self.draft.project = self.draft.project or self._cwd

    def _add_event(self, payload: Mapping[str, object], at: str) -> None:
        match payload.get("type"):
            case "user_message":
                self._add_request(as_string(payload.get("message")), at)
            case "item_completed" if as_mapping(payload.get("item")).get("type") == "UserMessage":
                self._add_request(join_text(as_mapping(payload.get("item")).get("content")), at)
            case "turn_aborted":
                self._stopped = self._stopped or UserStopKind.INTERRUPTED

    def _add_request(self, words: str, at: str) -> None:
        self.draft.add_utterance(self.draft.open_turn(), words, after=self._stopped, at=at)
        self._stopped = None

    def _add_item(self, item: Mapping[str, object], at: str) -> None:
        kind = item.get("type")
        if kind in _CALLS:
            self._add_call(item, at)
        elif kind in _RESULTS:
            self._add_result(item, at)

    def _add_call(self, item: Mapping[str, object], at: str) -> None:
        turn, args = self.draft.turn, item.get("arguments") or item.get("input") or item.get("action")
        turn.round_idx += 1
        name = as_string(item.get("name")) or "shell"
        self.draft.add_call(turn, as_string(item.get("call_id")), name, args, at=at, cwd=self._cwd)

    def _add_result(self, item: Mapping[str, object], at: str) -> None:
        call = self.draft.calls.pop(as_string(item.get("call_id")), None)
        if call is None:
            self.draft.unread["result without a call"] += 1
            return
        output = item.get("output")
        text = join_text(as_mapping(output).get("content")) if isinstance(output, dict) else join_text(output)
        reading = infer_outcome(call.args, text, fields=(item, output))
        if reading.success is None and parse_user_refusal(item, texts=(text,))[0]:
            self._stopped = UserStopKind.REFUSED
        self.draft.add_result(call, reading, text, at=at)
