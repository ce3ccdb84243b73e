"""Files that come with a request: text is read, images are shown, speech is written down."""

from __future__ import annotations

import mimetypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from habitus.agent.budget import shortened
from habitus.agent.transcription import Transcriber
from habitus.errors import Invalid
from habitus.llm.model import Image, Text
from habitus.text import one_line

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_MOST_BYTES = 20 * 1024 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Attached:
    names: tuple[str, ...] = ()
    parts: tuple[Text | Image, ...] = ()
    heard: tuple[str, ...] = ()  # joins the request before anything is selected
    notices: tuple[str, ...] = ()


@dataclass(kw_only=True, slots=True)
class _Found:
    parts: list[Text | Image] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


async def read(
    paths: Sequence[Path],
    *,
    sees_images: bool,
    transcribe: Transcriber,
    budget: int,
    sound: Callable[[str], str] = lambda text: text,
) -> Attached:
    """Read what is attached; what can't be used is said, and the turn goes on without it.

    `sound` makes a text fit to be sent, before it is shortened: of a key that was cut in two, no half would be known.
    """
    found = _Found()
    for path in paths:
        kind, name = mimetypes.guess_type(path.name)[0] or "", one_line(path.name)
        if kind.startswith("audio/"):
            _check(path)
            heard = await transcribe(path)
            if heard.text is None:
                found.notices.append(f"{name} was not written down: {heard.reason}")
                found.parts.append(Text(text=f"[Attached recording {name}, which could not be written down.]"))
            else:
                found.heard.append(heard.text)
                said = one_line(sound(heard.text))
                found.parts.append(Text(text=f"[Attached recording {name}; it says: {said}]"))
        elif kind in IMAGES:
            _image(path, name, kind, sees_images, found)
        else:
            _text(path, name, budget // len(paths), sound, found)
    return Attached(
        names=tuple(one_line(path.name) for path in paths),
        parts=tuple(found.parts),
        heard=tuple(found.heard),
        notices=tuple(found.notices),
    )


def _image(path: Path, name: str, kind: str, sees_images: bool, found: _Found) -> None:
    data = _check(path)
    if sees_images:
        found.parts.append(Image(data=data, media_type=kind))
    else:
        found.notices.append(f"The model can't see images; it is only told that {name} is attached.")
        found.parts.append(Text(text=f"[Attached image {name}, which you can't see.]"))


def _text(path: Path, name: str, budget: int, sound: Callable[[str], str], found: _Found) -> None:
    data = _check(path)
    try:
        if b"\0" in data:
            raise UnicodeDecodeError("utf-8", data, 0, 1, "not text")
        written = sound(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        found.notices.append(f"{name} is not text; the model is only told that it is attached.")
        found.parts.append(Text(text=f"[Attached file {name}, {len(data):,} bytes, not text.]"))
        return
    if len(written) > budget * 4:
        found.notices.append(f"{name} is long: the model sees its beginning.")
    found.parts.append(Text(text=f"[Attached file {name}]\n{shortened(written, budget)}\n[End of {name}]"))


def _check(path: Path) -> bytes:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise Invalid(f"{path} is larger than {_MOST_BYTES >> 20} MB.", mend="Attach a smaller part of it.")
        return path.read_bytes()
    except OSError as error:
        raise Invalid(f"Can't attach {path}: {error.strerror}.", mend="Check the path.") from None
