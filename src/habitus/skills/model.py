"""Skills: a skill is a named, versioned procedure with up to three stages, and everything known about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

Json = Any


class Stage(StrEnum):
    STEPS = "steps"  # the body of SKILL.md
    CHUNKS = "chunks"  # chunks.md
    CODE = "code"  # tool.json and scripts/tool.py


class Source(StrEnum):
    USER = "user"
    AGENT = "agent"
    BUNDLED = "bundled"
    OPERATOR = "operator"
    IMPORTED = "imported"


class State(StrEnum):
    """The state of a skill in a listing."""

    OK = "ok"
    DISABLED = "disabled"  # switched off by a person or by the settings
    GATED = "gated"  # something it needs is not there
    HELD = "held"  # waits for a person because of what a scan found
    UNTRUSTED = "untrusted"  # from a project nobody has trusted yet
    BROKEN = "broken"  # can't be loaded; its diagnostics say why


class Severity(StrEnum):
    ERROR = "error"  # the skill can't be loaded
    WARNING = "warning"  # loads, but something is lost or risky
    RISK = "risk"  # loads; a scan finds something that a person should see
    NOTE = "note"  # loads; another reader may be stricter


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnostic:
    """One problem of one file, with its mend."""

    file: str
    what: str
    mend: str = ""
    severity: Severity = Severity.WARNING

    def __str__(self) -> str:
        return f"{self.file}: {self.what} {self.mend}".strip()


class Unreadable(Exception):
    """A file, or a block of one, can't be read; carries the diagnostic."""

    def __init__(self, what: str, mend: str, *, file: str = "") -> None:
        self.diagnostic = Diagnostic(file=file, what=what, mend=mend, severity=Severity.ERROR)
        super().__init__(str(self.diagnostic))


class Actor(StrEnum):
    USER = "user"
    AGENT = "agent"
    JOB = "job"
    DISK = "disk"  # found changed in the directory


@dataclass(frozen=True, kw_only=True, slots=True)
class Author:
    """Who made a change, and why."""

    actor: Actor
    name: str = ""
    reason: str = ""
    change: str = field(default="", compare=False)  # the id of what one command did, however much that is

    @property
    def is_automatic(self) -> bool:
        return self.actor in (Actor.AGENT, Actor.JOB)


# A field by which a skill changes what else is in a prompt, or how it is chosen itself.
_FORCE = {"grants_force": True}


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """How a skill asks to be selected, gated and run."""

    triggers: tuple[str, ...] = ()
    always_include: bool = field(default=False, metadata=_FORCE)
    admin_only: bool = False
    cli: bool = False
    experimental: bool = False
    resource_types: tuple[str, ...] = field(default=(), metadata=_FORCE)
    source_types: tuple[str, ...] = field(default=(), metadata=_FORCE)
    file_types: tuple[str, ...] = field(default=(), metadata=_FORCE)
    companion_skills: tuple[str, ...] = field(default=(), metadata=_FORCE)
    exclude_skills: tuple[str, ...] = field(default=(), metadata=_FORCE)
    dependencies: tuple[str, ...] = ()
    exclude_memory: bool = field(default=False, metadata=_FORCE)
    exclude_persona: bool = field(default=False, metadata=_FORCE)
    exclude_resources: bool = field(default=False, metadata=_FORCE)
    env: tuple[Mapping[str, Json], ...] = field(default=(), metadata=_FORCE)
    paths: tuple[str, ...] = field(default=(), metadata=_FORCE)
    requires_tools: tuple[str, ...] = ()
    extends: bool = field(default=False, metadata=_FORCE)
    placeholders: bool = False
    disable_model_invocation: bool = False
    user_invocable: bool = True
    unreadable: tuple[str, ...] = ()  # fields above whose value made no sense; gates among them are closed

    @property
    def claims(self) -> dict[str, Json]:
        """The fields with force that it states, with their values."""
        if self is PLAIN_MANIFEST:
            return {}
        return {name: value for name in CLAIMS if (value := getattr(self, name))}

    def without_force(self) -> Manifest:
        """The same, asking for nothing."""
        return replace(self, **{name: getattr(PLAIN_MANIFEST, name) for name in CLAIMS}) if self.claims else self


PLAIN_MANIFEST = Manifest()
CLAIMS = tuple(found.name for found in fields(Manifest) if found.metadata.get("grants_force"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """Every field of a skill but its body."""

    name: str
    title: str = ""
    description: str = ""
    when_to_use: str = ""
    tags: tuple[str, ...] = ()
    source: Source = Source.USER
    license: str = ""
    compatibility: str = ""
    allowed_tools: str = ""
    manifest: Manifest = PLAIN_MANIFEST
    provenance: Mapping[str, Json] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)  # keys of `metadata` that are not ours
    extra: Mapping[str, Json] = field(default_factory=dict)  # frontmatter keys that nobody here knows
    stated: frozenset[str] = frozenset()  # the fields the file states itself, for layers that extend others
    stages: frozenset[Stage] = frozenset({Stage.STEPS})
    layer: str = ""
    version: int = 0
    enabled: bool = True
    created_on: datetime | None = None
    modified_on: datetime | None = None

    @property
    def cue(self) -> str:
        """The one line the model sees: when to use it, or else what it is."""
        return self.when_to_use or self.description


@dataclass(frozen=True, kw_only=True, slots=True)
class Skill(Summary):
    """A skill with its steps."""

    body: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Counters:
    """How one stage of a skill has fared. `reliability` is in lifecycle."""

    recommended: int = 0
    used: int = 0
    succeeded: int = 0
    failed: int = 0
    last_used: datetime | None = None
    by_presence_until: datetime | None = None  # until then what only stood in the prompt counted as used

    def __add__(self, other: Counters) -> Counters:
        dates = [date for date in (self.last_used, other.last_used) if date is not None]
        return Counters(
            recommended=self.recommended + other.recommended,
            used=self.used + other.used,
            succeeded=self.succeeded + other.succeeded,
            failed=self.failed + other.failed,
            last_used=max(dates, default=None),
            by_presence_until=self.by_presence_until or other.by_presence_until,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Version:
    """One entry of a skill's history; its files are read on demand."""

    number: int
    author: Author
    made_on: datetime
    tree_hash: str
    paths: tuple[str, ...]


class Switched(StrEnum):
    """Steps that change a skill without changing its files."""

    ENABLED = "enabled"
    DISABLED = "disabled"
    REMOVED = "removed"
    RESTORED = "restored"


@dataclass(frozen=True, kw_only=True, slots=True)
class Switch:
    """A skill was switched on or off, moved to the archive or brought back: by whom, and when."""

    action: Switched
    author: Author
    made_on: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """Everything that was done to a skill, oldest first; of one in the archive as well."""

    versions: tuple[Version, ...] = ()
    switches: tuple[Switch, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Archived:
    """A skill that was deleted, retired or replaced, and can be brought back."""

    id: int
    name: str
    layer: str
    version: int
    archived_on: datetime
    author: Author
    title: str = ""
