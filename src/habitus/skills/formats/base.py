"""A skill of another system's layout on its way in, the files on their way out, and the shape of a format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from habitus.errors import Invalid
from habitus.files import Tree, tree_hash
from habitus.skills import trees
from habitus.skills.model import Counters, Diagnostic, Json, Severity, Skill, Stage
from habitus.skills.names import unique_name
from habitus.text import encodable


@dataclass(frozen=True, kw_only=True, slots=True)
class Incoming:
    """One skill, ready to be saved: a SKILL.md folder, and what belongs in the database."""

    name: str
    tree: Tree
    origin: str  # where it was found, in words for a person
    format: str
    counters: Mapping[Stage, Counters] = field(default_factory=dict)
    enabled: bool = True
    status: str = "active"  # of its tool or recipe: active, degraded, retired or proposed
    version: int = 1
    created_on: datetime | None = None
    modified_on: datetime | None = None
    changelog: tuple[str, ...] = ()  # the lines of the collection's CHANGELOG that name it
    diagnostics: tuple[Diagnostic, ...] = ()
    place: str = ""  # where it was found, exactly: two folders may be called the same
    control: tuple[str, ...] = ()  # a file of each folder of version control in it; they are not in the tree

    @property
    def run_unasked(self) -> tuple[str, ...]:
        """The files in its folder that other tools would run by themselves."""
        return tuple(sorted({*self.control, *(path for path in self.tree if trees.runs_unasked(path))}))

    @property
    def skill(self) -> Skill:
        """The skill in its SKILL.md. A reader hands out only what can be loaded."""
        skill = trees.parse(self.name, self.tree).skill
        assert skill is not None
        return skill

    def __post_init__(self) -> None:
        """A folder's name may hold bytes that are not text, and where it lay is written down."""
        object.__setattr__(self, "origin", encodable(self.origin))
        object.__setattr__(self, "place", encodable(self.place))


@dataclass(frozen=True, kw_only=True, slots=True)
class PlaybookLesson:
    """A lesson of a playbook. Memory decides what becomes of it."""

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
    extra: Mapping[str, Json] = field(default_factory=dict)  # what only the source has a use for


@dataclass(frozen=True, kw_only=True, slots=True)
class NotTaken:
    """An entry that was left out, and why, in one line."""

    origin: str
    name: str
    reason: str
    is_namesake: bool = False  # another skill of its name came first


Entry = Incoming | PlaybookLesson | NotTaken


@dataclass(frozen=True, kw_only=True, slots=True)
class Outgoing:
    """One skill to be written in another layout. Its files come with their contents."""

    skill: Skill
    tree: Tree
    counters: Mapping[Stage, Counters] = field(default_factory=dict)
    status: str = ""  # of its tool or recipe, where that is known

    def stage(self, stage: Stage) -> Counters:
        return self.counters.get(stage, Counters())


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """The files of an export, and the fields that the layout has no place for."""

    paths: tuple[Path, ...]
    left_out: tuple[NotTaken, ...] = ()


class CantTake(Exception):
    """Inside a reader: this entry can't be read. Becomes a `NotTaken`, never leaves the package."""


class Format(ABC):
    """One layout. Reading never raises for bad content: a bad entry is a `NotTaken` beside its neighbours."""

    name: str

    @abstractmethod
    def claims(self, path: Path, inside: Set[str]) -> bool:
        """Whether this very file or directory is of the layout; a look at names and first lines, no more.
        `inside` has the names of what lies in a directory, `name/` for directories; for a file it is empty."""

    @abstractmethod
    def read_one(self, path: Path, origin: str) -> Iterator[Entry]:
        """Everything in what `claims` said yes to. May raise `CantTake`, `Invalid` and `OSError`."""

    @abstractmethod
    def write(
        self, skills: Sequence[Outgoing], to: Path, *, lessons: Sequence[PlaybookLesson] = (), overwrite: bool = False
    ) -> Written:
        """Write aside, then rename. What `overwrite` replaces is kept beside it."""

    def read_safely(self, path: Path, origin: str) -> Iterator[Entry]:
        try:
            yield from self.read_one(path, origin)
        except (CantTake, Invalid, OSError) as problem:
            yield NotTaken(
                origin=origin, name=path.stem if path.is_file() else path.name, reason=describe_problem(problem)
            )


def describe_problem(problem: Exception) -> str:
    """One line for a person; the paths of this machine are of no use to them."""
    if isinstance(problem, OSError):
        return f"Can't read {Path(problem.filename or 'it').name}: {problem.strerror or problem}."
    return str(problem)


def without_clashes(entries: Iterable[Entry], *, keep_both: bool = False) -> Iterator[Entry]:
    """Of several skills that come to one name the first is taken; the others are told which one it was, or get a name
    of their own. A copy of one that was taken is never taken again."""
    seen: dict[str, dict[str, str]] = {}  # name → hash of the files → origin
    for entry in entries:
        if not isinstance(entry, Incoming):
            yield entry
            continue
        digest = tree_hash(entry.tree)
        namesakes = seen.setdefault(entry.name, {})
        first = next(iter(namesakes.values()), entry.origin)
        copied = namesakes.setdefault(digest, entry.origin)
        if entry.origin == first:
            yield entry
        elif entry.origin != copied:
            yield NotTaken(origin=entry.origin, name=entry.name, reason=f"It is a copy of {copied}.")
        elif keep_both:
            name = unique_name(entry.name, seen.__contains__)
            seen[name] = {digest: entry.origin}
            yield _rename_entry(entry, name, first)
        else:
            reason = f"{first} is called '{entry.name}' too and came first. Rename one of them, or take --keep-both."
            yield NotTaken(origin=entry.origin, name=entry.name, reason=reason, is_namesake=True)


def _rename_entry(entry: Incoming, name: str, first: str) -> Incoming:
    what = f"{first} is called '{entry.name}' too and came first; this one is called '{name}' here."
    said = Diagnostic(file=entry.origin, what=what, mend="", severity=Severity.WARNING)
    return replace(entry, name=name, tree=trees.rename_tree(entry.tree, name), diagnostics=(*entry.diagnostics, said))
