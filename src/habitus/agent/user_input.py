"""What a person says in a turn, made ready: files read, recordings written down, secrets taken out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from habitus.agent import attachments, budget, prompt
from habitus.agent.background import in_thread
from habitus.agent.parts import Parts
from habitus.errors import Invalid
from habitus.llm.model import Image, Text
from habitus.redact import CountingRedactor
from habitus.skills.model import Skill
from habitus.skills.selection import Request
from habitus.text import block, encodable, one_line

_UNKNOWN_TURN = "The turn that this answers is not kept; the skills it had do not come along."


@dataclass(frozen=True, kw_only=True, slots=True)
class Asking:
    """What somebody hands in for a turn, as it is."""

    text: str
    attach: Sequence[Path] = ()
    caller_id: str = ""
    reply_to: str = ""
    paths: Sequence[str] = ()  # files the work is about
    resources: Collection[str] = ()  # kinds of resources the person has
    features: Collection[str] = ()  # experiments that are on for this turn
    invoked: Skill | None = None  # a skill the person calls by its name
    sees_images: bool = False  # whether the model that will read it does
    may_be_blank: bool = False  # whoever runs the loop may not know what was asked


@dataclass(frozen=True, kw_only=True, slots=True)
class UserInput:
    """The request as the rules read it, and what is attached to it."""

    request: Request
    parts: tuple[Text | Image, ...] = ()
    notices: tuple[str, ...] = ()
    caller_id: str = ""
    invoked: Skill | None = None
    sees_images: bool = False


async def read_input(parts: Parts, asking: Asking, *, conversation: str) -> UserInput:
    redactor = CountingRedactor(parts.redactor)

    def sound(text: str) -> str:
        """A text that can be sent: encodable, without secrets, and unable to speak for us."""
        return block(redactor.redact(encodable(text)).text)

    def clean(content: bytes) -> bytes:
        """A file without secrets, where it is text."""
        if b"\0" in content:
            return content
        text = content.decode("utf-8", "surrogateescape")
        return redactor.redact(text).text.encode("utf-8", "surrogateescape")

    attached = await attachments.read(
        asking.attach,
        given=parts.given,
        sees_images=asking.sees_images,
        transcribe=parts.transcribe,
        budget=int(parts.context_tokens * budget.ATTACHED_SHARE),
        sound=sound,
        clean=clean,
    )
    text = sound("\n\n".join(part for part in (asking.text, *attached.heard) if part.strip()))
    if not text.strip() and not attached.parts and not asking.may_be_blank:
        raise Invalid("There is nothing to say.", mend="Write a request, or attach a file.")
    is_kept = not asking.reply_to or await in_thread(lambda: _is_kept(parts, asking.reply_to))
    request = Request(
        text=text,
        source_type=parts.source_type,
        user=parts.user,
        attachments=attached.names,
        conversation=conversation,
        reply_to=asking.reply_to if is_kept else "",
        paths=tuple(encodable(inside(path, parts.project)) for path in asking.paths),
        resources=frozenset(map(encodable, asking.resources)),
        features=frozenset(map(encodable, asking.features)),
        now=parts.clock(),
    )
    called = []
    if (skill := asking.invoked) is not None:
        body = redactor.redact(encodable(skill.body)).text
        files = await in_thread(lambda: parts.files.put(skill))
        called.append(prompt.invoked_skill(replace(skill, body=body), redactor.redact(files).text))
    return UserInput(
        request=request,
        parts=(*called, *attached.parts),
        notices=(*attached.notices, *_redaction_notice(redactor), *([] if is_kept else [_UNKNOWN_TURN])),
        caller_id=one_line(asking.caller_id),
        invoked=asking.invoked,
        sees_images=asking.sees_images,
    )


def _is_kept(parts: Parts, turn: str) -> bool:
    return parts.outage.unless_away(lambda: parts.journal.brief(turn, user=parts.user.name) is not None, True)


def inside(path: str, project: str) -> str:
    """A path as the patterns of skills have it: from the project's root, where it lies in it."""
    return path.removeprefix(f"{project.rstrip('/')}/") if project else path


def _redaction_notice(redactor: CountingRedactor) -> list[str]:
    if not redactor.counts:
        return []
    found = ", ".join(f"{count} × {kind}" for kind, count in sorted(redactor.counts.items()))
    return [f"Secrets were taken out before the model saw them: {found}."]
