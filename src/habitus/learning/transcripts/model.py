"""Transcripts as readers return them: turns with calls and their outcomes, and counts of what could not be read."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from habitus.events import AgentEvent, build_tool_call_event, build_tool_result_event, get_shell_command_from_arguments
from habitus.redact import PATTERNS_ONLY, Redactor


class UserStopKind(StrEnum):
    """How a user stopped an agent."""

    REFUSED = "refused"
    INTERRUPTED = "interrupted"
    UNDONE = "undone"


@dataclass(frozen=True, kw_only=True, slots=True)
class UserUtterance:
    """A message of the user, and how they stopped the agent before it, if they did."""

    text: str
    after: UserStopKind | None = None
    at: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscriptTurn:
    """One request and everything done for it; the window that detectors examine."""

    id: str
    events: tuple[AgentEvent, ...]
    utterances: tuple[UserUtterance, ...] = ()  # the request and later messages of the turn
    # The work of a subagent.
    is_sidechain: bool = False
    # The id of the session it is part of, if that is not the transcript's.
    conversation: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillUse:
    """A use of a skill by another agent."""

    skill: str
    turn: str
    round_idx: int
    success: bool | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Transcript:
    """A transcript, or a piece of one, of finished turns."""

    id: str
    source: str  # the format it was read from
    turns: tuple[TranscriptTurn, ...] = ()
    skill_uses: tuple[SkillUse, ...] = ()
    unread: Mapping[str, int] = field(default_factory=dict)  # reason → number of lines or blocks
    # The format does not say what failed, so success is inferred from the shape of results.
    is_weak: bool = False
    project: str = ""  # the working directory, if known
    # A piece: more turns of the same transcript follow.
    goes_on: bool = False

    @property
    def event_count(self) -> int:
        """The number of events in all turns."""
        return sum(len(turn.events) for turn in self.turns)


# After this many events the finished turns are handed on.
PIECE_EVENTS = 5_000
MAX_UTTERANCE_CHARS = 1_000  # characters
# Events; later ones are counted, not stored.
MAX_TURN_EVENTS = 20_000
MAX_OPEN_CALLS = 10_000


@dataclass(kw_only=True, slots=True)
class CallAwaitingResult:
    """A call whose result may still come."""

    id: str
    name: str
    args: object
    turn: TurnDraft
    round_idx: int
    is_answered: bool = False


@dataclass(slots=True)
class TranscriptDraft:
    """A transcript while it is read: the turns that were not handed on yet."""

    id: str
    source: str
    redactor: Redactor = PATTERNS_ONLY
    project: str = ""
    conversation: str = ""  # of the turns that are opened
    calls: dict[str, CallAwaitingResult] = field(default_factory=dict)
    turns: list[TurnDraft] = field(default_factory=list)
    skill_uses: list[SkillUse] = field(default_factory=list)
    unread: Counter[str] = field(default_factory=Counter)
    opened_count: int = 0  # turns so far
    held_events: int = 0  # events in the turns that are not handed on
    large_from: int = PIECE_EVENTS

    def open_turn(self, *, id: str | None = None, is_sidechain: bool = False) -> TurnDraft:
        """Open a new turn and return it."""
        self.opened_count += 1
        name = str(self.opened_count) if id is None else id
        turn = TurnDraft(id=name, is_sidechain=is_sidechain, conversation=self.conversation)
        self.turns.append(turn)
        return turn

    @property
    def turn(self) -> TurnDraft:
        """The last turn; a new one if there is none."""
        return self.turns[-1] if self.turns else self.open_turn()

    def add_call(
        self, turn: TurnDraft, id: str, name: str, args: object, *, at: str = "", cwd: str = ""
    ) -> CallAwaitingResult:
        """Add a tool call to a turn."""
        self.calls[id] = made = CallAwaitingResult(id=id, name=name, args=args, turn=turn, round_idx=turn.round_idx)
        # Calls that never get a result would otherwise pile up.
        if len(self.calls) > MAX_OPEN_CALLS:
            del self.calls[next(iter(self.calls))]
        told = build_tool_call_event(
            name, args, round_idx=turn.round_idx, call_id=id, at=at, cwd=cwd, redactor=self.redactor
        )
        self.add_event(turn, told)
        return made

    def add_result(
        self, call: CallAwaitingResult, reading: CallOutcome, text: str | None, *, at: str = "", weak: bool = False
    ) -> None:
        """Add the result of a call; `text` is None if it is unknown."""
        call.is_answered = True
        told = build_tool_result_event(
            call.name,
            success=reading.success,
            error=reading.error,
            result=text,
            round_idx=call.round_idx,
            call_id=call.id,
            at=at,
            weak=weak,
            redactor=self.redactor,
        )
        self.add_event(call.turn, told)

    def add_utterance(self, turn: TurnDraft, text: str, *, after: UserStopKind | None = None, at: str = "") -> None:
        """Add a message of the user to a turn."""
        clean = self.redactor.redact(text[: MAX_UTTERANCE_CHARS * 4].strip()).text[:MAX_UTTERANCE_CHARS]
        if clean and not turn.is_handed_on:
            turn.said.append(UserUtterance(text=clean, after=after, at=at))

    def add_event(self, turn: TurnDraft, event: AgentEvent) -> None:
        """Add an event to a turn; it is only counted if the turn was handed on or is full."""
        if turn.is_handed_on:
            self.unread["result long after its turn"] += 1
        elif len(turn.events) >= MAX_TURN_EVENTS:
            self.unread["event of an endless turn"] += 1
        else:
            turn.events.append(event)
            self.held_events += 1

    @property
    def has_enough_events_for_piece(self) -> bool:
        """Whether enough events have come together for a piece."""
        return self.held_events >= self.large_from

    def remove_and_return_finished_turns(self, *, without: Collection[TurnDraft]) -> Transcript:
        """Return the finished turns and remove them; those in `without` stay."""
        ids = {id(turn) for turn in without}
        return self._build_piece([turn for turn in self.turns if id(turn) not in ids], goes_on=True)

    def finish(self) -> Transcript:
        """Return all remaining turns as the last piece."""
        return self._build_piece(self.turns, goes_on=False)

    def _build_piece(self, ended: list[TurnDraft], *, goes_on: bool) -> Transcript:
        names = {turn.id for turn in ended}
        uses = [use for use in self.skill_uses if use.turn in names or not goes_on]
        turns = tuple(turn.finish() for turn in ended if turn.events or turn.said)
        transcript = Transcript(
            id=self.id,
            source=self.source,
            turns=turns,
            skill_uses=tuple(uses),
            unread=dict(self.unread),
            is_weak=any(event.detail.get("weak") is True for turn in turns for event in turn.events),
            project=self.project,
            goes_on=goes_on,
        )
        for turn in ended:
            turn.is_handed_on = True
            self.held_events -= len(turn.events)
            turn.events = []
        self.turns = [turn for turn in self.turns if not turn.is_handed_on]
        self.skill_uses = [use for use in self.skill_uses if use not in uses]
        self.unread.clear()
        # Turns that stay count again from here, or every later line would make another piece.
        self.large_from = self.held_events + PIECE_EVENTS
        return transcript


@dataclass(slots=True)
class TurnDraft:
    """A turn while it is read."""

    id: str
    is_sidechain: bool = False
    conversation: str = ""
    events: list[AgentEvent] = field(default_factory=list)
    said: list[UserUtterance] = field(default_factory=list)
    round_idx: int = 0
    # The line that last belonged to it.
    last_line: int = 0
    is_handed_on: bool = False

    def finish(self) -> TranscriptTurn:
        """Return the turn."""
        return TranscriptTurn(
            id=self.id,
            events=tuple(self.events),
            utterances=tuple(self.said),
            is_sidechain=self.is_sidechain,
            conversation=self.conversation,
        )


def join_transcript_pieces(pieces: Sequence[Transcript]) -> Transcript:
    """Join the pieces of a transcript."""
    unread: Counter[str] = Counter()
    for piece in pieces:
        unread.update(piece.unread)
    return replace(
        pieces[-1],
        turns=tuple(turn for piece in pieces for turn in piece.turns),
        skill_uses=tuple(use for piece in pieces for use in piece.skill_uses),
        unread=dict(unread),
        is_weak=any(piece.is_weak for piece in pieces),
        project=next((piece.project for piece in pieces if piece.project), ""),
    )


_REFUSAL_TEXT = re.compile(
    r"(?:<tool_use_error>|error:|\s)*(?:"
    r"the user doesn'?t want to (?:proceed with this tool use|take this action)"
    r"|user rejected tool use|the user rejected permission to use this specific tool call"
    r"|permission (?:to use|for this)|claude requested permissions|this command requires approval"
    r"|\w+:\w+ hook error|[\w ]{0,40}blocked by pretooluse hook"
    r"|\[request interrupted by user"
    r"|[\w ]{0,40}\b(?:rejected|aborted|cancelled|declined) by (?:the )?user|user (?:rejected|cancelled) mcp"
    r"|<turn_aborted>|tool execution aborted"
    r")",
    re.IGNORECASE,
)
_DENIAL_FIELDS = ("toolDenialKind", "tool_denial_kind", "denialKind")
_REFUSAL_FIELDS = frozenset((*_DENIAL_FIELDS, "interrupted", "status"))
_REFUSED_STATUSES = frozenset({"cancelled", "canceled", "declined", "denied", "rejected", "aborted"})


def is_call_refused(*fields: Mapping[str, object], texts: Iterable[str]) -> bool:
    """Whether a user, a rule or a hook kept the call from running or stopped it, which says nothing about the tool."""
    for given in fields:
        if _REFUSAL_FIELDS.isdisjoint(given):
            continue
        status = given.get("status")
        is_denied = any(given.get(key) for key in _DENIAL_FIELDS) or given.get("interrupted") is True
        if is_denied or (isinstance(status, str) and status.lower() in _REFUSED_STATUSES):
            return True
    return any(_REFUSAL_TEXT.match(text.replace("’", "'")) for text in texts)


_USER_DENIAL_KINDS = frozenset({"user-rejected", "interrupted"})
_USER_REFUSAL_TEXT = re.compile(
    r"(?:<tool_use_error>|error:|\s)*(?:the user doesn'?t want to|user rejected|the user rejected"
    r"|[\w ]{0,40}\b(?:rejected|declined) by (?:the )?user|user (?:rejected|cancelled) mcp)",
    re.IGNORECASE,
)
_USER_REASON = re.compile(r"(?:the user said|with the following feedback):\s*(.+)", re.IGNORECASE | re.DOTALL)


def detect_user_refusal_and_words(*fields: Mapping[str, object], texts: Iterable[str]) -> tuple[bool, str]:
    """Return whether a user refused the call, and their words; rules and hooks don't count."""
    kinds = [str(given[key]) for given in fields for key in _DENIAL_FIELDS if given.get(key)]
    spoken = [text.replace("’", "'") for text in texts]
    is_person = (
        any(kind in _USER_DENIAL_KINDS for kind in kinds) if kinds else any(map(_USER_REFUSAL_TEXT.match, spoken))
    )
    words = next((found[1] for text in spoken if (found := _USER_REASON.search(text))), "") if is_person else ""
    return is_person, words.removesuffix("</tool_use_error>").strip()


