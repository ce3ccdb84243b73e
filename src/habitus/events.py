"""Small types that packages of one row share: outcomes, tool calls and results, and the events of a turn."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, Self

from habitus.redact import PATTERNS_ONLY, Redactor


class OutcomeKind(StrEnum):
    """How something that ran ended."""

    OK = "ok"
    # The thing itself failed.
    FAILED = "failed"
    # Something around it failed: a timeout of ours, no sandbox, an unavailable provider.
    INFRA = "infra"


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The outcome of running something, decided by its runner and never guessed from text."""

    kind: OutcomeKind
    reason: str = ""

    @property
    def is_ok(self) -> bool:
        return self.kind is OutcomeKind.OK


OK = Outcome(kind=OutcomeKind.OK)


def build_failed_outcome(reason: str) -> Outcome:
    """Return the outcome of something that failed through its own fault."""
    return Outcome(kind=OutcomeKind.FAILED, reason=reason)


def build_infrastructure_failure_outcome(reason: str) -> Outcome:
    """Return the outcome of something whose surroundings failed."""
    return Outcome(kind=OutcomeKind.INFRA, reason=reason)


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    """A tool call by a model, with the arguments as it wrote them: JSON, or an attempt at it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """An image with its media type."""

    data: bytes = field(repr=False)
    media_type: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolResult:
    """A tool's text for the model, the images it shows, and its outcome."""

    content: str
    outcome: Outcome = OK
    images: tuple[Image, ...] = ()
    # Files for the user to open.
    created_files: tuple[str, ...] = ()

    @property
    def is_failed(self) -> bool:
        """True if the call failed or could not be made."""
        return not self.outcome.is_ok


class EventKind(StrEnum):
    """The kinds of events in a turn that the ACC can receive; a closed list.

        kind                    detail (every key may be missing; readers must cope)
        scratchpad_call         name, code_len, one_line_description
        scratchpad_result       name, success, stdout_len, error
        scratchpad_empty_code   name
        scratchpad_reset        name, reason
        scratchpad_killed       name, reason
        tool_call               name, args_summary, args_digest; question if the call asks one; command if a shell is
                                called; intent if it was declared; id, at and cwd if the format has them; args,
                                without secrets, if no message has them
        tool_result             name, success, error, result_digest, result_len; weak if success was inferred; doubt, a
                                line of a success that reads like a failure; id, at
        history_repair          reason
        cap_exhausted           (nothing)

    `success` is true, false, or none if it is unknown (a person declined the call).
    """

    SCRATCHPAD_CALL = "scratchpad_call"
    SCRATCHPAD_RESULT = "scratchpad_result"
    SCRATCHPAD_EMPTY_CODE = "scratchpad_empty_code"
    SCRATCHPAD_RESET = "scratchpad_reset"
    SCRATCHPAD_KILLED = "scratchpad_killed"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    HISTORY_REPAIR = "history_repair"
    CAP_EXHAUSTED = "cap_exhausted"


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedTurnDetails:
    """A finished turn, for learners; the user already has the answer."""

    turn: str
    request: str
    outcome: Outcome
    session: str = ""
    user: str = "local"
    project: str = ""
    # The texts of the rules in the prompt.
    rules: tuple[str, ...] = ()
    # The ids of the lessons beside the request.
    lessons: tuple[str, ...] = ()
    # Whether the person gave files with the request, which others may have written.
    has_files: bool = False


class TurnObserver(Protocol):
    """Watches turns. Its failures are only logged and never stop a turn."""

    def observe(self, event: AgentEvent) -> None: ...

    async def list_new_advice(self) -> Sequence[str]:
        """Return texts to show to the model beside the results of a round."""
        ...

    def drop_cancelled_turn(self) -> None:
        """Handle a cancelled turn, which teaches nothing."""
        ...

    async def learn(self, ended: FinishedTurnDetails) -> None:
        """Learn from a finished turn, in the background."""
        ...


