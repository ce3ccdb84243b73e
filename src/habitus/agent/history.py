"""The messages of a conversation: stored whole, repaired before each model call, shortened by whole turns.

Also decides which stage of a skill acted in a turn, since the outcome counts for that stage.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, assert_never

from habitus.events import Event, EventKind, ToolCall, text_in
from habitus.evidence.model import left_trace
from habitus.journal.model import Message as Kept
from habitus.journal.model import Turn
from habitus.llm.model import Answered, Asked, Image, Message, Returned, Text, message_tokens
from habitus.skills import names

MISSING = "[No result: the call was interrupted before it came back.]"


class History:
    """The messages sent to a model. When space runs out the oldest turns are dropped, never half of one."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self.messages: list[Message] = list(messages)

    def add(self, *messages: Message) -> None:
        """Append messages."""
        self.messages.extend(messages)

    def repair(self) -> int:
        """Give every call a result and drop results without a call; return how many were added or dropped."""
        repaired, count = repair_messages(self.messages)
        self.messages = repaired
        return count

    def end_turn(self, why: str) -> int:
        """Make the history valid for any next message, whatever interrupted the turn; return the repairs."""
        count = self.repair()
        last = self.messages[-1] if self.messages else None
        if last is not None and not _is_final(last):
            self.add(Answered(text=f"[{why}]"))
        return count

    def contains(self, text: str) -> bool:
        """Whether a person's message or a tool result contains the text."""
        return any(
            text in said
            for message in self.messages
            for said in (
                [message.content]
                if isinstance(message, Returned)
                else [part.text for part in message.parts if isinstance(part, Text)]
                if isinstance(message, Asked)
                else []
            )
        )

    def shorten(self, budget: int) -> int:
        """Drop the oldest turns until the rest fits, keeping the current one; return how many were dropped."""
        starts = turn_starts(self.messages)
        sizes = [message_tokens(message) for message in self.messages]
        dropped = 0
        while len(starts) > dropped + 1 and sum(sizes[starts[dropped] :]) > budget:
            dropped += 1
        if dropped:
            self.messages = self.messages[starts[dropped] :]
        return dropped

    def shorten_results(self, limit: int) -> bool:
        """Truncate long tool results. True if that made the history smaller."""
        before = sum(map(message_tokens, self.messages))
        self.messages = [_cut(message, limit) for message in self.messages]
        return sum(map(message_tokens, self.messages)) < before


def resume_history(past: Sequence[Turn]) -> History:
    """Rebuild the history from recorded turns, completing a turn that a killed process left open."""
    history = History()
    for turn in past:
        if history.messages:
            history.end_turn("This turn was interrupted.")
        history.add(*(message for kept in turn.messages if (message := unpack(kept)) is not None))
    return history


def repair_messages(messages: Sequence[Message]) -> tuple[list[Message], int]:
    """Return the messages with every call answered exactly once, and the number of repairs."""
    repaired: list[Message] = []
    count = 0
    waiting: dict[str, ToolCall] = {}
    for message in messages:
        if isinstance(message, Returned):
            if message.call in waiting:
                del waiting[message.call]
                repaired.append(message)
            else:
                count += 1
            continue
        repaired += _made_up(waiting)
        count += len(waiting)
        waiting = {call.id: call for call in message.calls} if isinstance(message, Answered) else {}
        repaired.append(message)
    repaired += _made_up(waiting)
    return repaired, count + len(waiting)


def _made_up(waiting: dict[str, ToolCall]) -> list[Message]:
    return [Returned(call=call.id, tool=call.name, content=MISSING) for call in waiting.values()]


def turn_starts(messages: Sequence[Message]) -> list[int]:
    """Return the indexes at which turns start: a person's message after an answer, not one in the middle of a turn."""
    return [
        index
        for index, message in enumerate(messages)
        if index == 0 or (isinstance(message, Asked) and _is_final(messages[index - 1]))
    ]


def _is_final(message: Message) -> bool:
    return isinstance(message, Answered) and not message.calls


