"""Claude Code: JSONL with user and assistant lines, tool_use and tool_result blocks, sidechains and summaries.

The format changes without notice, so every field is optional here. Lines of an unknown type are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from habitus.events import EventKind, build_event
from habitus.learning.transcripts.model import (
    CallAwaitingResult,
    SkillUse,
    Transcript,
    TranscriptDraft,
    TurnDraft,
    UserStopKind,
    detect_user_refusal_and_words,
    infer_call_outcome,
)
from habitus.learning.transcripts.reading import extract_message_text, read_json_objects, string_or_empty
from habitus.redact import PATTERNS_ONLY, Redactor

SOURCE = "claude_code"
_CONVERSATION = frozenset({"user", "assistant"})
_WITHOUT_EVENTS = frozenset(
    {"summary", "system", "progress", "attachment", "file-history-snapshot", "queue-operation", "last-prompt", "mode"}
)
_INTERRUPTED_PREFIX = "[Request interrupted"
_NON_REQUEST_PREFIXES = (
    _INTERRUPTED_PREFIX,
    "<local-command",
    "<command-",
    "<system-reminder",
    "<task-notification",
    "Caveat: ",
)


def recognizes_row(row: dict[str, object]) -> bool:
    kind = string_or_empty(row.get("type"))
    if kind in _CONVERSATION:
        return "message" in row
    return "sessionId" in row or "leafUuid" in row or kind in _WITHOUT_EVENTS


def read_transcript_pieces(path: Path, redactor: Redactor = PATTERNS_ONLY) -> Iterator[Transcript]:
    """Yield one transcript per file, in pieces."""
    unread: Counter[str] = Counter()
    session = _ClaudeCodeSessionReader(path.stem, redactor)
    for row in read_json_objects(path, unread):
        session.add_row(row)
        if session.draft.has_enough_events_for_piece:
            yield session.remove_and_return_finished_turns()
    session.draft.unread.update(unread)
    yield session.finish()


# In lines: a subagent that was silent for longer has ended.
_OPEN_LINES = 1_000
_MAX_SEEN_LINES = 200_000


class _ClaudeCodeSessionReader:
    def __init__(self, session_id: str, redactor: Redactor) -> None:
        self.draft = TranscriptDraft(id=session_id, source=SOURCE, redactor=redactor)
        self._redactor = redactor
        self._main: TurnDraft | None = None
        self._sides: dict[str, TurnDraft] = {}
        # Line → first line of its sidechain.
        self._roots: dict[str, str] = {}
        # Turn → the answer that its current round belongs to.
        self._answers: dict[str, str] = {}
        # Call → the skill that it loads.
        self._skills: dict[str, str] = {}
        self._seen_lines: dict[int, None] = {}  # hashes, oldest first
        # How the user stopped the agent, until their next message.
        self._stopped: UserStopKind | None = None
        # The last directory as written, and redacted.
        self._cwd = "", ""
        self._line = 0

    def add_row(self, row: Mapping[str, object]) -> None:
        """Add a line of the file."""
        self._line += 1
        if self._is_repeated_line(string_or_empty(row.get("uuid"))):
            return
        self.draft.project = self.draft.project or self._get_redacted_directory(row)
        match row.get("type"):
            case "user":
                self._add_user_row(row)
            case "assistant":
                self._add_assistant_row(row)
            case "result":
                self._add_event_if_turn_cap_was_reached(row)
            case str(kind) if kind in _WITHOUT_EVENTS:
                pass
            case _:
                self.draft.unread["unknown line"] += 1

    def _get_redacted_directory(self, row: Mapping[str, object]) -> str:
        """Return the redacted directory of a line; the last one is cached, because it hardly ever changes."""
        given = string_or_empty(row.get("cwd"))[:1000]
        if given != self._cwd[0]:
            self._cwd = given, self._redactor.redact(given).text
        return self._cwd[1]

    def _is_repeated_line(self, uuid: str) -> bool:
        """Whether the line was seen before: a resumed session repeats the lines of the old one."""
        if not uuid:
            return False
        if hash(uuid) in self._seen_lines:
            return True
        self._seen_lines[hash(uuid)] = None
        if len(self._seen_lines) > _MAX_SEEN_LINES:
            del self._seen_lines[next(iter(self._seen_lines))]
        return False

    def remove_and_return_finished_turns(self) -> Transcript:
        """Return the turns that have ended, and drop all state about them."""
        going_on = [
            turn for turn in self.draft.turns if turn is self._main or self._line - turn.last_line < _OPEN_LINES
        ]
        piece = self.draft.remove_and_return_finished_turns(without=going_on)
        self.draft.calls = {id: call for id, call in self.draft.calls.items() if not call.turn.is_handed_on}
        self._sides = {root: turn for root, turn in self._sides.items() if not turn.is_handed_on}
        self._roots = {line: root for line, root in self._roots.items() if root in self._sides}
        self._answers = {turn.id: self._answers[turn.id] for turn in going_on if turn.id in self._answers}
        return piece

    def finish(self) -> Transcript:
        for call in self.draft.calls.values():
            if not call.is_answered:
                self._record_skill_use(call, None)
        return self.draft.finish()

    def _add_user_row(self, row: Mapping[str, object]) -> None:
        blocks = self._list_content_blocks(row)
        is_asked = not row.get("isSidechain") and (words := _extract_user_request_of_line(row, blocks))
        if is_asked:
            self._main = self.draft.open_turn()
        turn = self._get_or_open_turn_of_line(row)
        if is_asked:
            self.draft.add_utterance(turn, words, after=self._stopped, at=_read_timestamp(row))
            self._stopped = None
        elif any(string_or_empty(block.get("text")).startswith(_INTERRUPTED_PREFIX) for block in blocks):
            self._stopped = self._stopped or UserStopKind.INTERRUPTED
        for block in blocks:
            if block.get("type") == "tool_result":
                self._add_result(turn, row, block)

    def _add_assistant_row(self, row: Mapping[str, object]) -> None:
        turn = self._get_or_open_turn_of_line(row)
        message = row.get("message")
        answer = string_or_empty(message.get("id")) if isinstance(message, Mapping) else ""
        # One answer may be spread over several lines.
        if not answer or self._answers.get(turn.id) != answer:
            self._answers[turn.id] = answer
            turn.round_idx += 1
        for block in self._list_content_blocks(row):
            if block.get("type") in ("tool_use", "server_tool_use"):
                self._add_call(turn, row, block)

    def _add_call(self, turn: TurnDraft, row: Mapping[str, object], block: Mapping[str, object]) -> None:
        call_id, name = string_or_empty(block.get("id")), string_or_empty(block.get("name")) or "unknown"
        if call_id and call_id in self.draft.calls:
            return
        args = block.get("input")
        if name == "Skill":
            self._skills[call_id] = _read_skill_name(args, self._redactor)
        self.draft.add_call(turn, call_id, name, args, at=_read_timestamp(row), cwd=self._get_redacted_directory(row))

    def _record_skill_use(self, call: CallAwaitingResult, success: bool | None) -> None:
        if skill := self._skills.pop(call.id, ""):
            use = SkillUse(skill=skill, turn=call.turn.id, round_idx=call.round_idx, success=success)
            self.draft.skill_uses.append(use)

    def _add_result(self, turn: TurnDraft, row: Mapping[str, object], block: Mapping[str, object]) -> None:
        call = self.draft.calls.get(string_or_empty(block.get("tool_use_id")))
        if call is None:
            self.draft.unread["result without a call"] += 1
            return
        if call.is_answered:
            return
        text = extract_message_text(block.get("content"))
        structured = row.get("toolUseResult")
        reading = infer_call_outcome(
            call.args,
            text,
            fields=(structured, block, row),
            has_failed=block.get("is_error") is True,
            spoken=(string_or_empty(structured),),
        )
        if reading.success is None:
            self._record_user_refusal(turn, row, block, text)
        self.draft.add_result(call, reading, text, at=_read_timestamp(row))
        self._record_skill_use(call, reading.success)

    def _record_user_refusal(
        self, turn: TurnDraft, row: Mapping[str, object], block: Mapping[str, object], text: str
    ) -> None:
        structured = row.get("toolUseResult")
        is_person, words = detect_user_refusal_and_words(row, block, texts=(text, string_or_empty(structured)))
        if is_person and words:
            self.draft.add_utterance(turn, words, after=UserStopKind.REFUSED, at=_read_timestamp(row))
        elif is_person:
            self._stopped = UserStopKind.REFUSED

    def _add_event_if_turn_cap_was_reached(self, row: Mapping[str, object]) -> None:
        if row.get("subtype") == "error_max_turns":
            turn = self._get_or_open_turn_of_line(row)
            self.draft.add_event(turn, build_event(EventKind.CAP_EXHAUSTED, {}, round_idx=turn.round_idx))

    def _list_content_blocks(self, row: Mapping[str, object]) -> list[Mapping[str, object]]:
        message = row.get("message")
        content = message.get("content") if isinstance(message, Mapping) else None
        if isinstance(content, str):
            return [{"type": "text", "text": content}]
        if not isinstance(content, list):
            self.draft.unread["message without content"] += 1
            return []
        return [block for block in content if isinstance(block, Mapping)]

    def _get_or_open_turn_of_line(self, row: Mapping[str, object]) -> TurnDraft:
        if row.get("isSidechain"):
            turn = self._get_or_open_sidechain_turn(row)
        else:
            self._main = turn = self._main or self.draft.open_turn()
        turn.last_line = self._line
        return turn

    def _get_or_open_sidechain_turn(self, row: Mapping[str, object]) -> TurnDraft:
        uuid, parent = string_or_empty(row.get("uuid")), string_or_empty(row.get("parentUuid"))
        root = string_or_empty(row.get("agentId")) or self._roots.get(parent) or uuid
        self._roots[uuid] = root
        if root not in self._sides:
            self._sides[root] = turn = self.draft.open_turn(is_sidechain=True)
            turn.conversation = string_or_empty(row.get("sessionId"))
        return self._sides[root]


def _extract_user_request_of_line(row: Mapping[str, object], blocks: list[Mapping[str, object]]) -> str:
    """Return the user's request in this line; empty if it has none."""
    if row.get("isMeta") or row.get("isCompactSummary") or any(block.get("type") == "tool_result" for block in blocks):
        return ""
    origin = row.get("origin")
    if isinstance(origin, Mapping) and origin.get("kind") not in (None, "human"):
        return ""
    texts = [string_or_empty(block.get("text")) for block in blocks if block.get("type") == "text"]
    return "\n".join(text for text in texts if text.strip() and not text.lstrip().startswith(_NON_REQUEST_PREFIXES))


def _read_timestamp(row: Mapping[str, object]) -> str:
    return string_or_empty(row.get("timestamp"))[:40]


def _read_skill_name(args: object, redactor: Redactor) -> str:
    """Return the name of the loaded skill.

    Versions call the argument `skill` or `command`, and it may carry its plugin.
    """
    if not isinstance(args, Mapping):
        return "unknown"
    name = (
        string_or_empty(args.get("skill")) or string_or_empty(args.get("command")) or string_or_empty(args.get("name"))
    )
    return redactor.redact(name.strip().lstrip("/").split(" ")[0][:200]).text or "unknown"
