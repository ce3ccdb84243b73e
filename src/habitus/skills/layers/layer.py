"""Where skills come from, lowest layer first, and how a higher copy of a skill replaces or extends a lower one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from habitus.skills.editable_fields import NAMES
from habitus.skills.model import Author, Manifest, Skill, Source, Summary

if TYPE_CHECKING:
    from habitus.skills.stores.versioned import SkillStore  # the database, for those who open one

_MANIFEST_FIELDS = {field.name for field in dataclasses.fields(Manifest)} - {"extends", "unreadable"}
_PLAIN_FIELDS = {*NAMES, "license", "compatibility", "allowed_tools"}

USER = "user"
PROMPT = "prompt"  # texts of the system prompt that have a history; no listing shows them
OWN = frozenset({"bundled", "operator", USER})  # what is in them comes from the person or whoever set Habitus up
AGENTS = ("agents", "claude", "codex")  # the skill folders of other agents in a person's home, lowest first
_CHANGELOG_BYTES = 256 * 1024  # the newest lines stand first


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One place for skills. `name` is what people write after the '@'."""

    name: str
    store: SkillStore
    source: Source | None = None  # what its skills are, where the place decides that
    trust_root: str = ""  # where trust in it is kept; empty for layers that are the person's own
    claims_root: str = ""  # where trust in its skills' claims is kept, while their text is the person's choice
    fills_placeholders: bool = False
    changelog: Path | None = None  # what its owner writes about its skills, one line a change
    allow_removal: Callable[[Author], None] = lambda author: None  # raises where this author may take nothing away
    is_listed: bool = True  # whether what is in it are skills for anybody; else it is reached by `name@layer` alone

    @property
    def can_write(self) -> bool:
        return self.store.can_write

    def changes(self) -> str:
        """The owner's notes about its skills."""
        if self.changelog is None or not self.changelog.is_file():
            return ""
        with self.changelog.open("rb") as file:
            return file.read(_CHANGELOG_BYTES).decode("utf-8-sig", "replace")


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectPlace:
    """A skill folder that a project brings; `name` tells it from the others."""

    name: str
    root: Path


def project_places(cwd: Path, user_home: Path) -> Iterator[ProjectPlace]:
    """The skill folders from the git root down to the working directory, the nearest last."""
    chain = [cwd, *cwd.parents]
    top = project_root(cwd)
    for place in reversed(chain[: chain.index(top) + 1]):
        if place == user_home:
            continue  # those folders are layers of the person, not of a project
        where = "" if place == top else f":{place.relative_to(top)}"
        for kind, name in ((".agents", "project-agents"), (".claude", "project-claude"), (".habitus", "project")):
            root = place / kind / "skills"
            if root.is_dir():
                yield ProjectPlace(name=name + where, root=root)


def address(name: str, layer: str) -> str:
    """The shortest that people write for a skill of a layer."""
    return name if layer in ("", USER) else f"{name}@{layer}"


def project_root(cwd: Path) -> Path:
    """The checkout that a directory is in, or the directory itself."""
    return next((place for place in (cwd, *cwd.parents) if (place / ".git").exists()), cwd)


def merge_summaries(lower: Summary, higher: Summary) -> Summary:
    """The lower skill with the fields that the higher one states; everything else of it stays."""
    plain = {name: getattr(higher, name) for name in higher.stated & _PLAIN_FIELDS}
    stated = {name: getattr(higher.manifest, name) for name in higher.stated & _MANIFEST_FIELDS}
    unreadable = tuple({*lower.manifest.unreadable, *higher.manifest.unreadable})
    return replace(
        lower,
        **plain,
        manifest=replace(lower.manifest, **stated, unreadable=unreadable),
        metadata={**lower.metadata, **higher.metadata},
        layer=higher.layer,
        version=higher.version,
        enabled=higher.enabled,
        created_on=higher.created_on,
        modified_on=higher.modified_on,
        stages=lower.stages | higher.stages,
    )


def merged_body(lower: Skill, higher: Skill) -> str:
    return higher.body if "body" in higher.stated else lower.body
