"""Uploading: files as somebody sends them; skills in one are looked at first, and taken in when they say so."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from habitus.app.home import Home
from habitus.app.library.scanning import Scanned, look_at
from habitus.app.library.updating import Manner, TakenIn, take_in
from habitus.errors import Invalid, Refused
from habitus.sandbox.given import harmless
from habitus.screening.policy import Policy
from habitus.skills import names, trees
from habitus.skills.formats import detect
from habitus.skills.formats.base import NotTaken
from habitus.skills.layers import USER
from habitus.skills.library import Library

_ENDINGS = (".md", ".zip", ".skill", ".tar.gz", ".tgz")


@dataclass(frozen=True, kw_only=True, slots=True)
class Upload:
    """A file as it was sent; its name is anybody's."""

    name: str
    content: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Looked:
    """The skills in an upload with what a scan finds, which of them are here already, and what is no skill."""

    scanned: tuple[Scanned, ...]
    not_read: tuple[NotTaken, ...]
    known: tuple[str, ...]


def look(skills: Library, screening: Policy, sent: Upload) -> Looked:
    """Nothing is saved by looking."""
    with _of_skills(sent) as path:
        report = look_at(screening, str(path))
    here = skills.snapshot().by_name
    known = tuple(one.name for one in report.scanned if one.name in here)
    return Looked(scanned=report.scanned, not_read=report.not_read, known=known)


def take(home: Home, sent: Upload, *, overwrite: bool) -> TakenIn:
    """Take it in as an import would: what a scan would hold, waits for a person."""
    with _of_skills(sent) as path:
        for entry in detect.read(path):
            unasked = [one for one in getattr(entry, "tree", ()) if trees.runs_unasked(one)]
            if unasked:
                mend = "Other tools run it by themselves. Take it out, and send the rest."
                raise Refused(f"'{unasked[0]}' can't be a file of a skill.", mend=mend)
        return take_in(home, path, (), USER, Manner(overwrite=overwrite))


@contextmanager
def laid_out(files: Sequence[Upload]) -> Iterator[tuple[Path, ...]]:
    """Each in a directory of its own, under its name as far as that is harmless, for as long as they are read."""
    with tempfile.TemporaryDirectory(prefix="habitus-upload-") as place:
        paths = [Path(place) / str(number) / harmless(file.name) for number, file in enumerate(files)]
        for path, file in zip(paths, files, strict=True):
            path.parent.mkdir()
            path.write_bytes(file.content)
        yield tuple(paths)


@contextmanager
def _of_skills(sent: Upload) -> Iterator[Path]:
    """The file under a name of ours that keeps what its own says."""
    ending = next((ending for ending in _ENDINGS if sent.name.lower().endswith(ending)), "")
    if not ending:
        raise Invalid(f"'{sent.name[:80]}' is no file of skills.", mend=f"Send one of: {', '.join(_ENDINGS)}.")
    stem = sent.name[: -len(ending)].replace("\\", "/").rpartition("/")[2]
    with laid_out([replace(sent, name=f"{names.slugify(stem)}{ending}")]) as (path,):
        yield path
