"""What a layout carries of a skill, found out by reading an export back: no list that could go out of date."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from habitus.files import tree_hash
from habitus.skills import trees
from habitus.skills.fields import NAMES
from habitus.skills.formats import detect
from habitus.skills.formats.base import Format, Incoming, NotTaken, Outgoing
from habitus.skills.model import Counters, Manifest

_SAID = {
    **{name: name.replace("_", " ") for name in NAMES},
    "license": "license",
    "compatibility": "compatibility",
    "allowed_tools": "allowed tools",
    "body": "text",
}


def lost(format: Format, skills: Sequence[Outgoing], to: Path) -> tuple[NotTaken, ...]:
    """For each skill of an export at `to` that would not come back whole, what would be missing."""
    back = _read_back(format, to)
    found = []
    for item in skills:
        missing = list(_missing(item, back[item.skill.name])) if item.skill.name in back else []
        if missing:
            reason = f"'{format.name}' has no place for: {', '.join(missing)}."
            found.append(NotTaken(origin=item.skill.layer, name=item.skill.name, reason=reason))
    return tuple(found)


def hashes(format: Format, skills: Sequence[Outgoing]) -> dict[str, str]:
    """Name → hash over the files, of the skills as they would come back from an export."""
    with tempfile.TemporaryDirectory() as folder:
        format.write(skills, Path(folder) / "out")
        return {name: tree_hash(entry.tree) for name, entry in _read_back(format, Path(folder)).items()}


def _read_back(format: Format, to: Path) -> dict[str, Incoming]:
    return {entry.name: entry for entry in detect.read(to, (format,)) if isinstance(entry, Incoming)}


def _missing(item: Outgoing, back: Incoming) -> Iterator[str]:
    for field, words in _SAID.items():
        if getattr(item.skill, field) and not getattr(back.skill, field):
            yield words
    for part in dataclasses.fields(Manifest):
        if getattr(item.skill.manifest, part.name) != getattr(back.skill.manifest, part.name) == part.default:
            yield part.name
    yield from (key for key in item.skill.extra if key not in back.skill.extra)
    if not item.skill.enabled and back.enabled:
        yield "that it is switched off"
    if any(_numbers(of_stage) and stage not in back.counters for stage, of_stage in item.counters.items()):
        yield "counters"
    aside = {trees.TOML_FILE, *trees.MAIN_FILES}
    yield from (path for path in sorted(item.tree.keys() - back.tree.keys() - aside))


def _numbers(counters: Counters) -> bool:
    return any((counters.recommended, counters.used, counters.succeeded, counters.failed))