def _cut(message: Message, limit: int) -> Message:
    if not isinstance(message, Returned) or len(message.content) <= limit:
        return message
    mark = f"\n[… {len(message.content) - limit:,} characters left out for lack of room …]"
    return replace(message, content=message.content[:limit] + mark)


def pack(message: Message) -> Kept:
    """Convert a message to its journal form. Only small images are stored as images."""
    match message:
        case Asked(parts=parts):
            return Kept(role="user", content=[_pack_part(part) for part in parts])
        case Answered(text=text, calls=calls):
            packed = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in calls]
            return Kept(role="assistant", content={"text": text, "calls": packed})
        case Returned(call=call, tool=tool, content=content, failed=failed, images=images):
            came: dict[str, Any] = {"call": call, "tool": tool, "content": content}
            came |= {"failed": True} if failed else {}
            came |= {"images": [_pack_part(image) for image in images]} if images else {}
            return Kept(role="tool", content=came)
        case never:
            assert_never(never)


# Larger images would make the journal grow faster than everything else in it.
_KEPT_IMAGE = 256 * 1024


def _pack_part(part: Text | Image) -> dict[str, str]:
    if isinstance(part, Text):
        return {"text": part.text}
    if len(part.data) > _KEPT_IMAGE:
        return {"text": f"[an image of {len(part.data):,} bytes, {part.media_type}]"}
    return {"image": base64.b64encode(part.data).decode(), "media_type": part.media_type}


def unpack(kept: Kept) -> Message | None:
    """Convert a message from its journal form; None if it is malformed, so one bad row can't break a session."""
    content: Any = kept.content
    try:
        match kept.role:
            case "user":
                return Asked(parts=tuple(_unpack_part(part) for part in content))
            case "assistant":
                calls = [
                    ToolCall(id=_text(c["id"]), name=_text(c["name"]), arguments=_text(c["arguments"]))
                    for c in content["calls"]
                ]
                return Answered(text=_text(content["text"]), calls=tuple(calls))
            case "tool":
                call, tool, said = (_text(content[key]) for key in ("call", "tool", "content"))
                shown = [_unpack_part(part) for part in content.get("images", ())]
                # Only the images that were small enough to be stored.
                images = tuple(part for part in shown if isinstance(part, Image))
                return Returned(call=call, tool=tool, content=said, failed=bool(content.get("failed")), images=images)
            case _:
                return None
    except (KeyError, TypeError, ValueError):
        return None


def _unpack_part(part: dict[str, str]) -> Text | Image:
    if "image" in part:
        return Image(data=base64.b64decode(part["image"]), media_type=_text(part["media_type"]))
    return Text(text=_text(part["text"]))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def acted_above(
    steps: str, stages: Collection[str], *, request: str, events: Sequence[Event], messages: Sequence[Message]
) -> bool:
    """Whether a skill's tool or recipe acted rather than its `steps`; `stages` are their callable names.

    The last call decides. If it failed, the steps acted if a later call did something or if they left a trace.
    """
    ends = [at for at, event in enumerate(events) if _is_result_of(event, stages)]
    if not ends:
        return False
    last, later = events[ends[-1]], events[ends[-1] + 1 :]
    if last.detail["success"]:
        return True
    apart = {*names.ASIDE, *stages}
    if any(event.kind is EventKind.TOOL_CALL and text_in(event, "name") not in apart for event in later):
        return False
    # Naming what failed does not mean following the steps.
    known = " ".join((request, text_in(last, "error"), *stages))
    done = "\n".join(message.text for message in _after(messages, text_in(last, "id")))
    return not left_trace(steps, (), request=known, done=done, if_unclear=False)


def _is_result_of(event: Event, stages: Collection[str]) -> bool:
    is_known = isinstance(event.detail.get("success"), bool)
    return event.kind is EventKind.TOOL_RESULT and is_known and text_in(event, "name") in stages


def _after(messages: Sequence[Message], call: str) -> list[Answered]:
    """Return the model's messages after a call had returned."""
    ends = [at for at, message in enumerate(messages) if isinstance(message, Returned) and message.call == call]
    later = messages[ends[-1] + 1 :] if ends else ()
    return [message for message in later if isinstance(message, Answered)]