_COMPARE_PROGRAMS = frozenset(("diff", "cmp"))
_SEARCH_PROGRAMS = frozenset(("grep", "egrep", "fgrep", "zgrep", "rg", "ag", "ack", "pgrep", "find", "fd"))
LOOKUP_PROGRAMS = _COMPARE_PROGRAMS | _SEARCH_PROGRAMS | {"test", "[", "[[", "which", "type", "command"}
_COMMAND_PREFIX = re.compile(r"\s*(?:[A-Za-z_]\w*=\S*\s+|(?:sudo|time|env|xargs|git)\s+|[({!]\s*)*")


def has_exited_one_without_failure(args: object, code: int, output: str) -> bool:
    """Whether a search or comparison exited with 1 because of its result, and not because it failed."""
    if code != 1:
        return False
    programs = {_get_program(part) for part in _list_exit_deciding_parts(get_shell_command_from_arguments(args))}
    return bool(programs & (_COMPARE_PROGRAMS if output else LOOKUP_PROGRAMS))


def _list_exit_deciding_parts(command: str) -> list[str]:
    """Return the parts of a command that can decide its exit code: the last one, and those that `&&` joins to it."""
    last = re.split(r";|\n|\|\|", command.strip().rstrip(";"))[-1]
    return [part.rpartition("|")[2] for part in last.split("&&")]


