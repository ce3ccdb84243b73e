"""Files as somebody sends them: scanned and looked at first, and taken in when they say so.

A second look is a model's, which quotes lines that rules can't judge and decides nothing alone.
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
    """The skills in a file or folder with what a scan finds, which of them are here already, what is not a skill, and
    whether an import of them would wait."""

    scanned: tuple[Scanned, ...]
    not_read: tuple[NotTaken, ...]
    known: tuple[str, ...]
    held: bool
    is_cut: bool  # whether there are more, which a worker takes in
    second_look: tuple[LookedAgain, ...] | None = None  # where a model was asked

    @property
    def is_failed(self) -> bool:
        return self.held


def look(skills: Library, screening: Policy, sent: Upload) -> Looked:
    """Nothing is saved by looking."""
    with _of_skills(sent) as path:
        return look_at(skills, screening, str(path), most=MOST)


def take(home: Home, sent: Upload, *, overwrite: bool, id: str = "") -> TakenIn | Job:
    """Take it in as an import would: what a scan would hold, waits for a person. More skills than are shown are left
    to a worker, as the job with this id."""
    with _of_skills(sent) as path:
        for number, entry in enumerate(detect.read(path), 1):
            if isinstance(entry, Incoming) and (unasked := entry.run_unasked):
                mend = "Other tools run it by themselves. Take it out, and send the rest."
                raise Refused(f"'{unasked[0]}' can't be a file of a skill.", mend=mend)
            if number > MOST:
                return _leave(home, path, overwrite, id or uuid.uuid4().hex[:12])
        return take_in(home, path, (), USER, ImportOptions(overwrite=overwrite, place=place_of_upload(path)))


def _leave(home: Home, path: Path, overwrite: bool, id: str) -> Job:
    """A job that takes the file in and then removes it."""
    queue = open_queue(home)
    kept = home.settings.home / FOLDER / id / path.name
    kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with disk_errors(kept):
        shutil.copyfile(path, kept)
    add(home.settings, queue, "import", {"source": str(kept), "overwrite": overwrite, "is_upload": True}, id=id)
    return queue.get(id)


def drop(settings: Settings, job: Job) -> None:
    """Remove the file of an upload that no worker shall take in any more."""
    folder = Path(str(job.given.get("source", ""))).parent
    if job.given.get("is_upload") and folder.parent == settings.home / FOLDER:
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
        raise Invalid(f"'{sent.name[:80]}' is not a file of skills.", mend=f"Send one of: {', '.join(_ENDINGS)}.")
    stem = sent.name[: -len(ending)].replace("\\", "/").rpartition("/")[2]
    with laid_out([replace(sent, name=f"{names.slugify(stem)}{ending}")]) as (path,):
        yield path


_MOST_BYTES = 2 * 1024 * 1024  # of one file; a larger one is not text for a model


@dataclass(frozen=True, kw_only=True, slots=True)
class Scanned:
    """A skill, or files that are none, with a finding for each kind of suspicion; `is_held` if an import would wait."""

    name: str
    origin: str
    findings: tuple[Finding, ...]
    is_held: bool
    run_unasked: tuple[str, ...] = ()  # files for which an upload is refused, and that an import leaves out


@dataclass(frozen=True, kw_only=True, slots=True)
class Doubt:
    """A line that a model doubts, as it stands in the file; the verdict is that model's and nobody else's."""

    path: str
    line: int
    quote: str
    why: str
    model: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LookedAgain:
    """The lines of a skill that a model doubts, and whether it was shown only a part."""

    name: str
    doubts: tuple[Doubt, ...]
    is_cut: bool = False


def look_at(skills: Library, screening: Policy, path: str, *, most: int | None = None) -> Looked:
    """Scan the skills at a path as an import would, the first of them where they are many; where there are none, all
    the files."""
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
    """Ask a model about the same skills, within the tokens of the day; what they don't suffice for is cut."""
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
    """The files of a skill, or of none."""

    name: str
    origin: str
    tree: Tree
    run_unasked: tuple[str, ...] = ()


def _skills_at(path: str, most: int | None = None) -> tuple[list[_Files], tuple[NotTaken, ...], bool]:
    """The files of each skill, or all of them where there is none; what can't be read; and whether there are more."""
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
        raise Invalid(f"{path.name} can't be read: {problem}", mend="") from None


def _tree(top: Path) -> Tree:
    """The files at a path that are small enough to be read; links are not followed."""
    paths = [top] if top.is_file() else sorted(top.rglob("*"))
    return {
        str(path.relative_to(top)) if path != top else path.name: file_of(path.read_bytes())
        for path in paths
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= _MOST_BYTES and ".git" not in path.parts
    }


_ROOM = 1_500  # tokens of an answer
_MOST = 40_000  # characters that are shown at once
_PIECES = 10  # of one skill; what says most comes first
_OVERLAP = 500  # characters, so that a line at a border is seen whole


class _Doubt(BaseModel):
    path: str = Field(description="The file.")
    quote: str = Field(description="The line, copied letter by letter.")
    why: str = Field(description="What it would do to the person, in one sentence.")


class _Doubts(BaseModel):
    doubts: list[_Doubt] = Field(default_factory=list, description="At most ten; none is a good answer.")


async def second_look(model: BudgetedModel, name: str, tree: Tree, *, redactor: Redactor) -> LookedAgain:
    """The lines that a model doubts; what it quotes and is not there is left out. Its faults go through, and so does
    the cap where nothing could be shown."""
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
    """The texts below their paths, as much at once as a model is shown."""
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
    """The files that are read or run, the main file first."""
    for path, file in sorted(tree.items(), key=lambda item: (not item[0].lower().endswith("skill.md"), item[0])):
        if file.content is not None and b"\0" not in file.content:
            yield path, file.content.decode("utf-8", "replace")


def _place_doubts(texts: dict[str, str], doubts: list[_Doubt], model: str) -> Iterator[Doubt]:
    for doubt in doubts:
        quote = doubt.quote.strip()
        lines = texts.get(doubt.path, "").split("\n")
        line = next((number for number, text in enumerate(lines, 1) if quote and quote in text), 0)
        if line:
            yield Doubt(path=doubt.path, line=line, quote=quote, why=" ".join(doubt.why.split()), model=model)
