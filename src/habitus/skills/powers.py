"""Powers of a skill, what it can do beyond being read: its scripts, the permissions and standing rights it asks for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from habitus.files import File, Tree
from habitus.skills import names, trees
from habitus.skills.model import Skill

_CODE_ENDINGS = (".py", ".sh", ".bash", ".zsh", ".js", ".ts", ".rb", ".pl", ".ps1", ".exe", ".so", ".bin")


class PowerKind(StrEnum):
    """Each with its words; trust is kept by these texts, so they stay as they are."""

    RUNS = "runs {}"
    USES_TOOL = "may use the tool {}"
    ASKS_VARIABLE = "asks for the variable {}"
    JOINS_SOURCE = "is put into every prompt of source {}"
    JOINS_ALL = "is put into every prompt"
    PUSHES_OUT = "pushes out the skill {}"
    CLAIMS = "claims {}"
    HOOKS = "installs hooks {}"
    NETWORK = "uses the network"
    READS = "reads files in {}"
    WRITES = "writes files in {}"
    UNREADABLE_TOOL = "has a tool.json that can't be read"
    UNREADABLE_PERMISSIONS = "has permissions that can't be read"


@dataclass(frozen=True, slots=True)
class Power:
    """A script's `what` holds its hash, so a changed script is a new power."""

    kind: PowerKind
    what: str = ""

    def __str__(self) -> str:
        return self.kind.value.format(self.what)


def powers(folder: str, tree: Tree) -> frozenset[Power]:
    skill = trees.parse(folder, tree).skill
    return frozenset([*_code(tree), *(_rights(skill) if skill is not None else ()), *_permissions(tree)])


def brings_code(tree: Tree) -> bool:
    """Whether there is anything in it that can be called: a tool, a command line, or a recipe that runs code."""
    return trees.TOOL_CODE in tree or trees.CLI_CODE in tree or _has_running_recipe(tree)


def _has_running_recipe(tree: Tree) -> bool:
    file = tree.get(trees.CHUNKS_FILE)
    if file is None or not file.content:
        return False
    from habitus.skills.formats import recipes_md  # a parser of yaml, where there are recipes
    from habitus.skills.formats.foreign_values import Notes

    recipes = recipes_md.parse(file.content, Notes(trees.CHUNKS_FILE))
    steps = (step for recipe in recipes for steps in (recipe.steps, *recipe.branches.values()) for step in steps)
    return any(step.get("tool") in names.CODE_RUNNERS for step in steps)


def is_code(path: str, file: File) -> bool:
    """Whether it is a file to be run."""
    return file.executable or path.startswith("scripts/") or path.endswith(_CODE_ENDINGS)


def _code(tree: Tree) -> Iterator[Power]:
    for path, file in tree.items():
        if is_code(path, file):
            yield Power(PowerKind.RUNS, f"{path} ({file.sha256[:16]})")
    if _has_running_recipe(tree):
        yield Power(PowerKind.RUNS, f"{trees.CHUNKS_FILE} ({tree[trees.CHUNKS_FILE].sha256[:16]})")


def _rights(skill: Skill) -> Iterator[Power]:
    manifest = skill.manifest
    for tool in skill.allowed_tools.replace(",", " ").split():
        yield Power(PowerKind.USES_TOOL, tool)
    for spec in manifest.env:
        yield Power(PowerKind.ASKS_VARIABLE, str(spec.get("var", "?")))
    for source in manifest.source_types:
        yield Power(PowerKind.JOINS_SOURCE, source)
    for name in manifest.exclude_skills:
        yield Power(PowerKind.PUSHES_OUT, name)
    if manifest.always_include:
        yield Power(PowerKind.JOINS_ALL)
    for name, value in manifest.claims.items():
        if name not in _NAMED:
            parts = value if isinstance(value, tuple) else [value]
            yield from (Power(PowerKind.CLAIMS, name if part is True else f"{name} {part}") for part in parts)
    if "hooks" in skill.extra:
        yield Power(PowerKind.HOOKS, json.dumps(skill.extra["hooks"], sort_keys=True, default=str)[:80])


_NAMED = ("env", "source_types", "exclude_skills", "always_include")  # each has a kind of power of its own
_ASKED = {"read": PowerKind.READS, "write": PowerKind.WRITES, "env": PowerKind.ASKS_VARIABLE}


def _permissions(tree: Tree) -> Iterator[Power]:
    file = tree.get(trees.TOOL_FILE)
    if file is None or file.content is None:
        return
    try:
        asked = json.loads(file.content).get("permissions", {})
    except (ValueError, AttributeError, RecursionError):
        yield Power(PowerKind.UNREADABLE_TOOL)
        return
    if not isinstance(asked, dict):
        yield Power(PowerKind.UNREADABLE_PERMISSIONS)
        return
    if asked.get("network"):
        yield Power(PowerKind.NETWORK)
    for key, kind in _ASKED.items():
        values = asked.get(key)
        for value in values if isinstance(values, list) else ():
            yield Power(kind, str(value))
