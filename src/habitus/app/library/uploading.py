"""Uploading: files as somebody sends them; skills in one are looked at first, and taken in when they say so."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from habitus.app.home import Home
from habitus.app.library.scanning import Scanned, look_at
from habitus.app.library.updating import Manner, TakenIn, take_in
from habitus.app.work.job_kinds import add
from habitus.app.work.jobs import open_queue
from habitus.errors import Invalid, Refused
from habitus.files import disk_errors
from habitus.jobs.model import Job
from habitus.sandbox.given import harmless
from habitus.screening.findings import Policy
from habitus.skills import names, trees
from habitus.skills.formats import detect
from habitus.skills.formats.base import NotTaken
from habitus.skills.layers import USER
from habitus.skills.library import Library

MOST = 3_000  # skills of an upload that are shown, and taken in while whoever sent it waits
FOLDER = "cache/uploads"  # of those that wait for a worker
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
    is_cut: bool  # whether there are more, which a worker takes in


def look(skills: Library, screening: Policy, sent: Upload) -> Looked:
    """Nothing is saved by looking."""
    with _of_skills(sent) as path:
        report = look_at(screening, str(path), most=MOST)
    here = skills.snapshot().by_name
    known = tuple(one.name for one in report.scanned if one.name in here)
    return Looked(scanned=report.scanned, not_read=report.not_read, known=known, is_cut=report.is_cut)


def take(home: Home, sent: Upload, *, overwrite: bool, id: str = "") -> TakenIn | Job:
    """Take it in as an import would: what a scan would hold, waits for a person. More skills than are shown are left
    to a worker, as the job with this id."""
    with _of_skills(sent) as path:
        for number, entry in enumerate(detect.read(path), 1):
            unasked = [one for one in getattr(entry, "tree", ()) if trees.runs_unasked(one)]
            if unasked:
                mend = "Other tools run it by themselves. Take it out, and send the rest."
                raise Refused(f"'{unasked[0]}' can't be a file of a skill.", mend=mend)
            if number > MOST:
                return _leave(home, path, overwrite, id or uuid.uuid4().hex[:12])
        return take_in(home, path, (), USER, Manner(overwrite=overwrite))


def _leave(home: Home, path: Path, overwrite: bool, id: str) -> Job:
    """A job that takes the file in and then removes it."""
    queue = open_queue(home)
    kept = home.settings.home / FOLDER / id / path.name
    kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with disk_errors(kept):
        shutil.copyfile(path, kept)
    add(home.settings, queue, "import", {"source": str(kept), "overwrite": overwrite, "is_upload": True}, id=id)
    return queue.get(id)


def drop(home: Home, job: Job) -> None:
    """Remove the file of an upload that no worker shall take in any more."""
    folder = Path(str(job.given.get("source", ""))).parent
    if job.given.get("is_upload") and folder.parent == home.settings.home / FOLDER:
        shutil.rmtree(folder, ignore_errors=True)


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
