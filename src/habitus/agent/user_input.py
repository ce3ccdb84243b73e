"""Prepares a person's input for a turn: attaches and previews files, transcribes speech, redacts secrets."""

from __future__ import annotations

import errno
import mimetypes
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from habitus.agent.background import run_in_thread
from habitus.agent.previews import FilePreview, preview_file
from habitus.agent.prompts import prompt
from habitus.agent.prompts.composer import ConversationServices
from habitus.agent.prompts.prompt import truncate_to_tokens
from habitus.errors import Invalid
from habitus.llm.model import Image, PersonMessage, TextContent
from habitus.llm.transcription import Transcriber
from habitus.redact import CountingRedactor
from habitus.sandbox.files import GivenFile, GivenFolder
from habitus.skills.choosing.selection import UserRequest
from habitus.skills.model import Skill
from habitus.text import clean_to_one_line, escape_lines_resembling_prompt_marks, replace_surrogates

_UNKNOWN_TURN = "The turn this replies to is not stored; its skills are not included."


@dataclass(frozen=True, kw_only=True, slots=True)
class SubmittedRequest:
    """A request as submitted."""

    text: str
    attach: Sequence[Path] = ()
    caller_id: str = ""
    reply_to: str = ""
    # Files the work is about.
    paths: Sequence[str] = ()
    # Kinds of resources the person has.
    resources: Collection[str] = ()
    # Experiments enabled for this turn.
    features: Collection[str] = ()
    # A skill the person calls by name.
    invoked: Skill | None = None
    # Whether the model that reads it sees images.
    sees_images: bool = False
    # A host may not know the request text.
    may_be_blank: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedUserInput:
    """The prepared request with its attachments."""

    request: UserRequest
    asking: SubmittedRequest
    parts: tuple[TextContent | Image, ...] = ()
    notices: tuple[str, ...] = ()


async def prepare_user_input(
    parts: ConversationServices, asking: SubmittedRequest, *, conversation: str
) -> PreparedUserInput:
    """Prepare a request: read its attachments, redact secrets and validate it."""
    redactor = CountingRedactor(parts.view.redactor)

    def sound(text: str) -> str:
        """A text that can be sent: encodable, without secrets, and unable to speak for us."""
        return escape_lines_resembling_prompt_marks(redactor.redact(replace_surrogates(text)).text)

    def clean(content: bytes) -> bytes:
        """A file without secrets, where it is text."""
        # Redacting binary data would corrupt it.
        if b"\0" in content:
            return content
        text = content.decode("utf-8", "surrogateescape")
        return redactor.redact(text).text.encode("utf-8", "surrogateescape")

    attached = await copy_and_describe_attachments(
        asking.attach,
        given=parts.given,
        sees_images=asking.sees_images,
        transcribe=parts.transcribe,
        budget=int(parts.context_tokens * prompt.ATTACHED_SHARE),
        clean_text=sound,
        clean=clean,
    )
    text = sound("\n\n".join(part for part in (asking.text, *attached.transcripts) if part.strip()))
    if not text.strip() and not attached.parts and not asking.may_be_blank:
        raise Invalid("The message is empty.", hint="Write a request, or attach a file.")
    is_kept = not asking.reply_to or await run_in_thread(lambda: _is_turn_recorded(parts, asking.reply_to))
    request = UserRequest(
        text=text,
        source_type=parts.source_type,
        user=parts.view.user,
        attachments=tuple(clean_to_one_line(sound(path.name)) for path in asking.attach),
        conversation=conversation,
        reply_to=asking.reply_to if is_kept else "",
        paths=tuple(replace_surrogates(make_path_relative_to_project(path, parts.project)) for path in asking.paths),
        resources=frozenset(map(replace_surrogates, asking.resources)),
        features=frozenset(map(replace_surrogates, asking.features)),
        now=parts.clock(),
    )
    called = []
    if (skill := asking.invoked) is not None:
        body = redactor.redact(replace_surrogates(skill.body)).text
        files = await run_in_thread(lambda: parts.files.place_and_describe_files(skill))
        called.append(prompt.build_invoked_skill_part(replace(skill, body=body), redactor.redact(files).text))
    return PreparedUserInput(
        request=request,
        asking=asking,
        parts=(*called, *attached.parts),
        notices=(*attached.notices, *_build_redaction_notices(redactor), *([] if is_kept else [_UNKNOWN_TURN])),
    )


def _is_turn_recorded(parts: ConversationServices, turn: str) -> bool:
    return parts.view.outage.read_or_default(
        lambda: parts.journal.find_brief_turn(turn, user=parts.view.user.name) is not None, True
    )


def make_path_relative_to_project(path: str, project: str) -> str:
    """Return a path relative to the project's root, as the patterns of skills expect; unchanged if outside."""
    return path.removeprefix(f"{project.rstrip('/')}/") if project else path


def _build_redaction_notices(redactor: CountingRedactor) -> list[str]:
    if not redactor.counts:
        return []
    found = ", ".join(f"{count} × {kind}" for kind, count in sorted(redactor.counts.items()))
    return [f"Secrets were removed before the model saw them: {found}."]


IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
# No provider accepts larger images.
_LARGEST_IMAGE = 20 * 1024 * 1024
# In tokens: a text up to the first is shown whole, a preview is cut at the second.
_WHOLE, _PREVIEW = 2_000, 1_000

# Low, because the recogniser gives 0.2 to synthetic speech that it mostly understood; below it, words are guesses that
# would select the wrong skills.
_MIN_CONFIDENCE = 0.15

_AT = ", read-only at "
_SAID = re.compile(rf"\[Attached (?:file|image|recording) ([^\n]+), [\d.]+ \w+{_AT}")

