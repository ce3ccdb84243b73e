"""Uploaded files: scan and preview them first, then import them once the sender confirms.

A second opinion comes from a model, which quotes suspicious lines that rules miss and decides nothing on its own.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from pydantic import BaseModel, Field

from habitus.app.home import Home
from habitus.app.library.updating import ImportOptions, TakenIn, place_of_upload, take_in
from habitus.app.operating.job_kinds import add
from habitus.app.operating.jobs import open_queue
from habitus.errors import Invalid, Refused
from habitus.files import Tree, disk_errors, file_of, given_path
from habitus.jobs.model import Job
from habitus.learning.budget import Budget, BudgetedModel, CapReached, ask_within
from habitus.llm.model import Model
from habitus.redact import Redactor
from habitus.sandbox.files import harmless
from habitus.screening.findings import Finding, Policy, by_kind, is_clean
from habitus.screening.scanner import scan
from habitus.settings import Settings
from habitus.skills import names
from habitus.skills.formats import archives, detect
from habitus.skills.formats.base import CantTake, Incoming, NotTaken
from habitus.skills.layers.layer import USER
from habitus.skills.library import Library
from habitus.text import prompt_text

# Above this, an upload takes longer than a browser waits, so a worker imports it.
MOST = 3_000
# Uploads waiting for a worker.
FOLDER = "cache/uploads"
_ENDINGS = (".md", ".zip", ".skill", ".tar.gz", ".tgz")


@dataclass(frozen=True, kw_only=True, slots=True)
class Upload:
    """A file as it was sent; its name is chosen by the sender and not trusted."""

    name: str
    content: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Looked:
    """The skills found in a file or folder with scan findings; which exist already, and which files are not skills."""

    scanned: tuple[Scanned, ...]
    not_read: tuple[NotTaken, ...]
    known: tuple[str, ...]
    held: bool
    # Whether there are more skills, which a worker imports.
    is_cut: bool
    # None unless a model was asked.
    second_look: tuple[LookedAgain, ...] | None = None

    @property
    def is_failed(self) -> bool:
        """Whether an import would be held for review."""
        return self.held


def look(skills: Library, screening: Policy, sent: Upload) -> Looked:
    """Preview an upload; nothing is saved."""
    with _of_skills(sent) as path:
        return look_at(skills, screening, str(path), most=MOST)


def take(home: Home, sent: Upload, *, overwrite: bool, id: str = "") -> TakenIn | Job:
    """Import an upload; skills with findings are held for review.

    An upload with too many skills becomes a job with this id.
    """
    with _of_skills(sent) as path:
        for number, entry in enumerate(detect.read(path), 1):
            if isinstance(entry, Incoming) and (unasked := entry.run_unasked):
                hint = "Other tools run it by themselves. Take it out, and send the rest."
                raise Refused(f"'{unasked[0]}' can't be a file of a skill.", hint=hint)
            if number > MOST:
                return _leave(home, path, overwrite, id or uuid.uuid4().hex[:12])
        return take_in(home, path, (), USER, ImportOptions(overwrite=overwrite, place=place_of_upload(path)))


def _leave(home: Home, path: Path, overwrite: bool, id: str) -> Job:
    """Queue a job that imports the file and then deletes it."""
    queue = open_queue(home)
    kept = home.settings.home / FOLDER / id / path.name
    kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with disk_errors(kept):
        shutil.copyfile(path, kept)
    add(home.settings, queue, "import", {"source": str(kept), "overwrite": overwrite, "is_upload": True}, id=id)
    return queue.get(id)


def drop(settings: Settings, job: Job) -> None:
    """Delete the file of an upload that no worker will import any more."""
    folder = Path(str(job.given.get("source", ""))).parent
    # The path comes from the job's data: only delete inside our own folder.
    if job.given.get("is_upload") and folder.parent == settings.home / FOLDER:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def laid_out(files: Sequence[Upload]) -> Iterator[tuple[Path, ...]]:
    """Write files to temporary directories, one each, under a sanitised form of their names."""
    with tempfile.TemporaryDirectory(prefix="habitus-upload-") as place:
        paths = [Path(place) / str(number) / harmless(file.name) for number, file in enumerate(files)]
        for path, file in zip(paths, files, strict=True):
            path.parent.mkdir()
            path.write_bytes(file.content)
        yield tuple(paths)


@contextmanager
def _of_skills(sent: Upload) -> Iterator[Path]:
    """Write an uploaded skill file under a safe name with its original suffix. Raises `Invalid` for other types."""
    ending = next((ending for ending in _ENDINGS if sent.name.lower().endswith(ending)), "")
    if not ending:
        raise Invalid(f"'{sent.name[:80]}' is not a file of skills.", hint=f"Send one of: {', '.join(_ENDINGS)}.")
    stem = sent.name[: -len(ending)].replace("\\", "/").rpartition("/")[2]
    with laid_out([replace(sent, name=f"{names.slugify(stem)}{ending}")]) as (path,):
        yield path


# A larger file is not text for a model.
_MOST_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Scanned:
    """A skill, or loose files, with one finding per kind; `is_held` if an import would be held for review."""

    name: str
    origin: str
    findings: tuple[Finding, ...]
    is_held: bool
    # Files that other tools execute: an upload with them is refused, an import skips them.
    run_unasked: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Doubt:
    """A line that a model considers suspicious, as it stands in the file."""

    path: str
    line: int
    quote: str
    why: str
    model: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LookedAgain:
    """The lines of a skill that a model finds suspicious; `is_cut` if it saw only a part."""

    name: str
    doubts: tuple[Doubt, ...]
    is_cut: bool = False


def look_at(skills: Library, screening: Policy, path: str, *, most: int | None = None) -> Looked:
    """Scan the skills at a path as an import would, at most `limit` of them; without skills, scan all files."""
    found, not_read, is_cut = _skills_at(path, most)
    scanned = tuple(_scan_files(screening, one) for one in found)
    here = skills.snapshot().by_name
    return Looked(
        scanned=scanned,
        not_read=not_read,
        known=tuple(one.name for one in scanned if one.name in here),
        held=any(one.is_held for one in scanned),
        is_cut=is_cut,
    )


async def look_again(home: Home, path: str, model: Model) -> list[LookedAgain]:
    """Ask a model about the same skills, within today's token budget; skills beyond it are marked as cut."""
    paid = Budget(day=home.spending).model(model)
    done: list[LookedAgain] = []
    for one in _skills_at(path)[0]:
        try:
            done.append(await second_look(paid, one.name, one.tree, redactor=home.redactor))
        except CapReached:
            if not done:
                raise
            done.append(LookedAgain(name=one.name, doubts=(), is_cut=True))
    return done


