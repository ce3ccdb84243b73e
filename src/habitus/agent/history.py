"""The messages of a conversation: kept whole, mended before every call, and shortened by whole turns;
and whether a skill's tool or recipe acted in a turn, or its steps: how the turn went counts for that stage."""

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
    """`messages` is what a model is sent. The oldest turns leave when there is no more room, never half of one."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self.messages: list[Message] = list(messages)

    def add(self, *messages: Message) -> None:
        self.messages.extend(messages)

    def repair(self) -> int:
        """Give every call its result and drop results nobody called for; how many had to be made up or dropped."""
        mended, count = repair_messages(self.messages)
        self.messages = mended
        return count

    def end_turn(self, why: str) -> int:
        """Leave a history that any next message can follow, whatever interrupted the turn."""
        count = self.repair()
        last = self.messages[-1] if self.messages else None
        if last is not None and not _is_final(last):
            self.add(Answered(text=f"[{why}]"))
        return count

    def contains(self, text: str) -> bool:
        """Whether a text stands in what a person said or a tool returned."""
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
        """Drop the oldest turns until the rest fits; the current one stays. How many were dropped."""
        starts = turn_starts(self.messages)
        sizes = [message_tokens(message) for message in self.messages]
        dropped = 0
        while len(starts) > dropped + 1 and sum(sizes[starts[dropped] :]) > budget:
            dropped += 1
        if dropped:
            self.messages = self.messages[starts[dropped] :]
        return dropped

    def shorten_results(self, limit: int) -> bool:
        """Cut long tool results of the turn that is left; whether that made it smaller."""
        before = sum(map(message_tokens, self.messages))
        self.messages = [_cut(message, limit) for message in self.messages]
        return sum(map(message_tokens, self.messages)) < before


def resume_history(past: Sequence[Turn]) -> History:
    """The messages of earlier turns. One that a killed process left without an end gets one."""
    history = History()
    for turn in past:
        if history.messages:
            history.end_turn("This turn was interrupted.")
        history.add(*(message for kept in turn.messages if (message := unpack(kept)) is not None))
    return history


def repair_messages(messages: Sequence[Message]) -> tuple[list[Message], int]:
    mended: list[Message] = []
    count = 0
    waiting: dict[str, ToolCall] = {}
    for message in messages:
        if isinstance(message, Returned):
            if message.call in waiting:
                del waiting[message.call]
                mended.append(message)
            else:
                count += 1
            continue
        mended += _made_up(waiting)
        count += len(waiting)
        waiting = {call.id: call for call in message.calls} if isinstance(message, Answered) else {}
        mended.append(message)
    mended += _made_up(waiting)
    return mended, count + len(waiting)


def _made_up(waiting: dict[str, ToolCall]) -> list[Message]:
    return [Returned(call=call.id, tool=call.name, content=MISSING) for call in waiting.values()]


def turn_starts(messages: Sequence[Message]) -> list[int]:
    """Where turns begin: what a person says after an answer, not what is said to the model in the middle of one."""
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
    """A message as the journal keeps it. Images are kept as images only while they are small."""
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


_KEPT_IMAGE = 256 * 1024


def _pack_part(part: Text | Image) -> dict[str, str]:
    if isinstance(part, Text):
        return {"text": part.text}
    if len(part.data) > _KEPT_IMAGE:
        return {"text": f"[an image of {len(part.data):,} bytes, {part.media_type}]"}
    return {"image": base64.b64encode(part.data).decode(), "media_type": part.media_type}


def unpack(kept: Kept) -> Message | None:
    """A message from the journal; None for one that makes no sense, so that one bad row ends no session."""
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
                images = tuple(part for part in shown if isinstance(part, Image))  # those that were small enough
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
    """Whether a skill's tool or recipe acted, and not its `steps`; `stages` are the names they are called by.

    Their last call decides. Where it failed, the steps acted if a later call did something, or if they left a trace.
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
    known = " ".join((request, text_in(last, "error"), *stages))  # naming what failed is not following the steps
    done = "\n".join(message.text for message in _after(messages, text_in(last, "id")))
    return not left_trace(steps, (), request=known, done=done, if_unclear=False)


def _is_result_of(event: Event, stages: Collection[str]) -> bool:
    is_known = isinstance(event.detail.get("success"), bool)
    return event.kind is EventKind.TOOL_RESULT and is_known and text_in(event, "name") in stages


def _after(messages: Sequence[Message], call: str) -> list[Answered]:
    """The model's words after a call had come back."""
    ends = [at for at, message in enumerate(messages) if isinstance(message, Returned) and message.call == call]
    later = messages[ends[-1] + 1 :] if ends else ()
    return [message for message in later if isinstance(message, Answered)]
