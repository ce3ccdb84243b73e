"""The events of a chat, and their lines in the journal, from which another process shows a running turn."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import assert_never

from habitus.agent import stream
from habitus.agent.history import encode_message_for_journal
from habitus.agent.stream import Consent, ConsentQuestion, TurnEvent
from habitus.events import Outcome, OutcomeKind, ToolCall
from habitus.journal.model import TurnMessage
from habitus.llm.model import AssistantMessage, ChatMessage, ToolResultMessage
from habitus.memory.model import Engram
from habitus.redact import Redactor

# A longer tool result is shortened until its turn has ended.
_MAX_CONTENT_CHARS = 4000


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsentRequested:
    """The turn asks a person for consent."""

    number: int
    question: ConsentQuestion


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsentAnswered:
    """A question that the turn no longer waits for: a person has answered it, or it has timed out."""

    number: int
    text: str
    answer: Consent


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnEnd:
    """The end of a turn, sent exactly once: its id if it was recorded, and its lessons."""

    turn: str = ""
    # Why there is no reply.
    reason: str = ""
    learned: tuple[Engram, ...] = ()


ChatEvent = TurnEvent | ConsentRequested | ConsentAnswered | TurnEnd


def encode_chat_event(event: ChatEvent, redactor: Redactor) -> str:
    """Return an event as a line of JSON, with secrets redacted."""
    match event:
        case stream.ReplyDelta(text=text):
            # Redacted while it was streamed.
            packed: list[object] = ["reply", text]
        case stream.ToolStarted(call=call, tool=tool, arguments=arguments):
            packed = ["call", call, tool, redactor.redact_json(arguments)]
        case stream.ToolFinished(call=call, tool=tool, outcome=outcome, content=content):
            packed = ["result", call, tool, outcome.kind, outcome.reason, content]
            packed = [redactor.redact(str(part)).text[:_MAX_CONTENT_CHARS] for part in packed]
        case stream.NudgeEvent(text=text) | stream.NoticeEvent(text=text):
            packed = ["note", redactor.redact(text).text]
        case ConsentRequested(number=number, question=asked):
            packed = ["consent", number, *(redactor.redact(text).text for text in (asked.text, asked.detail))]
            packed += asked.choices
        case ConsentAnswered(number=number, text=text, answer=answer):
            packed = ["answered", number, redactor.redact(text).text, answer]
        case stream.ToolProgress() | stream.TurnResult() | TurnEnd():
            packed = ["other"]
        case never:
            assert_never(never)
    return json.dumps(packed)


def decode_chat_event(line: str) -> ChatEvent:
    """Return the event of a line; for one that is unknown or not shown an empty progress, as events are counted."""
    match json.loads(line):
        case ["reply", text]:
            return stream.ReplyDelta(text=text)
        case ["call", call, tool, arguments]:
            return stream.ToolStarted(call=call, tool=tool, arguments=arguments)
        case ["result", call, tool, kind, reason, content]:
            outcome = Outcome(kind=OutcomeKind(kind), reason=reason)
            return stream.ToolFinished(call=call, tool=tool, outcome=outcome, content=content, seconds=0.0)
        case ["note", text]:
            return stream.NoticeEvent(text=text)
        case ["consent", number, text, detail, *choices]:
            question = ConsentQuestion(text=text, detail=detail, choices=tuple(map(Consent, choices)))
            return ConsentRequested(number=number, question=question)
        case ["answered", number, text, answer]:
            return ConsentAnswered(number=number, text=text, answer=Consent(answer))
        case _:
            return stream.ToolProgress(call="", text="")


def build_messages_from_chat_events(events: Iterable[ChatEvent]) -> tuple[TurnMessage, ...]:
    """Return what was said in a turn whose process has ended, as the journal keeps it."""
    said: list[ChatMessage] = []
    for event in events:
        before = said[-1] if said and isinstance(said[-1], AssistantMessage) else AssistantMessage(text="")
        match event:
            case stream.ReplyDelta(text=text) if not before.calls:
                added: ChatMessage = AssistantMessage(text=before.text + text)
            case stream.ToolStarted(call=call, tool=tool, arguments=arguments):
                calls = (*before.calls, ToolCall(id=call, name=tool, arguments=arguments))
                added = AssistantMessage(text=before.text, calls=calls)
            case stream.ToolFinished(call=call, tool=tool, outcome=outcome, content=content):
                said.append(ToolResultMessage(call=call, tool=tool, content=content, failed=not outcome.is_ok))
                continue
            case _:
                continue
        if said and said[-1] is before:
            said.pop()
        said.append(added)
    return tuple(map(encode_message_for_journal, said))