@dataclass(frozen=True, kw_only=True, slots=True)
class _Files:
    """The files of a skill, or loose files."""

    name: str
    origin: str
    tree: Tree
    run_unasked: tuple[str, ...] = ()


def _skills_at(path: str, most: int | None = None) -> tuple[list[_Files], tuple[NotTaken, ...], bool]:
    """Return the files of each skill (or all files if there is no skill), unreadable entries, and whether there are
    more."""
    source = given_path(path)
    detect.check_readable(source)
    found = detect.read(source, keep_both=True)
    entries = list(islice(found, most))
    is_cut = next(found, None) is not None
    skills = [
        _Files(name=entry.name, origin=entry.origin, tree=entry.tree, run_unasked=entry.run_unasked)
        for entry in entries
        if isinstance(entry, Incoming)
    ]
    if not skills:
        return list(_plain_files(source)), (), False
    return skills, tuple(entry for entry in entries if isinstance(entry, NotTaken)), is_cut


def _scan_files(screening: Policy, of: _Files) -> Scanned:
    findings = by_kind(scan(of.tree, screening))
    return Scanned(
        name=of.name,
        origin=of.origin,
        findings=findings,
        is_held=not is_clean(findings),
        run_unasked=of.run_unasked,
    )


def _plain_files(path: Path) -> Iterator[_Files]:
    if not archives.is_archive(path):
        yield _Files(name=path.name, origin=str(path), tree=_tree(path))
        return
    try:
        with archives.unpack(path) as top:
            yield _Files(name=path.name, origin=str(path), tree=_tree(top))
    except CantTake as problem:
        raise Invalid(f"{path.name} can't be read: {problem}", hint="") from None