FAILED_RESULT = 5
_SEVERITIES = {
    EventKind.SCRATCHPAD_CALL: 1,
    EventKind.SCRATCHPAD_RESULT: 1,
    EventKind.SCRATCHPAD_EMPTY_CODE: 7,
    EventKind.SCRATCHPAD_RESET: 5,
    EventKind.SCRATCHPAD_KILLED: 6,
    EventKind.TOOL_CALL: 1,
    EventKind.TOOL_RESULT: 1,
    EventKind.HISTORY_REPAIR: 5,
    EventKind.CAP_EXHAUSTED: 9,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentEvent:
    """One event of a turn; `round_idx` counts the model's answers within it."""

    kind: EventKind
    detail: Mapping[str, object] = field(default_factory=dict)
    severity: int = 1
    round_idx: int = 0


@dataclass(frozen=True, kw_only=True)
class ToolCallRecord:
    """A tool call with its result, without secrets; unknown fields stay empty.

    Detectors, remedies and mining derive their own records from it.
    """

    name: str
    # Only arguments that are known completely.
    arguments: Mapping[str, Any] = field(default_factory=dict)
    # None if it was refused, has not returned, or is unknown.
    success: bool | None = None
    result: str = ""
    error: str = ""
    call_event: AgentEvent | None = None
    result_event: AgentEvent | None = None

    @classmethod
    def list_from_events(cls, events: Iterable[AgentEvent], **more: Any) -> list[Self]:
        """Pair calls with their results, by id or else by name, in the order of the calls.

        Results without a call stay in between. `more` are fields of a subclass, the same for all records.
        """
        pairs: list[tuple[AgentEvent | None, AgentEvent | None]] = []
        waiting: dict[str, list[int]] = {}
        for event in events:
            address = str(event.detail.get("id") or event.detail.get("name"))
            if event.kind is EventKind.TOOL_CALL:
                waiting.setdefault(address, []).append(len(pairs))
                pairs.append((event, None))
            elif event.kind in (EventKind.TOOL_RESULT, EventKind.SCRATCHPAD_RESULT):
                if waiting.get(address):
                    position = waiting[address].pop(0)
                    pairs[position] = pairs[position][0], event
                else:
                    pairs.append((None, event))
        return [cls._from_event_pair(called, returned, more) for called, returned in pairs]

    @classmethod
    def _from_event_pair(cls, called: AgentEvent | None, returned: AgentEvent | None, more: Mapping[str, Any]) -> Self:
        came = returned.detail if returned is not None else {}
        success, error = came.get("success"), came.get("error") or ""
        return cls(
            name=get_text_detail(called or returned, "name") or "unknown",
            success=success if isinstance(success, bool) else None,
            error=error if isinstance(error, str) else json.dumps(error, default=str),
            call_event=called,
            result_event=returned,
            **more,
        )

    @property
    def arguments_summary(self) -> str:
        """Its arguments in one shortened line."""
        return get_text_detail(self.call_event, "args_summary")

    @property
    def arguments_digest(self) -> str:
        return get_text_detail(self.call_event, "args_digest")


def get_text_detail(event: AgentEvent | None, key: str) -> str:
    """Return a text detail of an event; empty if it is missing or not text."""
    value = event.detail.get(key) if event is not None else None
    return value if isinstance(value, str) else ""


def get_severity(kind: EventKind, detail: Mapping[str, object]) -> int:
    """Return the severity of an event: 1 is routine, 5 and more is a problem."""
    if kind in (EventKind.SCRATCHPAD_RESULT, EventKind.TOOL_RESULT) and detail.get("success") is False:
        return FAILED_RESULT
    return _SEVERITIES[kind]


def build_event(kind: EventKind, detail: Mapping[str, object], *, round_idx: int = 0) -> AgentEvent:
    """Return an event with the severity of its kind."""
    return AgentEvent(kind=kind, detail=detail, severity=get_severity(kind, detail), round_idx=round_idx)


def build_tool_call_event(
    name: str,
    args: object,
    *,
    intent: str = "",
    round_idx: int = 0,
    call_id: str = "",
    at: str = "",
    cwd: str = "",
    keeps_args: bool = False,
    redactor: Redactor = PATTERNS_ONLY,
) -> AgentEvent:
    """Return a `tool_call` event; `args` is what the model sent, as JSON text or parsed, or None if unknown.

    `at` is an ISO 8601 timestamp; `cwd` is the working directory, already redacted.
    """
    parsed = _parse_arguments(args)
    detail: dict[str, object] = {"name": name, "args_summary": "", "args_digest": ""}
    if parsed not in (None, ""):
        detail["args_summary"] = _redact_and_truncate(_summarize_arguments(parsed), SUMMARY_CHARS, redactor)
        detail["args_digest"] = compute_digest(_to_canonical_json(parsed))
        question = _extract_question_from_arguments(parsed, redactor)
        if question:
            detail["question"] = question
        if isinstance(parsed, Mapping) and (command := get_shell_command_from_arguments(parsed)):
            detail["command"] = _redact_and_truncate(command, COMMAND_CHARS, redactor)
    if intent:
        detail["intent"] = _redact_and_truncate(intent, SUMMARY_CHARS, redactor)
    if cwd:
        detail["cwd"] = cwd
    if keeps_args:
        detail["args"] = redactor.redact_value(parsed)
    return build_event(EventKind.TOOL_CALL, detail | _drop_empty_fields(id=call_id, at=at), round_idx=round_idx)


def build_tool_result_event(
    name: str,
    *,
    success: bool | None,
    error: str = "",
    result: str | None = None,
    round_idx: int = 0,
    call_id: str = "",
    at: str = "",
    weak: bool = False,
    redactor: Redactor = PATTERNS_ONLY,
) -> AgentEvent:
    """Return a `tool_result` event; `result` is kept only as digest and length, None if unknown."""
    detail: dict[str, object] = {
        "name": name,
        "success": success,
        "error": _redact_and_truncate_error(error, redactor) if success is False else "",
    }
    if result is not None:
        detail["result_digest"] = compute_digest(result)
        detail["result_len"] = len(result)
        if success and (found := _find_failure_text(result)):
            line = result[result.rfind("\n", 0, found.start()) + 1 : found.end() + SUMMARY_CHARS].splitlines()[0]
            detail["doubt"] = _redact_and_truncate(line, SUMMARY_CHARS, redactor)
    if weak:
        detail["weak"] = True
    return build_event(EventKind.TOOL_RESULT, detail | _drop_empty_fields(id=call_id, at=at), round_idx=round_idx)


def build_event_from_tool_result(
    call: ToolCall, result: ToolResult, *, round_idx: int, is_known: bool = True, at: str = ""
) -> AgentEvent:
    """Return a `tool_result` event for our own call, or for one by another program with an unknown outcome."""
    went = result.outcome
    return build_tool_result_event(
        call.name,
        success=went.is_ok if is_known else None,
        error=went.reason,
        result=result.content,
        round_idx=round_idx,
        call_id=call.id,
        at=at,
    )


# A command in a pipe, or followed by another one, fails without a failing exit code.
_FAILURE_TEXT = re.compile(
    r"command not found|: not found$|Traceback \(most recent|No such file or directory|Permission denied|^npm ERR!"
    r"|^(?:fatal|error|\w*Error)(?:\[\w+\])?: ",
    re.MULTILINE,
)


# Every match contains one of these words; most outputs have none, and words are found much faster than a pattern.
_FAILURE_WORDS = ("rror", "not found", "fatal", "Traceback", "No such file", "denied", "ERR!")


def _find_failure_text(result: str) -> re.Match[str] | None:
    """Return the first sign of a failure near the end of an output."""
    start = max(0, len(result) - ERROR_CHARS)
    end = result[start:]
    return _FAILURE_TEXT.search(result, start) if any(word in end for word in _FAILURE_WORDS) else None


def _drop_empty_fields(**fields: str) -> dict[str, object]:
    return {key: value for key, value in fields.items() if value}


def get_shell_command_from_arguments(args: object) -> str:
    """Return the shell command in the arguments of a call, whatever the argument is called."""
    args = _parse_arguments(args)
    if not isinstance(args, Mapping):
        return args if isinstance(args, str) else ""
    given = args.get("command") or args.get("cmd") or args.get("script") or ""
    if isinstance(given, list):
        is_shell = len(given) == 3 and str(given[1]) in ("-c", "-lc")
        return str(given[2]) if is_shell else " ".join(map(str, given))
    return given if isinstance(given, str) else ""


def compute_digest(text: str) -> str:
    """Return a short hash, enough to distinguish arguments or results within a turn."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


SUMMARY_CHARS = 200
COMMAND_CHARS = 1000
ERROR_CHARS = 1000
QUESTION_ARGUMENTS = frozenset({"query", "q", "question", "search", "search_query", "search_term", "keywords"})
# Fewer words are a name or an id, not a question.
MIN_QUESTION_WORDS = 4
_WORDS_KEPT = 60


def _parse_arguments(args: object) -> object:
    if not isinstance(args, str):
        return args
    try:
        return json.loads(args)
    except (ValueError, RecursionError):
        return args


_IN_ORDER = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)


def _to_canonical_json(value: object) -> str:
    """Return equal text for equal arguments; key order and empty keys do not count."""
    try:
        return _IN_ORDER.encode(_drop_nulls(value))
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def _drop_nulls(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _drop_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_drop_nulls(item) for item in value]
    return value


def _summarize_arguments(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_to_canonical_json(item)}" for key, item in value.items())
    return value if isinstance(value, str) else _to_canonical_json(value)


def _redact_and_truncate(text: str, limit: int, redactor: Redactor) -> str:
    """Redact and then truncate a text."""
    # In this order, because half a secret would not be recognised.
    whole = redactor.redact(text[: limit * 8]).text
    return whole if len(whole) <= limit else whole[: limit - 1] + "…"


def _redact_and_truncate_error(error: str, redactor: Redactor) -> str:
    """Return the beginning and end of an error: the cause of a crash is in the last lines."""
    if len(error) <= ERROR_CHARS:
        return _redact_and_truncate(error, ERROR_CHARS, redactor)
    first, last = ERROR_CHARS * 3 // 10, ERROR_CHARS * 7 // 10
    head, tail = (redactor.redact(part).text for part in (error[: first * 8], error[-last * 4 :]))
    return f"{head[:first]}…\n…{tail[-last + 3 :]}"


def _extract_question_from_arguments(value: object, redactor: Redactor) -> dict[str, object] | None:
    """Return the sorted words of the question that a call asks, and a digest of its other arguments."""
    asked, rest = _split_question_from_arguments(value)
    if not asked:
        return None
    words = sorted(set(re.findall(r"\w+", redactor.redact(asked[:2000]).text.lower())))
    if len(words) < MIN_QUESTION_WORDS:
        return None
    return {"words": words[:_WORDS_KEPT], "rest": compute_digest(_to_canonical_json(rest))}


def _split_question_from_arguments(value: object) -> tuple[str, object]:
    if not isinstance(value, Mapping):
        return "", value
    asked = ""
    rest: dict[str, object] = {}
    for key, item in value.items():
        if not asked and str(key).lower() in QUESTION_ARGUMENTS and isinstance(item, str):
            asked = item
        elif not asked and isinstance(item, Mapping):
            asked, rest[str(key)] = _split_question_from_arguments(item)
        else:
            rest[str(key)] = item
    return asked, rest