def _get_program(part: str) -> str:
    rest = _COMMAND_PREFIX.sub("", part, count=1).split()
    return rest[0].rpartition("/")[2] if rest else ""


_LEADING_ERROR = re.compile(r"(?:Traceback \(most recent call last\):|(?:[A-Za-z_][\w.]{0,80})?(?:Error|Exception): )")
_FAILED_STATUS = frozenset({"error", "failed", "failure"})
_EXIT_CODES = ("exit_code", "exitCode", "returncode", "return_code")
_EXIT_CODE_FIELDS = frozenset((*_EXIT_CODES, "metadata"))
_FAILED_FLAGS, _WORKED_FLAGS = ("is_error", "isError"), ("success", "ok")
# Most results have none of these, so they are skipped quickly.
_OUTCOME_FIELDS = _EXIT_CODE_FIELDS | {*_FAILED_FLAGS, *_WORKED_FLAGS, "error", "status"}
_EXIT_LINE = re.compile(r"(?:error:\s*)?(?:process exited with|exit) code:? (-?\d{1,10})", re.IGNORECASE)
# Lines that an agent may put before a command's output.
_MAX_HEAD_LINES = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class CallOutcome:
    """Whether a call succeeded; None if it was refused or stopped, which says nothing about the tool."""

    success: bool | None
    error: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class _CommandExit:
    """The exit code of a command, and its output."""

    code: int
    output: str


