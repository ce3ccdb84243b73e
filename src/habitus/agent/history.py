"""The messages of a conversation: stored whole, repaired before each model call, shortened by whole turns.

Also decides which stage of a skill acted in a turn, since the outcome counts for that stage.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, assert_never

from habitus.events import AgentEvent, EventKind, ToolCall, get_text_detail
from habitus.evidence.model import has_left_trace_of_steps
from habitus.journal.model import Turn
from habitus.journal.model import TurnMessage as Kept
from habitus.llm.model import (
    AssistantMessage,
    ChatMessage,
    Image,
    PersonMessage,
    TextContent,
    ToolResultMessage,
    estimate_message_tokens,
)
from habitus.skills import names

MISSING = "[No result: the call was interrupted before it came back.]"


class MessageHistory:
    """The messages sent to a model. When space runs out the oldest turns are dropped, never half of one."""

    def __init__(self, messages: Iterable[ChatMessage] = ()) -> None:
        self.messages: list[ChatMessage] = list(messages)

    def add_messages(self, *messages: ChatMessage) -> None:
        """Append messages."""
        self.messages.extend(messages)

    def repair_calls_and_results_in_place(self) -> int:
        """Give every call a result and drop results without a call; return how many were added or dropped."""
        repaired, count = repair_calls_and_results(self.messages)
        self.messages = repaired
        return count

    def make_valid_after_turn(self, why: str) -> int:
        """Make the history valid for any next message, whatever interrupted the turn; return the repairs."""
        count = self.repair_calls_and_results_in_place()
        last = self.messages[-1] if self.messages else None
        if last is not None and not _is_assistant_message_without_calls(last):
            self.add_messages(AssistantMessage(text=f"[{why}]"))
        return count

    def is_text_in_user_or_tool_messages(self, text: str) -> bool:
        """Whether a person's message or a tool result contains the text."""
        return any(
            text in said
            for message in self.messages
            for said in (
                [message.content]
                if isinstance(message, ToolResultMessage)
                else [part.text for part in message.parts if isinstance(part, TextContent)]
                if isinstance(message, PersonMessage)
                else []
            )
        )

    def drop_oldest_turns_to_fit(self, budget: int) -> int:
        """Drop the oldest turns until the rest fits, keeping the current one; return how many were dropped."""
        starts = find_turn_start_indexes(self.messages)
        sizes = [estimate_message_tokens(message) for message in self.messages]
        dropped = 0
        while len(starts) > dropped + 1 and sum(sizes[starts[dropped] :]) > budget:
            dropped += 1
        if dropped:
            self.messages = self.messages[starts[dropped] :]
        return dropped

    def truncate_long_tool_results(self, limit: int) -> bool:
        """Truncate long tool results. True if that made the history smaller."""
        before = sum(map(estimate_message_tokens, self.messages))
        self.messages = [_truncate_tool_result_message(message, limit) for message in self.messages]
        return sum(map(estimate_message_tokens, self.messages)) < before


def rebuild_history_from_recorded_turns(past: Sequence[Turn]) -> MessageHistory:
    """Rebuild the history from recorded turns, completing a turn that a killed process left open."""
    history = MessageHistory()
    for turn in past:
        if history.messages:
            history.make_valid_after_turn("This turn was interrupted.")
        history.add_messages(
            *(message for kept in turn.messages if (message := decode_journal_message(kept)) is not None)
        )
    return history


def repair_calls_and_results(messages: Sequence[ChatMessage]) -> tuple[list[ChatMessage], int]:
    """Return the messages with every call answered exactly once, and the number of repairs."""
    repaired: list[ChatMessage] = []
    count = 0
    waiting: dict[str, ToolCall] = {}
    for message in messages:
        if isinstance(message, ToolResultMessage):
            if message.call in waiting:
                del waiting[message.call]
                repaired.append(message)
            else:
                count += 1
            continue
        repaired += _make_placeholder_tool_results(waiting)
        count += len(waiting)
        waiting = {call.id: call for call in message.calls} if isinstance(message, AssistantMessage) else {}
        repaired.append(message)
    repaired += _make_placeholder_tool_results(waiting)
    return repaired, count + len(waiting)


def _make_placeholder_tool_results(waiting: dict[str, ToolCall]) -> list[ChatMessage]:
    return [ToolResultMessage(call=call.id, tool=call.name, content=MISSING) for call in waiting.values()]


def find_turn_start_indexes(messages: Sequence[ChatMessage]) -> list[int]:
    """Return the indexes at which turns start: a person's message after an answer, not one in the middle of a turn."""
    return [
        index
        for index, message in enumerate(messages)
        if index == 0
        or (isinstance(message, PersonMessage) and _is_assistant_message_without_calls(messages[index - 1]))
    ]


def _is_assistant_message_without_calls(message: ChatMessage) -> bool:
    return isinstance(message, AssistantMessage) and not message.calls


