"""The stage of a skill that acted in a turn, its tool or recipe or else its steps: how the turn went counts for it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from habitus.events import Event, EventKind, text_in
from habitus.evidence.model import left_trace
from habitus.llm.model import Answered, Message, Returned
from habitus.skills import names


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
    """What the model said after a call had come back."""
    ends = [at for at, message in enumerate(messages) if isinstance(message, Returned) and message.call == call]
    later = messages[ends[-1] + 1 :] if ends else ()
    return [message for message in later if isinstance(message, Answered)]
