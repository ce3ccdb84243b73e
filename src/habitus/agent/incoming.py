"""What a person says in a turn, made ready: files read, recordings written down, secrets taken out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from habitus.agent import attachments, budget, prompt
from habitus.agent.parts import Parts
from habitus.agent.turn import Incoming
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
    said = redactor.redact("\n\n".join(part for part in (text, *attached.heard) if part.strip())).text
    if not said.strip() and not attached.parts:
        raise Invalid("There is nothing to say.", mend="Write a request, or attach a file.")
    request = Request(
        text=said,
        source_type=parts.source_type,
        user=parts.user,
        attachments=attached.names,
        conversation=conversation,
        reply_to=reply_to,
        now=parts.clock(),
    )
    shown = [_redacted(part, redactor) for part in attached.parts]
    return Incoming(
        request=request,
        parts=(*(prompt.invoked(skill) for skill in [invoked] if skill), *shown),
        notices=(*attached.notices, *_told(redactor)),
        caller_id=caller_id,
        invoked=invoked,
    )


def _redacted(part: Text | Image, redactor: CountingRedactor) -> Text | Image:
    return Text(text=redactor.redact(part.text).text) if isinstance(part, Text) else part


def _told(redactor: CountingRedactor) -> list[str]:
    if not redactor.counts:
        return []
    found = ", ".join(f"{count} × {kind}" for kind, count in sorted(redactor.counts.items()))
    return [f"Secrets were taken out before the model saw them: {found}."]
