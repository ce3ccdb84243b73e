"""The data model of skills: named, versioned procedures with up to three stages, and the records about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

Json = Any


class Stage(StrEnum):
    """One form of a skill; a skill gains stages and keeps the earlier ones."""

    STEPS = "steps"  # the body of SKILL.md
    CHUNKS = "chunks"  # chunks.md
    CODE = "code"  # tool.json and scripts/tool.py

    @property
    def label(self) -> str:
        """The stage as people call it."""
        return "recipe" if self is Stage.CHUNKS else self.value


class SkillSource(StrEnum):
    """Where a skill came from."""

    USER = "user"
    AGENT = "agent"
    BUNDLED = "bundled"
    OPERATOR = "operator"
    IMPORTED = "imported"


class SkillState(StrEnum):
    """The state of a skill in a listing."""

    OK = "ok"
    DISABLED = "disabled"  # switched off by a person or by the settings
    GATED = "gated"  # something it needs is not there
    HELD = "held"  # a finding of a scan keeps it for review
    UNTRUSTED = "untrusted"  # from a project that no person has trusted yet
    BROKEN = "broken"  # can't be loaded; its diagnostics say why


class Severity(StrEnum):
    """How much a diagnostic matters for loading the skill."""

    ERROR = "error"  # the skill can't be loaded
    WARNING = "warning"  # loads, but something is lost or risky
    RISK = "risk"  # loads; a scan finds something that a person should see
    NOTE = "note"  # loads; another reader may be stricter


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnostic:
    """One problem in one file, with a hint on how to fix it."""

    file: str
    message: str
    hint: str = ""
    severity: Severity = Severity.WARNING

    def __str__(self) -> str:
        return f"{self.file}: {self.message} {self.hint}".strip()


class MalformedFileError(Exception):
    """Raised when a file, or a block in it, can't be parsed; carries the diagnostic."""

    def __init__(self, message: str, hint: str, *, file: str = "") -> None:
        self.diagnostic = Diagnostic(file=file, message=message, hint=hint, severity=Severity.ERROR)
        super().__init__(str(self.diagnostic))


class ActorKind(StrEnum):
    """The kind of author of a change."""

    USER = "user"
    AGENT = "agent"
    JOB = "job"
    DISK = "disk"  # the change was found in the directory


@dataclass(frozen=True, kw_only=True, slots=True)
class Author:
    """The author of a change, and the reason for it."""

    actor: ActorKind
    name: str = ""
    reason: str = ""
    # Every step of one command shares this id, so one undo reverts them all; two authors are equal without it.
    change_id: str = field(default="", compare=False)

    @property
    def is_automatic(self) -> bool:
        """Whether no person made the change."""
        return self.actor in (ActorKind.AGENT, ActorKind.JOB)


# Marks fields with which a skill changes the rest of a prompt or its own selection; untrusted skills lose them.
_CLAIM_METADATA = {"grants_force": True}


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """How a skill asks to be selected, gated and run."""

    triggers: tuple[str, ...] = ()
    always_include: bool = field(default=False, metadata=_CLAIM_METADATA)
    admin_only: bool = False
    cli: bool = False
    experimental: bool = False
    resource_types: tuple[str, ...] = field(default=(), metadata=_CLAIM_METADATA)
    source_types: tuple[str, ...] = field(default=(), metadata=_CLAIM_METADATA)
    file_types: tuple[str, ...] = field(default=(), metadata=_CLAIM_METADATA)
    companion_skills: tuple[str, ...] = field(default=(), metadata=_CLAIM_METADATA)
    exclude_skills: tuple[str, ...] = field(default=(), metadata=_CLAIM_METADATA)
    dependencies: tuple[str, ...] = ()
    exclude_memory: bool = field(default=False, metadata=_CLAIM_METADATA)
    exclude_persona: bool = field(default=False, metadata=_CLAIM_METADATA)
    exclude_resources: bool = field(default=False, metadata=_CLAIM_METADATA)
    env: tuple[Mapping[str, Json], ...] = field(default=(), metadata=_CLAIM_METADATA)
    paths: tuple[str, ...] = field(default=(), metadata=_CLAIM_METADATA)
    requires_tools: tuple[str, ...] = ()
    extends: bool = field(default=False, metadata=_CLAIM_METADATA)
    placeholders: bool = False
    disable_model_invocation: bool = False
    user_invocable: bool = True
    unreadable: tuple[str, ...] = ()  # fields above with an invalid value; a gate among them stays closed

    @property
    def claims(self) -> dict[str, Json]:
        """Return the claim fields that the skill sets, with their values."""
        # Nearly every skill has the default manifest, so the common case costs no loop.
        if self is DEFAULT_MANIFEST:
            return {}
        return {name: value for name in CLAIM_FIELDS if (value := getattr(self, name))}

    def without_claims(self) -> Manifest:
        """Return the manifest with every claim reset to its default."""
        return replace(self, **{key: getattr(DEFAULT_MANIFEST, key) for key in CLAIM_FIELDS}) if self.claims else self


DEFAULT_MANIFEST = Manifest()
CLAIM_FIELDS = tuple(found.name for found in fields(Manifest) if found.metadata.get("grants_force"))


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillSummary:
    """Every field of a skill except its body."""

    name: str
    title: str = ""
    description: str = ""
    when_to_use: str = ""
    tags: tuple[str, ...] = ()
    source: SkillSource = SkillSource.USER
    license: str = ""
    compatibility: str = ""
    allowed_tools: str = ""
    manifest: Manifest = DEFAULT_MANIFEST
    provenance: Mapping[str, Json] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)  # keys under `metadata` that Habitus doesn't define
    extra: Mapping[str, Json] = field(default_factory=dict)  # unknown frontmatter keys, kept for writing back
    stated: frozenset[str] = (
        frozenset()
    )  # the fields set in the file itself; a layer that extends another inherits the rest
    stages: frozenset[Stage] = frozenset({Stage.STEPS})
    layer: str = ""
    version: int = 0
    enabled: bool = True
    created_on: datetime | None = None
    modified_on: datetime | None = None

    def has_tag(self, tag: str) -> bool:
        """Whether the skill has this tag, in upper or lower case."""
        return tag.casefold() in (one.casefold() for one in self.tags)

    @property
    def when_to_use_line(self) -> str:
        """The line that the model sees before loading the skill: when to use it, or else the description."""
        return self.when_to_use or self.description


@dataclass(frozen=True, kw_only=True, slots=True)
class Skill(SkillSummary):
    """A skill with its steps."""

    body: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillVersion:
    """One entry of a skill's history; its files are read on demand."""

    number: int
    author: Author
    made_on: datetime
    tree_hash: str
    paths: tuple[str, ...]


class LifecycleAction(StrEnum):
    """An action that changes a skill's availability but none of its files."""

    ENABLED = "enabled"
    DISABLED = "disabled"
    REMOVED = "removed"
    RESTORED = "restored"


@dataclass(frozen=True, kw_only=True, slots=True)
class LifecycleEvent:
    """One enabling, disabling, archiving or restoring of a skill, with author and time."""

    action: LifecycleAction
    author: Author
    made_on: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillVersionAndEventHistory:
    """Every version and lifecycle event of a skill, oldest first; archived skills have one too."""

    versions: tuple[SkillVersion, ...] = ()
    lifecycle_events: tuple[LifecycleEvent, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ArchivedSkill:
    """A skill that was deleted, retired or replaced and can be restored."""

    id: int
    name: str
    layer: str
    version: int
    archived_on: datetime
    author: Author
    title: str = ""
