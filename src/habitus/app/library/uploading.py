"""Uploaded files: scan and preview them first, then import them once the sender confirms.

A second opinion comes from a model, which quotes suspicious lines that rules miss and decides nothing on its own.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from pydantic import BaseModel, Field

from habitus.app.home import Home
from habitus.app.library.importing import ImportOptions, ImportResult, build_upload_origin, import_skills
from habitus.app.operating.job_kinds import add_job
from habitus.app.operating.jobs import open_job_queue
from habitus.errors import Invalid, Refused
from habitus.files import Tree, build_tree_file, parse_user_path, translate_disk_errors
from habitus.jobs.model import Job
from habitus.learning.budget import BudgetedModel, BudgetReachedError, RunBudget, ask_for_structured_answer
from habitus.llm.model import Model
from habitus.redact import Redactor
from habitus.sandbox.files import sanitize_file_name
from habitus.screening.findings import (
    Finding,
    RiskLevel,
    ScreeningPolicy,
    ThreatKind,
    has_no_high_risk_finding,
    merge_findings_of_each_rule,
)
from habitus.screening.scanner import scan_skill
from habitus.settings import Settings
from habitus.skills import names
from habitus.skills.auto_executed import is_vcs_file_or_folder_name
from habitus.skills.formats import archives, detect
from habitus.skills.formats.base import IncomingSkill, SkippedEntry, UnreadableEntryError
from habitus.skills.layers.layer import USER_LAYER
from habitus.skills.library import Library
from habitus.text import load_prompt

# Above this, an upload takes longer than a browser waits, so a worker imports it.
MAX_SKILLS = 3_000
# Uploads waiting for a worker.
UPLOADS_DIR = "cache/uploads"
_SUFFIXES = (".md", ".zip", ".skill", ".tar.gz", ".tgz")


@dataclass(frozen=True, kw_only=True, slots=True)
class UploadedFile:
    """A file as it was sent; its name is chosen by the sender and not trusted."""

    name: str
    content: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportPreview:
    """The skills found in a file or folder with scan findings; which exist already, and which files are not skills."""

    scanned: tuple[ScannedSkill, ...]
    unreadable: tuple[SkippedEntry, ...]
    known: tuple[str, ...]
    is_held: bool
    # Whether there are more skills, which a worker imports.
    is_cut: bool
    # None unless a model was asked.
    second_opinions: tuple[ModelSecurityOpinion, ...] | None = None

    @property
    def is_failed(self) -> bool:
        """Whether an import would be held for review."""
        return self.is_held

    @property
    def held_skill_names_by_threat(self) -> Mapping[str, list[str]]:
        """The names of the skills that need review, by what they would do."""
        return group_skills_by_threat(
            (one.name, found.rule) for one in self.scanned for found in one.findings if found.severity is RiskLevel.HIGH
        )


_DEEDS: Mapping[str, str] = {
    ThreatKind.SENDS_SECRETS: "Sends secrets to a stranger",
    ThreatKind.SENDS_PRIVATE_DATA: "Sends private data to a stranger",
    ThreatKind.RUNS_DOWNLOADS: "Downloads and runs something",
    ThreatKind.DESTROYS: "Destroys files",
    ThreatKind.STARTS_ITSELF: "Starts by itself",
    ThreatKind.CONCEALS: "Hides what it does",
    ThreatKind.OVERRIDES: "Sets itself above your instructions",
    ThreatKind.OPENS_ACCESS: "Opens a way in",
    ThreatKind.WEAKENS: "Switches off what protects you",
}


def group_skills_by_threat(found: Iterable[tuple[str, str]]) -> Mapping[str, list[str]]:
    """Return the names of skills by what their findings say they would do; each finding is a name and a rule."""
    groups: dict[str, dict[str, None]] = {}
    for name, rule in found:
        groups.setdefault(_DEEDS.get(rule, "Other findings"), {})[name] = None
    return {threat: list(names) for threat, names in groups.items()}


def preview_upload(skills: Library, screening: ScreeningPolicy, upload: UploadedFile) -> ImportPreview:
    """Preview an upload; nothing is saved."""
    with _write_skill_upload_to_temporary_file(upload) as path:
        return preview_import(skills, screening, str(path), limit=MAX_SKILLS)


def import_upload(
    home: Home, upload: UploadedFile, *, overwrite: bool, skip_held: bool = False, id: str = ""
) -> ImportResult | Job:
    """Import an upload; skills with findings are held for review, or left out with `skip_held`.

    An upload with too many skills becomes a job with this id.
    """
    with _write_skill_upload_to_temporary_file(upload) as path:
        for number, entry in enumerate(detect.read_entries(path), 1):
            if isinstance(entry, IncomingSkill) and (unasked := entry.auto_executed_files):
                hint = "Other tools run it automatically. Remove it, then send the rest."
                raise Refused(f"'{unasked[0]}' can't be a file of a skill.", hint=hint)
            if number > MAX_SKILLS:
                return _queue_import(home, path, overwrite, id or uuid.uuid4().hex[:12])
        return import_skills(
            home,
            path,
            (),
            USER_LAYER,
            ImportOptions(overwrite=overwrite, skip_held=skip_held, place=build_upload_origin(path)),
        )


def _queue_import(home: Home, path: Path, overwrite: bool, id: str) -> Job:
    """Queue a job that imports the file and then deletes it."""
    queue = open_job_queue(home)
    kept = home.settings.home / UPLOADS_DIR / id / path.name
    kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with translate_disk_errors(kept):
        shutil.copyfile(path, kept)
    add_job(home.settings, queue, "import", {"source": str(kept), "overwrite": overwrite, "is_upload": True}, id=id)
    return queue.get(id)


def discard_upload(settings: Settings, job: Job) -> None:
    """Delete the file of an upload that no worker will import any more."""
    folder = Path(str(job.arguments.get("source", ""))).parent
    # The path comes from the job's data: only delete inside our own folder.
    if job.arguments.get("is_upload") and folder.parent == settings.home / UPLOADS_DIR:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def write_uploads_to_temporary_folders(files: Sequence[UploadedFile]) -> Iterator[tuple[Path, ...]]:
    """Write files to temporary directories, one each, under a sanitised form of their names."""
    with tempfile.TemporaryDirectory(prefix="habitus-upload-") as place:
        paths = [Path(place) / str(number) / sanitize_file_name(file.name) for number, file in enumerate(files)]
        for path, file in zip(paths, files, strict=True):
            path.parent.mkdir()
            path.write_bytes(file.content)
        yield tuple(paths)


@contextmanager
def _write_skill_upload_to_temporary_file(upload: UploadedFile) -> Iterator[Path]:
    """Write an uploaded skill file under a safe name with its original suffix. Raises `Invalid` for other types."""
    ending = next((ending for ending in _SUFFIXES if upload.name.lower().endswith(ending)), "")
    if not ending:
        raise Invalid(f"'{upload.name[:80]}' is not a file of skills.", hint=f"Send one of: {', '.join(_SUFFIXES)}.")
    stem = upload.name[: -len(ending)].replace("\\", "/").rpartition("/")[2]
    with write_uploads_to_temporary_folders([replace(upload, name=f"{names.slugify(stem)}{ending}")]) as (path,):
        yield path


# A larger file is not text for a model.
_MAX_FILE_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class ScannedSkill:
    """A skill, or loose files, with one finding per kind; `is_held` if an import would be held for review."""

    name: str
    origin: str
    findings: tuple[Finding, ...]
    is_held: bool
    # Files that other tools execute: an upload with them is refused, an import skips them.
    run_unasked: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SuspiciousLine:
    """A line that a model considers suspicious, as it stands in the file."""

    path: str
    line: int
    quote: str
    why: str
    model: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSecurityOpinion:
    """The lines of a skill that a model finds suspicious; `is_cut` if it saw only a part."""

    name: str
    doubts: tuple[SuspiciousLine, ...]
    is_cut: bool = False


def preview_import(
    skills: Library, screening: ScreeningPolicy, path: str, *, limit: int | None = None
) -> ImportPreview:
    """Scan the skills at a path as an import would, at most `limit` of them; without skills, scan all files."""
    found, not_read, is_cut = _read_scannable_skills(path, limit)
    scanned = tuple(_scan_files(screening, one) for one in found)
    here = skills.snapshot().by_name
    return ImportPreview(
        scanned=scanned,
        unreadable=not_read,
        known=tuple(one.name for one in scanned if one.name in here),
        is_held=any(one.is_held for one in scanned),
        is_cut=is_cut,
    )


async def ask_model_about_scanned_skills(home: Home, path: str, model: Model) -> list[ModelSecurityOpinion]:
    """Ask a model about the same skills, within today's token budget; skills beyond it are marked as cut."""
    paid = RunBudget(day=home.spending).wrap_model(model)
    done: list[ModelSecurityOpinion] = []
    for one in _read_scannable_skills(path)[0]:
        try:
            done.append(await ask_model_for_suspicious_lines(paid, one.name, one.tree, redactor=home.redactor))
        except BudgetReachedError:
            if not done:
                raise
            done.append(ModelSecurityOpinion(name=one.name, doubts=(), is_cut=True))
    return done


