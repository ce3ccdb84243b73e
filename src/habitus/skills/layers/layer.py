"""A layer of skills, the folders of a project's layers, and how a higher copy of a skill replaces or extends a lower
one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from habitus.skills.editable_fields import FIELD_NAMES
from habitus.skills.model import Author, Manifest, Skill, SkillSource, SkillSummary

if TYPE_CHECKING:
    from habitus.skills.stores.versioned import SkillStore  # imports the database only where one is opened

_MANIFEST_FIELDS = {field.name for field in dataclasses.fields(Manifest)} - {"extends", "unreadable"}
_SUMMARY_FIELDS = {*FIELD_NAMES, "license", "compatibility", "allowed_tools"}

USER_LAYER = "user"
PROMPT_LAYER = "prompt"  # texts of the system prompt with a history; never listed
OWN_LAYERS = frozenset({"bundled", "operator", USER_LAYER})  # written by the user or by the operator of Habitus
AGENT_LAYERS = ("agents", "claude", "codex")  # the skill folders of other agents in the user's home, lowest first
# A changelog has its newest lines first, so the beginning is enough.
_CHANGELOG_BYTES = 256 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One source of skills. `name` is what people write after the '@'."""

    name: str
    store: SkillStore
    source: SkillSource | None = None  # the source of its skills, if the layer decides that
    trust_root: str = ""  # under which trust in it is stored; empty for the user's own layers
    claims_root: str = ""  # under which trust in its skills' claims is stored, if their text needs none
    fills_placeholders: bool = False
    changelog: Path | None = None  # the owner's notes on its skills, one line per change
    allow_removal: Callable[[Author], None] = lambda author: (
        None
    )  # raises an error if this author may not remove skills
    is_listed: bool = True  # False for skills reachable only as `name@layer`

    @property
    def can_write(self) -> bool:
        """Whether its skills can be changed."""
        return self.store.can_write

    def read_changelog(self) -> str:
        """Return the beginning of the layer's changelog; empty if it has none."""
        if self.changelog is None or not self.changelog.is_file():
            return ""
        with self.changelog.open("rb") as file:
            return file.read(_CHANGELOG_BYTES).decode("utf-8-sig", "replace")


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectSkillFolder:
    """A skill folder of a project; `name` distinguishes it from the project's others."""

    name: str
    root: Path


def find_project_skill_folders(cwd: Path, user_home: Path) -> Iterator[ProjectSkillFolder]:
    """Yield the skill folders from the git root down to the working directory, nearest last."""
    chain = [cwd, *cwd.parents]
    top = find_project_root(cwd)
    for place in reversed(chain[: chain.index(top) + 1]):
        if place == user_home:
            # The folders in the home directory are the user's own layers, not a project's.
            continue
        where = "" if place == top else f":{place.relative_to(top)}"
        for kind, name in ((".agents", "project-agents"), (".claude", "project-claude"), (".habitus", "project")):
            root = place / kind / "skills"
            if root.is_dir():
                yield ProjectSkillFolder(name=name + where, root=root)


def format_skill_address(name: str, layer: str) -> str:
    """Return the shortest address of a skill: the name alone in the user's layer."""
    return name if layer in ("", USER_LAYER) else f"{name}@{layer}"


def find_project_root(cwd: Path) -> Path:
    """Return the root of the git checkout around a directory, or the directory itself."""
    return next((place for place in (cwd, *cwd.parents) if (place / ".git").exists()), cwd)


def merge_layered_summaries(lower: SkillSummary, higher: SkillSummary) -> SkillSummary:
    """Return the lower summary with the fields that the higher one states."""
    plain = {name: getattr(higher, name) for name in higher.stated & _SUMMARY_FIELDS}
    stated = {name: getattr(higher.manifest, name) for name in higher.stated & _MANIFEST_FIELDS}
    # An unreadable gate of either copy keeps the merged skill gated.
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


def choose_effective_body(lower: Skill, higher: Skill) -> str:
    """Return the higher body if its file has one, or else the lower body."""
    return higher.body if "body" in higher.stated else lower.body
