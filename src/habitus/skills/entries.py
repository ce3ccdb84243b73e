"""Skills as a listing and a page show them, and their JSON, which is the same on every surface."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from habitus.files import Tree
from habitus.plain_data import plain
from habitus.skills.listing import Listed
from habitus.skills.model import PLAIN_MANIFEST, Counters, Manifest, Skill, Stage, Summary


@dataclass(frozen=True, kw_only=True)
class SkillEntry:
    """One skill of a listing; its manifest is as its file states it, whatever force it has."""

    item: Listed
    counters: Counters  # of all its stages together
    manifest: Manifest


@dataclass(frozen=True, kw_only=True)
class SkillPage:
    skills: Sequence[SkillEntry]
    next: str | None
    total: int


@dataclass(frozen=True, kw_only=True)
class ShownSkill(SkillEntry):
    """One skill whole. `skill` is None where its files can't be read as one; `text` is its main file, if it has one."""

    skill: Skill | None
    files: tuple[str, ...]
    text: bytes | None
    told: tuple[str, ...] = ()  # what its source says it has counted, in words
    lacks: tuple[str, ...] = ()  # packages that it needs and this environment does not have, in words
    known: tuple[str, ...] = ()  # what evidence says of each version, in words
    origin: str = ""  # where lockfiles say that it came from
    tree: Tree = field(default_factory=dict)  # its files with their contents, where a database or a disk was asked


def together(stages: Mapping[Stage, Counters]) -> Counters:
    return functools.reduce(operator.add, stages.values(), Counters())


def words_of_source(told: Mapping[Stage, Counters]) -> tuple[str, ...]:
    """What another system says it has counted."""
    return tuple(
        f"its source says of {stage}: used {counted.used}, succeeded {counted.succeeded}, failed {counted.failed}"
        for stage, counted in told.items()
    )


def entry_json(entry: SkillEntry) -> dict[str, Any]:
    """One skill of a listing, flat."""
    item, summary = entry.item, entry.item.summary
    told = {name: plain(getattr(item, name)) for name in _LISTED} | {"counters": plain(entry.counters)}
    if summary is None:
        return told
    return {name: plain(getattr(summary, name)) for name in _SUMMARY} | told | {"manifest": _unusual(entry.manifest)}


_LISTED = [field.name for field in fields(Listed) if field.name not in ("summary", "tree_hash", "fills")]
_SUMMARY = [field.name for field in fields(Summary) if field.name not in ("manifest", "stated")]
_MANIFEST = [field.name for field in fields(Manifest)]


def _unusual(manifest: Manifest) -> dict[str, Any]:
    """What it says that is not said anyway."""
    return {
        name: plain(getattr(manifest, name))
        for name in _MANIFEST
        if getattr(manifest, name) != getattr(PLAIN_MANIFEST, name)
    }


def shown_json(shown: ShownSkill) -> dict[str, Any]:
    """One skill whole."""
    body = {"body": shown.skill.body} if shown.skill is not None else {}
    more = {name: list(getattr(shown, name)) for name in ("files", "told", "lacks", "known")}
    return {**entry_json(shown), **body, **more, "origin": shown.origin}


FORMS: Mapping[type, Callable[[Any], Any]] = {SkillEntry: entry_json, ShownSkill: shown_json}
