"""The interface of a skill format, and the records that formats read and write."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from habitus.errors import Invalid
from habitus.files import Tree, compute_tree_hash
from habitus.skills import auto_executed, trees
from habitus.skills.model import Diagnostic, Json, Severity, Skill, Stage
from habitus.skills.names import make_unique_name
from habitus.text import replace_surrogates
from habitus.use_counts import UsageCounts


@dataclass(frozen=True, kw_only=True, slots=True)
class IncomingSkill:
    """One skill to import: a SKILL.md folder, and the values that belong in the database."""

    name: str
    tree: Tree
    origin: str  # where it was found, as text
    format: str
    counters: Mapping[Stage, UsageCounts] = field(default_factory=dict)
    enabled: bool = True
    status: str = "active"  # of its tool or recipe: active, degraded, retired or proposed
    version: int = 1
    created_on: datetime | None = None
    modified_on: datetime | None = None
    changelog: tuple[str, ...] = ()  # the lines of the collection's changelog that name it
    diagnostics: tuple[Diagnostic, ...] = ()
    location: str = ""  # its exact location; two folders may have the same name
    vcs_files: tuple[str, ...] = ()  # one file of each version control folder, which are not in the tree

    @property
    def auto_executed_files(self) -> tuple[str, ...]:
        """The files in its folder that other tools would execute by themselves."""
        return tuple(sorted({*self.vcs_files, *(path for path in self.tree if auto_executed.is_auto_executed(path))}))

    @property
    def skill(self) -> Skill:
        """The skill in its SKILL.md; formats return only loadable ones."""
        skill = trees.parse_skill_tree(self.name, self.tree).skill
        assert skill is not None
        return skill

    def __post_init__(self) -> None:
        """Make the origins storable: a folder name may contain bytes that are not text."""
        object.__setattr__(self, "origin", replace_surrogates(self.origin))
        object.__setattr__(self, "location", replace_surrogates(self.location))


@dataclass(frozen=True, kw_only=True, slots=True)
class PlaybookLesson:
    """A lesson of a playbook. Memory decides whether to keep it."""

    origin: str
    trigger: str
    anti_pattern: str = ""
    correct_pattern: str = ""
    domains: tuple[str, ...] = ()
    confidence: float = 0.5
    source: str = ""
    source_challenge_hash: str = ""
    frequency: int = 1
    retrievals: int = 0
    helpful: int = 0
    last_retrieved: datetime | None = None
    verified: bool = False
    created_on: datetime | None = None
    extra: Mapping[str, Json] = field(default_factory=dict)  # values that only the source uses


@dataclass(frozen=True, kw_only=True, slots=True)
class SkippedEntry:
    """An entry that was skipped, and the reason in one line."""

    origin: str
    name: str
    reason: str
    is_name_conflict: bool = False  # another skill of its name came first


ImportEntry = IncomingSkill | PlaybookLesson | SkippedEntry


@dataclass(frozen=True, kw_only=True, slots=True)
class OutgoingSkill:
    """One skill to export in another format; its files have their contents."""

    skill: Skill
    tree: Tree
    counters: Mapping[Stage, UsageCounts] = field(default_factory=dict)
    status: str = ""  # of its tool or recipe, if known

    def get_stage_counters(self, stage: Stage) -> UsageCounts:
        """Return the counters of a stage; zeros if it has none."""
        return self.counters.get(stage, UsageCounts())


@dataclass(frozen=True, kw_only=True, slots=True)
class FormatExportResult:
    """The files of an export, and the fields that the format can't hold."""

    paths: tuple[Path, ...]
    left_out: tuple[SkippedEntry, ...] = ()
    lessons: int = 0  # lessons written to a playbook


class UnreadableEntryError(Exception):
    """Raised inside a reader for an entry that can't be read. It becomes a `SkippedEntry` and never leaves the
    package.
    """


class SkillFormat(ABC):
    """One skill format. Reading never raises for bad content: a bad entry becomes a `SkippedEntry` beside the
    others.
    """

    name: str

    @abstractmethod
    def can_read(self, path: Path, inside: Set[str]) -> bool:
        """Whether this very file or directory is in the format, judged by names and first lines only.

        `inside` holds the names in a directory, `name/` for directories; it is empty for a file.
        """

    @abstractmethod
    def read_entries(self, path: Path, origin: str) -> Iterator[ImportEntry]:
        """Yield everything in a path that `can_read` accepted. May raise `UnreadableEntryError`, `Invalid` and
        `OSError`.
        """

    @abstractmethod
    def write_skills(
        self,
        skills: Sequence[OutgoingSkill],
        to: Path,
        *,
        lessons: Sequence[PlaybookLesson] = (),
        overwrite: bool = False,
    ) -> FormatExportResult:
        """Write to a temporary place, then rename. `overwrite` keeps the replaced files beside the new ones.

        A format without a playbook leaves the lessons out.
        """

    def read_entries_safely(self, path: Path, origin: str) -> Iterator[ImportEntry]:
        """Yield the entries of a path; an error becomes a `SkippedEntry`."""
        try:
            yield from self.read_entries(path, origin)
        except (UnreadableEntryError, Invalid, OSError) as problem:
            yield SkippedEntry(
                origin=origin, name=path.stem if path.is_file() else path.name, reason=describe_read_error(problem)
            )


def describe_read_error(problem: Exception) -> str:
    """Describe an error in one line, without paths of this machine."""
    if isinstance(problem, OSError):
        return f"Can't read {Path(problem.filename or 'it').name}: {problem.strerror or problem}."
    return str(problem)


def resolve_name_conflicts(entries: Iterable[ImportEntry], *, keep_both: bool = False) -> Iterator[ImportEntry]:
    """Yield the entries with unique names: of several skills with one name, the first is kept and the others are
    skipped or, with `keep_both`, renamed. Copies of a kept skill are always skipped.
    """
    seen: dict[str, dict[str, str]] = {}  # name → hash of the files → origin
    for entry in entries:
        if not isinstance(entry, IncomingSkill):
            yield entry
            continue
        digest = compute_tree_hash(entry.tree)
        namesakes = seen.setdefault(entry.name, {})
        first = next(iter(namesakes.values()), entry.origin)
        # The origin of the first skill with exactly these files; another origin means that this is a copy.
        copied = namesakes.setdefault(digest, entry.origin)
        if entry.origin == first:
            yield entry
        elif entry.origin != copied:
            yield SkippedEntry(origin=entry.origin, name=entry.name, reason=f"It is a copy of {copied}.")
        elif keep_both:
            name = make_unique_name(entry.name, seen.__contains__)
            seen[name] = {digest: entry.origin}
            yield _rename_conflicting_entry(entry, name, first)
        else:
            reason = f"{first} is called '{entry.name}' too and came first. Rename one of them, or take --keep-both."
            yield SkippedEntry(origin=entry.origin, name=entry.name, reason=reason, is_name_conflict=True)


def _rename_conflicting_entry(entry: IncomingSkill, name: str, first: str) -> IncomingSkill:
    what = f"{first} is called '{entry.name}' too and came first; this one is called '{name}' here."
    said = Diagnostic(file=entry.origin, message=what, hint="", severity=Severity.WARNING)
    return replace(
        entry, name=name, tree=trees.rename_skill_in_main_file(entry.tree, name), diagnostics=(*entry.diagnostics, said)
    )