@dataclass(frozen=True, kw_only=True, slots=True)
class _ScannableFiles:
    """The files of a skill, or loose files."""

    name: str
    origin: str
    tree: Tree
    run_unasked: tuple[str, ...] = ()


def _read_scannable_skills(
    path: str, limit: int | None = None
) -> tuple[list[_ScannableFiles], tuple[SkippedEntry, ...], bool]:
    """Return the files of each skill (or all files if there is no skill), unreadable entries, and whether there are
    more."""
    source = parse_user_path(path)
    detect.check_readable(source)
    found = detect.read_entries(source, keep_both=True)
    entries = list(islice(found, limit))
    is_cut = next(found, None) is not None
    skills = [
        _ScannableFiles(name=entry.name, origin=entry.origin, tree=entry.tree, run_unasked=entry.auto_executed_files)
        for entry in entries
        if isinstance(entry, IncomingSkill)
    ]
    if not skills:
        return list(_read_files_without_skills(source)), (), False
    return skills, tuple(entry for entry in entries if isinstance(entry, SkippedEntry)), is_cut


def _scan_files(screening: ScreeningPolicy, of: _ScannableFiles) -> ScannedSkill:
    findings = merge_findings_of_each_rule(scan_skill(of.tree, screening))
    return ScannedSkill(
        name=of.name,
        origin=of.origin,
        findings=findings,
        is_held=not has_no_high_risk_finding(findings),
        run_unasked=of.run_unasked,
    )