def _tree(top: Path) -> Tree:
    """Return the files at a path that are small enough to read; links are not followed."""
    paths = [top] if top.is_file() else sorted(top.rglob("*"))
    return {
        str(path.relative_to(top)) if path != top else path.name: file_of(path.read_bytes())
        for path in paths
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= _MOST_BYTES and ".git" not in path.parts
    }


# Tokens for one reply.
_ROOM = 1_500
# Characters sent in one piece.
_MOST = 40_000
# Pieces per skill; the main file comes first.
_PIECES = 10
# Characters that two pieces share, so a line at the border is seen whole.
_OVERLAP = 500


class _Doubt(BaseModel):
    path: str = Field(description="The file.")
    quote: str = Field(description="The line, copied letter by letter.")
    why: str = Field(description="What it would do to the person, in one sentence.")


class _Doubts(BaseModel):
    doubts: list[_Doubt] = Field(default_factory=list, description="At most ten; none is a good answer.")


async def second_look(model: BudgetedModel, name: str, tree: Tree, *, redactor: Redactor) -> LookedAgain:
    """Ask a model for suspicious lines; quotes that are not in the file are dropped.

    Provider errors propagate, and so does `CapReached` if nothing could be sent at all.
    """
    texts = dict(_texts(tree))
    pieces = list(_pieces((path, redactor.redact(text).text) for path, text in texts.items()))
    is_cut = len(pieces) > _PIECES or any(file.content is None for file in tree.values())
    found: list[_Doubt] = []
    for number, record in enumerate(pieces[:_PIECES]):
        try:
            prompt = prompt_text("learning", "second-look")
            found += (await ask_within(model, _Doubts, system=prompt, record=record, room=_ROOM)).doubts
        except CapReached:
            if number == 0:
                raise
            is_cut = True
            break
    doubts = dict.fromkeys(_place_doubts(texts, found, model.name))
    return LookedAgain(name=name, doubts=tuple(doubts), is_cut=is_cut)


def _pieces(texts: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Split the texts, each below its path, into pieces of the size a model gets at once."""
    piece = ""
    for path, text in texts:
        head, start = f"# {path}\n\n", 0
        while start < len(text):
            if piece and _MOST - len(piece) - len(head) < 2 * _OVERLAP:
                yield piece
                piece = ""
            end = start + max(_MOST - len(piece) - len(head), 2 * _OVERLAP)
            piece += f"{head}{text[start:end]}\n\n"
            start = end - _OVERLAP if end < len(text) else end
    if piece:
        yield piece


def _texts(tree: Tree) -> Iterator[tuple[str, str]]:
    """Yield the text files, the main file first."""
    for path, file in sorted(tree.items(), key=lambda item: (not item[0].lower().endswith("skill.md"), item[0])):
        if file.content is not None and b"\0" not in file.content:
            yield path, file.content.decode("utf-8", "replace")


def _place_doubts(texts: dict[str, str], doubts: list[_Doubt], model: str) -> Iterator[Doubt]:
    """Yield the quotes that exist in the files, with their line numbers."""
    for doubt in doubts:
        quote = doubt.quote.strip()
        lines = texts.get(doubt.path, "").split("\n")
        # A model may invent a quote: only lines that really exist are shown.
        line = next((number for number, text in enumerate(lines, 1) if quote and quote in text), 0)
        if line:
            yield Doubt(path=doubt.path, line=line, quote=quote, why=" ".join(doubt.why.split()), model=model)
