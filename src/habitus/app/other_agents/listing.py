"""Listing of skills as Claude Code makes it: which descriptions find room, and which are lost."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from habitus.app.other_agents.agent_skills import AgentSkill
from habitus.hosts.table import Host
from habitus.skills import trees

_MOST_LOOKED_AT = 20  # transcripts, the newest first, for the last listing
_SMALL, _LARGE = 200_000, 1_000_000  # tokens of a model's window
_CHARS_A_TOKEN = 4
_FRACTION = 0.01  # of the window
_UNTOLD = 200  # characters that a description of others may have which was lost too
# Characters of the listing that skills of the program itself take, by its version 2.1.X: first and last X, as measured
# with an empty home. Others are not known.
_OF_THE_PROGRAM = (
    *((190, 197, 4_453), (203, 210, 5_802), (231, 240, 4_410), (260, 272, 5_449), (274, 285, 5_496)),
    *((286, 287, 5_746), (288, 289, 5_895), (290, 294, 5_887), (295, 303, 5_906), (304, 310, 5_904)),
    *((311, 319, 6_102), (321, 323, 6_191), (324, 325, 6_200)),
)
_HALF_LIFE_DAYS, _LEAST = 7, 0.1  # how a use counts less with the time
_ENTRY = re.compile(r"^- ([^\s:]+(?::[^\s:]+)*)(?:: (.*))?$")
_WRITTEN_BY = re.compile(r'"version": ?"(\d+\.\d+\.\d+)"')
_RAW_DESCRIPTION = re.compile(r"(?m)^description:[ \t]*(.*)$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """The room there is, and who gets none of it."""

    room: int
    wanted: int
    lost: tuple[str, ...]  # names, those used least last
    how_many: str  # before the count: nothing where a listing was seen, else how sure it is
    fraction: float  # of the window with which nothing would be lost


def make_listing(
    skills: Sequence[AgentSkill], seen: Seen, settings: Mapping[str, object], usage: Mapping[str, float]
) -> Listing:
    """What is in the last listing and not ours, others take; without one, what that version is known to take."""
    last = seen.listing
    own = {each.path.name: min(len(listed_description(each)), _cap(settings)) for each in skills if is_listed(each)}
    others = [len(f"- {name}: {told}" if told else f"- {name}") for name, told in _entries(last) if name not in own]
    window = _LARGE if len(last) > _SMALL * _CHARS_A_TOKEN * _fraction(settings) else _SMALL
    room = int(window * _CHARS_A_TOKEN * _fraction(settings))
    taken = sum(others) + len(others) if last else _taken_by(seen.version)
    names_only = taken + sum(len(name) + 2 for name in own) + len(own) - 1
    wanted = names_only + sum(size + 2 for size in own.values() if size)
    lost = []
    left = room - names_only
    for name in sorted(own, key=lambda name: -usage.get(name, 0.0)) if wanted > room else ():
        if own[name] + 2 <= left:
            left -= own[name] + 2
        elif own[name]:
            lost.append(name)
    unknown = _UNTOLD * sum(not told for name, told in _entries(last) if name not in own)
    how_many = "" if last else "about " if taken else "at least "
    fraction = max(_fraction(settings), -(-(wanted + unknown) * 1000 // (window * _CHARS_A_TOKEN)) / 1000)
    return Listing(room=room, wanted=wanted, lost=tuple(lost), how_many=how_many, fraction=fraction)


def is_listed(each: AgentSkill) -> bool:
    return each.skill is None or not each.skill.manifest.disable_model_invocation


def listed_description(each: AgentSkill) -> str:
    """What the agent makes of the file: without a description its first line, and what no YAML is, as it stands."""
    skill = each.skill
    if skill is None:
        content = each.tree[main].content if (main := trees.main_file(each.tree)) else None
        text = (content or b"").decode("utf-8", "replace")
        found = _RAW_DESCRIPTION.search(text)
        return found[1].strip() if found else _first_line(text)
    told = skill.description or _first_line(skill.body)
    return f"{told} - {skill.when_to_use}" if skill.when_to_use else told


def _first_line(text: str) -> str:
    return next((line.strip("# ") for line in text.splitlines() if line.strip("# ")), "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """The newest whole listing in what was written down, and the version of the program that wrote last."""

    listing: str = ""
    version: str = ""


def last_listing(transcripts: Iterable[Path]) -> Seen:
    newest = sorted(((path.stat().st_mtime, path) for path in transcripts if path.exists()), reverse=True)
    version = ""
    for _, path in newest[:_MOST_LOOKED_AT]:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if '"skill_listing"' in line and (found := _content(line)):
                    return Seen(listing=found, version=version)
                if not version and (told := _WRITTEN_BY.search(line)):
                    version = told[1]
    return Seen(version=version)


def _taken_by(version: str) -> int:
    """Characters with the break of each line; 0 where nobody knows."""
    major, _, minor = version.rpartition(".")
    known = (size for first, last, size in _OF_THE_PROGRAM if minor.isdigit() and first <= int(minor) <= last)
    return next(known, -1) + 1 if major == "2.1" else 0


def _content(line: str) -> str:
    try:
        told = json.loads(line).get("attachment", {})
    except (ValueError, AttributeError, RecursionError):
        return ""
    is_whole = isinstance(told, dict) and told.get("type") == "skill_listing" and told.get("isInitial", True)
    return str(told.get("content", "")) if is_whole else ""


def read_settings(agent: Host, environ: Mapping[str, str], home: Path) -> Mapping[str, object]:
    return _json(agent.path("~/.claude/settings.json", environ, home, home))


def read_usage(agent: Host, environ: Mapping[str, str], home: Path, now: datetime) -> Mapping[str, float]:
    """How much each skill was used, as the program counts it: less with every week."""
    kept = _json(agent.path("~/.claude.json", environ, home, home)).get("skillUsage")
    found = {}
    for name, told in kept.items() if isinstance(kept, dict) else ():
        try:
            days = max(0.0, now.timestamp() - float(told["lastUsedAt"]) / 1000) / 86_400
            found[str(name)] = float(told["usageCount"]) * max(0.5 ** (days / _HALF_LIFE_DAYS), _LEAST)
        except (TypeError, KeyError, ValueError):
            continue
    return found


def _json(path: Path) -> Mapping[str, object]:
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


def _cap(settings: Mapping[str, object]) -> int:
    given = settings.get("skillListingMaxDescChars")
    return given if isinstance(given, int) and given > 0 else 1_536


def _fraction(settings: Mapping[str, object]) -> float:
    given = settings.get("skillListingBudgetFraction")
    return float(given) if isinstance(given, int | float) and 0 < given <= 1 else _FRACTION


def _entries(listing: str) -> list[tuple[str, str]]:
    """Names with what is told of them, which may go over several lines."""
    found: list[tuple[str, str]] = []
    for line in listing.splitlines():
        if entry := _ENTRY.match(line):
            found.append((entry[1], entry[2] or ""))
        elif found:
            found[-1] = (found[-1][0], f"{found[-1][1]}\n{line}")
    return found