def infer_call_outcome(
    args: object,
    text: str,
    *,
    fields: Sequence[object] = (),
    has_failed: bool | None = None,
    spoken: Sequence[str] = (),
) -> CallOutcome:
    """Infer the outcome of a call from its result.

    `text` is the result and `has_failed` the flag of a format that has one; `fields` are objects beside it, and
    `spoken` are other texts in which a refusal may stand.
    """
    objects = [given for given in fields if isinstance(given, Mapping)]
    # A format with a flag of its own needs no object in the result to say what failed.
    parsed = _parse_result_if_json_object(text)
    ended = _find_command_exit(text, (*objects, *parsed))
    said = () if has_failed is False else (text, ended.output if ended and ended.code else "")
    if is_call_refused(*objects, texts=(*said, *spoken)):
        return CallOutcome(success=None)
    reading = _infer_outcome_unless_refused(
        text, (*objects, *(parsed if has_failed is None else ())), has_failed, ended
    )
    if not reading.success and ended and has_exited_one_without_failure(args, ended.code, ended.output):
        return CallOutcome(success=True)
    return reading


def _infer_outcome_unless_refused(
    text: str, objects: Sequence[Mapping[str, object]], has_failed: bool | None, ended: _CommandExit | None
) -> CallOutcome:
    if has_failed:
        return CallOutcome(success=False, error=text)
    if reading := next(filter(None, map(_infer_outcome_from_fields, objects)), None):
        return reading
    if has_failed is False:
        return CallOutcome(success=True)
    if ended is not None:
        error = (ended.output or f"exit code {ended.code}") if ended.code else ""
        return CallOutcome(success=not ended.code, error=error)
    # A text that mentions errors further down is a success: a log file was read, or a search found errors.
    is_error = _LEADING_ERROR.match(text.lstrip()) is not None
    return CallOutcome(success=not is_error, error=text.lstrip() if is_error else "")


def _infer_outcome_from_fields(fields: Mapping[str, object]) -> CallOutcome | None:
    """Infer the outcome from a structured result; None if its fields say nothing about success."""
    if _OUTCOME_FIELDS.isdisjoint(fields):
        return None
    for key in _FAILED_FLAGS:
        if fields.get(key) is True:
            return CallOutcome(success=False, error=_find_error_text(fields))
    for key in _WORKED_FLAGS:
        if isinstance(said := fields.get(key), bool):
            return CallOutcome(success=said, error="" if said else _find_error_text(fields))
    code = _find_exit_code(fields)
    if code is not None:
        return CallOutcome(success=code == 0, error=_find_error_text(fields) or f"exit code {code}" if code else "")
    if fields.get("error"):
        return CallOutcome(success=False, error=_find_error_text(fields))
    status = fields.get("status")
    if isinstance(status, str) and status.lower() in _FAILED_STATUS:
        return CallOutcome(success=False, error=_find_error_text(fields) or status)
    return None


def _find_command_exit(text: str, objects: Sequence[Mapping[str, object]]) -> _CommandExit | None:
    """Return how a command ended, by a field or by a line before its output; None if neither says."""
    for fields in objects:
        code = _find_exit_code(fields)
        if code is not None:
            printed = (fields.get(key) for key in ("output", "stdout", "stderr"))
            return _CommandExit(
                code=code, output="\n".join(part.strip() for part in printed if isinstance(part, str)).strip()
            )
    head, mark, output = text.strip().partition("\nOutput:")
    if not mark or head.count("\n") >= _MAX_HEAD_LINES:
        head, _, output = text.strip().partition("\n")
    for line in head.splitlines():
        if said := _EXIT_LINE.fullmatch(line.strip()):
            return _CommandExit(code=int(said[1]), output=output.strip())
    return None


def _parse_result_if_json_object(text: str) -> list[Mapping[str, object]]:
    """Return the object of a result that is JSON; empty if it is not."""
    if not text.lstrip().startswith("{"):
        return []
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return [fields] if isinstance(fields, dict) else []


def _find_exit_code(fields: Mapping[str, object]) -> int | None:
    if _EXIT_CODE_FIELDS.isdisjoint(fields):
        return None
    inner = fields.get("metadata")
    for place in (fields, inner) if isinstance(inner, Mapping) else (fields,):
        for key in _EXIT_CODES:
            code = place.get(key)
            if isinstance(code, int) and not isinstance(code, bool):
                return code
    return None


def _find_error_text(fields: Mapping[str, object]) -> str:
    for key in ("error", "message", "stderr", "detail", "output", "stdout"):
        value = fields.get(key)
        if isinstance(value, str) and value.strip():
            return value.strip()
        if isinstance(value, Mapping):
            return json.dumps(value, default=str)
    return ""