def _read_files_without_skills(path: Path) -> Iterator[_ScannableFiles]:
    if not archives.is_archive(path):
        yield _ScannableFiles(name=path.name, origin=str(path), tree=_read_tree(path))
        return
    try:
        with archives.unpack_archive_to_temporary_folder(path) as top:
            yield _ScannableFiles(name=path.name, origin=str(path), tree=_read_tree(top))
    except UnreadableEntryError as problem:
        raise Invalid(f"{path.name} can't be read: {problem}", hint="") from None


def _read_tree(top: Path) -> Tree:
    """Return the files at a path that are small enough to read; links are not followed."""
    paths = [top] if top.is_file() else sorted(top.rglob("*"))
    return {
        str(path.relative_to(top)) if path != top else path.name: build_tree_file(path.read_bytes())
        for path in paths
        if path.is_file()
        and not path.is_symlink()
        and path.stat().st_size <= _MAX_FILE_BYTES
        and not any(map(is_vcs_file_or_folder_name, path.parts))
    }


# Tokens for one reply.
_MAX_REPLY_TOKENS = 1_500
# Characters sent in one piece.
_MAX_PIECE_CHARS = 40_000
# Pieces per skill; the main file comes first.
_MAX_PIECES = 10
# Characters that two pieces share, so a line at the border is seen whole.
_OVERLAP_CHARS = 500


class _ModelQuotedLine(BaseModel):
    path: str = Field(description="The file.")
    quote: str = Field(description="The line, copied letter by letter.")
    why: str = Field(description="What it would do to the person, in one sentence.")


class _ModelSecurityOpinionReply(BaseModel):
    doubts: list[_ModelQuotedLine] = Field(default_factory=list, description="At most ten; none is a good answer.")


async def ask_model_for_suspicious_lines(
    model: BudgetedModel, name: str, tree: Tree, *, redactor: Redactor
) -> ModelSecurityOpinion:
    """Ask a model for suspicious lines; quotes that are not in the file are dropped.

    Provider errors propagate, and so does `BudgetReachedError` if nothing could be sent at all.
    """
    texts = dict(_iterate_text_files(tree))
    pieces = list(_split_texts_for_model((path, redactor.redact(text).text) for path, text in texts.items()))
    is_cut = len(pieces) > _MAX_PIECES or any(file.content is None for file in tree.values())
    found: list[_ModelQuotedLine] = []
    for number, record in enumerate(pieces[:_MAX_PIECES]):
        try:
            prompt = load_prompt("learning", "second-look")
            found += (
                await ask_for_structured_answer(
                    model, _ModelSecurityOpinionReply, system=prompt, record=record, max_tokens=_MAX_REPLY_TOKENS
                )
            ).doubts
        except BudgetReachedError:
            if number == 0:
                raise
            is_cut = True
            break
    doubts = dict.fromkeys(_locate_quotes(texts, found, model.name))
    return ModelSecurityOpinion(name=name, doubts=tuple(doubts), is_cut=is_cut)


def _split_texts_for_model(texts: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Split the texts, each below its path, into pieces of the size a model gets at once."""
    piece = ""
    for path, text in texts:
        head, start = f"# {path}\n\n", 0
        while start < len(text):
            if piece and _MAX_PIECE_CHARS - len(piece) - len(head) < 2 * _OVERLAP_CHARS:
                yield piece
                piece = ""
            end = start + max(_MAX_PIECE_CHARS - len(piece) - len(head), 2 * _OVERLAP_CHARS)
            piece += f"{head}{text[start:end]}\n\n"
            start = end - _OVERLAP_CHARS if end < len(text) else end
    if piece:
        yield piece


def _iterate_text_files(tree: Tree) -> Iterator[tuple[str, str]]:
    """Yield the text files, the main file first."""
    for path, file in sorted(tree.items(), key=lambda item: (not item[0].lower().endswith("skill.md"), item[0])):
        if file.content is not None and b"\0" not in file.content:
            yield path, file.content.decode("utf-8", "replace")


def _locate_quotes(texts: dict[str, str], doubts: list[_ModelQuotedLine], model: str) -> Iterator[SuspiciousLine]:
    """Yield the quotes that exist in the files, with their line numbers."""
    for doubt in doubts:
        quote = doubt.quote.strip()
        lines = texts.get(doubt.path, "").split("\n")
        # A model may invent a quote: only lines that really exist are shown.
        line = next((number for number, text in enumerate(lines, 1) if quote and quote in text), 0)
        if line:
            yield SuspiciousLine(path=doubt.path, line=line, quote=quote, why=" ".join(doubt.why.split()), model=model)