_READ_IT = "start with --read FOLDER, which copies nothing."
_HINTS = {
    errno.EISDIR: f"For a folder, {_READ_IT}",
    **dict.fromkeys((errno.EFBIG, errno.ENOSPC), f"For a large one, {_READ_IT}"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class _AttachedFile:
    """One attached file: its name in the prompt and its copy."""

    name: str
    laid: GivenFile

    def __str__(self) -> str:
        return f"{self.name}, {format_byte_size(self.laid.size)}{_AT}{self.laid.path}"


@dataclass(kw_only=True, slots=True)
class PreparedAttachments:
    """The attachments of a request, prepared for the model."""

    parts: list[TextContent | Image] = field(default_factory=list)
    # Joins the request before skills are selected, so speech selects skills too.
    transcripts: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


async def copy_and_describe_attachments(
    paths: Sequence[Path],
    *,
    given: GivenFolder,
    sees_images: bool,
    transcribe: Transcriber,
    budget: int,
    clean_text: Callable[[str], str] = lambda text: text,
    clean: Callable[[bytes], bytes] = bytes,
) -> PreparedAttachments:
    """Copy attachments to where cells run, and describe them for the model.

    `clean_text` redacts a text before it is shortened, because half of a secret could not be recognized.
    `clean` redacts the copies that code reads.
    """
    found = PreparedAttachments()
    for path in paths:
        file = await run_in_thread(
            partial(_copy_attachment, path, clean_to_one_line(clean_text(path.name)), given, clean)
        )
        kind = mimetypes.guess_type(path.name)[0] or ""
        if kind.startswith("audio/"):
            await _attach_transcribed_recording(path, file, transcribe, clean_text, found)
        elif kind in IMAGES:
            await _attach_image(file, kind, sees_images, found)
        else:
            await _attach_file_preview(path, file, budget // len(paths), clean_text, found)
    return found


def _copy_attachment(path: Path, name: str, given: GivenFolder, clean: Callable[[bytes], bytes]) -> _AttachedFile:
    try:
        return _AttachedFile(name=name, laid=given.copy_user_file_under_free_name(path, clean, name=name))
    except OSError as error:
        hint = _HINTS.get(error.errno or 0, "Check the path.")
        raise Invalid(f"Can't attach {path}: {error.strerror}.", hint=hint) from None


async def _attach_transcribed_recording(
    path: Path, file: _AttachedFile, transcribe: Transcriber, sound: Callable[[str], str], found: PreparedAttachments
) -> None:
    heard = await transcribe(path)
    if heard.text is None:
        found.notices.append(f"{file.name} was not written down: {heard.reason}")
        found.parts.append(TextContent(text=f"[Attached recording {file}, which could not be written down.]"))
        return
    sure = "" if heard.confidence is None else f", {heard.confidence:.0%} sure"
    if heard.confidence is not None and heard.confidence < _MIN_CONFIDENCE:
        found.notices.append(f"{file.name} was too unclear to be written down{sure}; it was left out.")
        found.parts.append(TextContent(text=f"[Attached recording {file}, too unclear to be written down.]"))
        return
    found.transcripts.append(f"[transcribed{sure}] {heard.text}")
    words = clean_to_one_line(sound(heard.text))
    found.parts.append(TextContent(text=f"[Attached recording {file}; transcribed{sure}, it says: {words}]"))


async def _attach_image(file: _AttachedFile, kind: str, sees_images: bool, found: PreparedAttachments) -> None:
    if not sees_images:
        found.notices.append(f"The model can't see images; it is only told that {file.name} is attached.")
        found.parts.append(TextContent(text=f"[Attached image {file}, which you can't see.]"))
    elif file.laid.size > _LARGEST_IMAGE:
        found.notices.append(f"{file.name} is too large to be shown to the model: {format_byte_size(file.laid.size)}.")
        found.parts.append(TextContent(text=f"[Attached image {file}, too large to be shown.]"))
    else:
        data = await run_in_thread(file.laid.copy.read_bytes)
        found.parts += [TextContent(text=f"[Attached image {file}]"), Image(data=data, media_type=kind)]


async def _attach_file_preview(
    path: Path, file: _AttachedFile, budget: int, sound: Callable[[str], str], found: PreparedAttachments
) -> None:
    room = min(budget, _WHOLE) * 4
    try:
        seen: FilePreview = await run_in_thread(
            lambda: preview_file(file.laid.copy, ending=path.suffix.lower(), room=room)
        )
    except OSError as error:
        raise Invalid(f"Can't attach {path}: {error.strerror}.", hint="Check the path.") from None
    lines = sound("\n".join(seen.lines))
    if not seen.is_whole:
        lines = truncate_to_tokens(lines, min(budget, _PREVIEW))
        shown = "sees a preview" if lines else f"only knows that it is a {clean_to_one_line(seen.kind)}"
        found.notices.append(f"{file}: the model {shown}.")
    part = [f"[Attached file {file}: {clean_to_one_line(seen.kind)}]", lines, f"[End of {file.name}]"]
    found.parts.append(TextContent(text="\n".join(filter(None, part))))


def list_attached_file_names(message: PersonMessage) -> tuple[str, ...]:
    """Return the names of the attached files as the message calls them."""
    said = [_SAID.match(part.text) for part in message.parts if isinstance(part, TextContent)]
    return tuple(found[1] for found in said if found is not None)


def format_byte_size(size: int) -> str:
    """Format a size for people: `1.5 MB`."""
    if size < 1000:
        return f"{size} bytes"
    amount = float(size)
    for unit in ("kB", "MB"):
        amount /= 1000
        if amount < 999.5:
            return f"{amount:.2g} {unit}" if amount < 10 else f"{amount:.0f} {unit}"
    return f"{amount / 1000:.1f} GB"
