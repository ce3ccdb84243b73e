"""What a person says in a turn, made ready: files read, recordings written down, secrets taken out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from habitus.agent import attachments, budget, prompt
from habitus.agent.model import Incoming
from habitus.agent.parts import Parts
from habitus.encodable import encodable
from habitus.errors import Invalid
from habitus.llm.model import Image, Text
from habitus.redact import CountingRedactor
from habitus.skills.model import Skill
from habitus.skills.selection import Request


async def incoming(
    parts: Parts,
    text: str,
    attach: Sequence[Path],
    *,
    conversation: str,
    caller_id: str,
    reply_to: str,
    invoked: Skill | None,
) -> Incoming:
    attached = await attachments.read(
        attach,
        sees_images=parts.model.sees_images,
        transcribe=parts.transcribe,
        budget=int(parts.context_tokens * budget.ATTACHED_SHARE),
    )
    redactor = CountingRedactor(parts.redactor)
    said = redactor.redact(encodable("\n\n".join(part for part in (text, *attached.heard) if part.strip()))).text
    if not said.strip() and not attached.parts:
        raise Invalid("There is nothing to say.", mend="Write a request, or attach a file.")
    request = Request(
        text=said,
        source_type=parts.source_type,
        user=parts.user,
        attachments=tuple(map(encodable, attached.names)),
        conversation=conversation,
        reply_to=reply_to,
        now=parts.clock(),
    )
    called = [prompt.invoked(invoked)] if invoked else []
    return Incoming(
        request=request,
        parts=tuple(_sound(part, redactor) for part in (*called, *attached.parts)),
        notices=(*attached.notices, *_told(redactor)),
        caller_id=encodable(caller_id),
        invoked=invoked,
    )


def _sound(part: Text | Image, redactor: CountingRedactor) -> Text | Image:
    """A part that can be sent: encodable, without secrets, and unable to speak for the block beside it."""
    if isinstance(part, Image):
        return part
    return Text(text=prompt.unmarked(redactor.redact(encodable(part.text)).text))


def _told(redactor: CountingRedactor) -> list[str]:
    if not redactor.counts:
        return []
    found = ", ".join(f"{count} × {kind}" for kind, count in sorted(redactor.counts.items()))
    return [f"Secrets were taken out before the model saw them: {found}."]