def _truncate_tool_result_message(message: ChatMessage, limit: int) -> ChatMessage:
    if not isinstance(message, ToolResultMessage) or len(message.content) <= limit:
        return message
    mark = f"\n[… {len(message.content) - limit:,} characters left out for lack of room …]"
    return replace(message, content=message.content[:limit] + mark)


def encode_message_for_journal(message: ChatMessage) -> Kept:
    """Convert a message to its journal form. Only small images are stored as images."""
    match message:
        case PersonMessage(parts=parts):
            return Kept(role="user", content=[_encode_message_part(part) for part in parts])
        case AssistantMessage(text=text, calls=calls):
            packed = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in calls]
            return Kept(role="assistant", content={"text": text, "calls": packed})
        case ToolResultMessage(call=call, tool=tool, content=content, failed=failed, images=images):
            came: dict[str, Any] = {"call": call, "tool": tool, "content": content}
            came |= {"failed": True} if failed else {}
            came |= {"images": [_encode_message_part(image) for image in images]} if images else {}
            return Kept(role="tool", content=came)
        case never:
            assert_never(never)


# Larger images would make the journal grow faster than everything else in it.
_KEPT_IMAGE = 256 * 1024


def _encode_message_part(part: TextContent | Image) -> dict[str, str]:
    if isinstance(part, TextContent):
        return {"text": part.text}
    if len(part.data) > _KEPT_IMAGE:
        return {"text": f"[an image of {len(part.data):,} bytes, {part.media_type}]"}
    return {"image": base64.b64encode(part.data).decode(), "media_type": part.media_type}


def decode_journal_message(kept: Kept) -> ChatMessage | None:
    """Convert a message from its journal form; None if it is malformed, so one bad row can't break a session."""
    content: Any = kept.content
    try:
        match kept.role:
            case "user":
                return PersonMessage(parts=tuple(_decode_message_part(part) for part in content))
            case "assistant":
                calls = [
                    ToolCall(
                        id=_require_string(c["id"]),
                        name=_require_string(c["name"]),
                        arguments=_require_string(c["arguments"]),
                    )
                    for c in content["calls"]
                ]
                return AssistantMessage(text=_require_string(content["text"]), calls=tuple(calls))
            case "tool":
                call, tool, said = (_require_string(content[key]) for key in ("call", "tool", "content"))
                shown = [_decode_message_part(part) for part in content.get("images", ())]
                # Only the images that were small enough to be stored.
                images = tuple(part for part in shown if isinstance(part, Image))
                return ToolResultMessage(
                    call=call, tool=tool, content=said, failed=bool(content.get("failed")), images=images
                )
            case _:
                return None
    except (KeyError, TypeError, ValueError):
        return None


def _decode_message_part(part: dict[str, str]) -> TextContent | Image:
    if "image" in part:
        return Image(data=base64.b64decode(part["image"]), media_type=_require_string(part["media_type"]))
    return TextContent(text=_require_string(part["text"]))


def _require_string(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def has_stage_replaced_steps(
    steps: str, stages: Collection[str], *, request: str, events: Sequence[AgentEvent], messages: Sequence[ChatMessage]
) -> bool:
    """Whether a skill's tool or recipe acted rather than its `steps`; `stages` are their callable names.

    The last call decides. If it failed, the steps acted if a later call did something or if they left a trace.
    """
    ends = [at for at, event in enumerate(events) if _is_stage_result_with_known_success(event, stages)]
    if not ends:
        return False
    last, later = events[ends[-1]], events[ends[-1] + 1 :]
    if last.detail["success"]:
        return True
    apart = {*names.SKILL_MANAGEMENT_TOOLS, *stages}
    if any(event.kind is EventKind.TOOL_CALL and get_text_detail(event, "name") not in apart for event in later):
        return False
    # Naming what failed does not mean following the steps.
    known = " ".join((request, get_text_detail(last, "error"), *stages))
    done = "\n".join(message.text for message in _list_model_messages_after_call(messages, get_text_detail(last, "id")))
    return not has_left_trace_of_steps(steps, (), request=known, done=done, if_unclear=False)


def _is_stage_result_with_known_success(event: AgentEvent, stages: Collection[str]) -> bool:
    is_known = isinstance(event.detail.get("success"), bool)
    return event.kind is EventKind.TOOL_RESULT and is_known and get_text_detail(event, "name") in stages


def _list_model_messages_after_call(messages: Sequence[ChatMessage], call: str) -> list[AssistantMessage]:
    """Return the model's messages after a call had returned."""
    ends = [at for at, one in enumerate(messages) if isinstance(one, ToolResultMessage) and one.call == call]
    later = messages[ends[-1] + 1 :] if ends else ()
    return [one for one in later if isinstance(one, AssistantMessage)]
