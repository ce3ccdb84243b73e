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
_HALF_LIFE_DAYS, _LEAST = 7, 0.1  # how a use counts less with the time
_ENTRY = re.compile(r"^- ([^\s:]+(?::[^\s:]+)*)(?:: (.*))?$")
_RAW_DESCRIPTION = re.compile(r"(?m)^description:[ \t]*(.*)$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """The room there is, and who gets none of it."""

    room: int
    wanted: int
    lost: tuple[str, ...]  # names, those used least last
    is_whole: bool  # whether the skills of the program and of plugins are known
    fraction: float  # of the window with which nothing would be lost


def make_listing(
    skills: Sequence[AgentSkill], last: str, settings: Mapping[str, object], usage: Mapping[str, float]
) -> Listing:
    """`last` is the newest listing that a transcript holds; what is in it and not ours, others take."""
    own = {each.path.name: min(len(listed_description(each)), _cap(settings)) for each in skills if is_listed(each)}
    others = [len(f"- {name}: {told}" if told else f"- {name}") for name, told in _entries(last) if name not in own]
    window = _LARGE if len(last) > _SMALL * _CHARS_A_TOKEN * _fraction(settings) else _SMALL
    room = int(window * _CHARS_A_TOKEN * _fraction(settings))
    names_only = sum(others) + sum(len(name) + 2 for name in own) + len(others) + len(own) - 1
    wanted = names_only + sum(size + 2 for size in own.values() if size)
    lost = []
    left = room - names_only
    for name in sorted(own, key=lambda name: -usage.get(name, 0.0)) if wanted > room else ():
        if own[name] + 2 <= left:
            left -= own[name] + 2
        elif own[name]:
            lost.append(name)
    unknown = _UNTOLD * sum(not told for name, told in _entries(last) if name not in own)
    fraction = max(_fraction(settings), -(-(wanted + unknown) * 1000 // (window * _CHARS_A_TOKEN)) / 1000)
    return Listing(room=room, wanted=wanted, lost=tuple(lost), is_whole=bool(last), fraction=fraction)


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


def last_listing(transcripts: Iterable[Path]) -> str:
    """The newest whole listing in what was written down."""
    newest = sorted(((path.stat().st_mtime, path) for path in transcripts if path.exists()), reverse=True)
    for _, path in newest[:_MOST_LOOKED_AT]:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if '"skill_listing"' in line and (found := _content(line)):
                    return found
    return ""


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
