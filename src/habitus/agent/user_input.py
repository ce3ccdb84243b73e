"""What a person says in a turn, made ready: files read, recordings written down, secrets taken out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from habitus.agent import attachments, budget, prompt
from habitus.agent.parts import Parts
from habitus.errors import Invalid
from habitus.llm.model import Image, Text
from habitus.redact import CountingRedactor
from habitus.skills.model import Skill
from habitus.skills.selection import Request
from habitus.text import block, encodable, one_line


@dataclass(frozen=True, kw_only=True, slots=True)
class Asking:
    """What somebody hands in for a turn, as it is."""

    text: str
    attach: Sequence[Path] = ()
    caller_id: str = ""
    reply_to: str = ""
    invoked: Skill | None = None  # a skill the person calls by its name
    sees_images: bool = False  # whether the model that will read it does


@dataclass(frozen=True, kw_only=True, slots=True)
class UserInput:
    """The request as the rules read it, and what is attached to it."""

    request: Request
    parts: tuple[Text | Image, ...] = ()
    notices: tuple[str, ...] = ()
    caller_id: str = ""
    invoked: Skill | None = None


async def read_input(parts: Parts, asking: Asking, *, conversation: str) -> UserInput:
    redactor = CountingRedactor(parts.redactor)

    def sound(text: str) -> str:
        """A text that can be sent: encodable, without secrets, and unable to speak for us."""
        return block(redactor.redact(encodable(text)).text)

    attached = await attachments.read(
        asking.attach,
        sees_images=asking.sees_images,
        transcribe=parts.transcribe,
        budget=int(parts.context_tokens * budget.ATTACHED_SHARE),
        sound=sound,
    )
    text = sound("\n\n".join(part for part in (asking.text, *attached.heard) if part.strip()))
    if not text.strip() and not attached.parts:
        raise Invalid("There is nothing to say.", mend="Write a request, or attach a file.")
    request = Request(
        text=text,
        source_type=parts.source_type,
        user=parts.user,
        attachments=attached.names,
        conversation=conversation,
        reply_to=asking.reply_to,
        now=parts.clock(),
    )
    called = []
    if asking.invoked is not None:
        body = redactor.redact(encodable(asking.invoked.body)).text
        called.append(prompt.invoked(replace(asking.invoked, body=body)))
    return UserInput(
        request=request,
        parts=(*called, *attached.parts),
        notices=(*attached.notices, *_told(redactor)),
        caller_id=one_line(asking.caller_id),
        invoked=asking.invoked,
    )


def _told(redactor: CountingRedactor) -> list[str]:
    if not redactor.counts:
        return []
    found = ", ".join(f"{count} × {kind}" for kind, count in sorted(redactor.counts.items()))
    return [f"Secrets were taken out before the model saw them: {found}."]
