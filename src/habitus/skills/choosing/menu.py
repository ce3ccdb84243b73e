"""The menu: one line per skill that is not in the prompt in full, within a token budget; and the news about skills
since a user's last visit.
"""

from __future__ import annotations

import hashlib
import math
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from habitus.skills import lifecycle
from habitus.skills.choosing.selection import UNUSABLE_STATES, SkillSelection
from habitus.skills.layers.listing import LibrarySnapshot
from habitus.skills.lifecycle import GateContext
from habitus.skills.model import SkillSource, SkillSummary, Stage
from habitus.text import clean_to_one_line, count_bytes, estimate_tokens
from habitus.use_counts import UsageCounts

# The reason that `why` and the journal give for a skill without a line.
NOT_LISTED = "not listed: found by search"

HEADING = "## Available skills (load on demand)"
# The largest share of the model's context.
CONTEXT_SHARE = 0.02
# Uses a month that pay for a token of a line that every conversation begins with.
_USES_PER_TOKEN = 0.004
# Uses a month that all skills without a history share, and those that share the project's words.
_UNTRIED_USES, _PROJECT_USES = 30.0, 10.0
_HALF_LIFE = timedelta(days=30)
# Of equally useful skills the preferred one comes first.
_PREFERENCE = 1e-6
# Maximum lengths of a when-to-use line, tried in this order.
_LINE_LIMITS = (10_000, 240, 160, 120, 80, 60, 40)
_SHORTEST_LINE = 8  # characters of the shortest possible line
# With shorter lines there is no room for tags.
_MIN_LENGTH_WITH_TAGS = 120


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillMenu:
    """The menu section as the model sees it: `shown` in its order, `cut` for lack of room."""

    text: str
    tokens: int
    budget: int
    shown: tuple[str, ...]
    cut: tuple[str, ...] = ()
    max_line_length: int = _LINE_LIMITS[0]
    tie: tuple[str, str] | None = None  # equally used: the last one in, and the first one out

    def without_skills(self, names: Collection[str]) -> SkillMenu:
        """Return the menu without the lines of these skills; none takes their place."""
        if not names:
            return self
        first, *rest = self.text.split("\n\n", 1)
        lines = rest[0].split("\n") if rest else []
        kept = [line for name, line in zip(self.shown, lines, strict=False) if name not in names]
        kept += lines[len(self.shown) :]
        text = "\n".join([first, "", *kept]) if kept else ""
        shown = tuple(name for name in self.shown if name not in names)
        return replace(self, text=text, tokens=estimate_tokens(text), shown=shown)


@dataclass(frozen=True, kw_only=True, slots=True)
class MenuOptions:
    """The token budget of a menu, and what tells which lines of a large library are worth their tokens."""

    budget: int
    clock: Callable[[], datetime]
    pinned: Collection[str] = ()
    # Returns words that describe the surrounding project.
    project: Callable[[], Collection[str]] = tuple


def compute_menu_budget(context_tokens: int, menu_tokens: int) -> int:
    """Return the token budget of the menu: the setting, within a share of the model's context."""
    return min(menu_tokens, int(context_tokens * CONTEXT_SHARE))


def build_menu_for_selection(
    selection: SkillSelection,
    counters: Mapping[tuple[str, str], Mapping[Stage, UsageCounts]],
    options: MenuOptions,
    prefer: str = "",
) -> SkillMenu:
    """Build the menu of a selection: every skill, or the lines that are worth their tokens if there is no room for all.

    Among equally useful skills, `prefer` comes first.
    """

    def estimate_uses() -> dict[str, float]:
        uses = _estimate_monthly_uses(selection.menu, counters, options)
        if prefer in uses:
            uses[prefer] += _PREFERENCE
        return uses

    return compose_menu(selection.menu, options.budget, estimate_uses)


def _estimate_monthly_uses(
    skills: Sequence[SkillSummary],
    counters: Mapping[tuple[str, str], Mapping[Stage, UsageCounts]],
    options: MenuOptions,
) -> dict[str, float]:
    """Return the expected uses of each skill in a month; infinite for what is always listed."""
    now, said = options.clock(), {word.casefold() for word in options.project()}
    likely = {skill.name for skill in skills if said and not said.isdisjoint(_list_name_and_tag_words(skill))}
    uses: dict[str, float] = {}
    for skill in skills:
        if skill.name in options.pinned or skill.source is SkillSource.BUNDLED:
            uses[skill.name] = math.inf
            continue
        counted = counters.get((skill.layer, skill.name), {}).values()
        times = sum(one.used for one in counted)
        last = max((one.last_used for one in counted if one.last_used is not None), default=None)
        age = _HALF_LIFE if last is None else max(now - last, timedelta())
        of_project = _PROJECT_USES / len(likely) if skill.name in likely else 0.0
        uses[skill.name] = times * 0.5 ** (age / _HALF_LIFE) + of_project + _UNTRIED_USES / len(skills)
    return uses


def _list_name_and_tag_words(skill: SkillSummary) -> set[str]:
    return {word.casefold() for text in (skill.name, *skill.tags) for word in re.split(r"[^\w.+#]|_", text) if word}


def compose_menu(
    skills: Sequence[SkillSummary], budget: int, estimate_uses: Callable[[], Mapping[str, float]]
) -> SkillMenu:
    """Compose a menu within `budget` tokens: all lines in full, or shorter lines, or only those that pay.

    `estimate_uses` returns the expected monthly uses of each skill. Lines are always in order of name, so the section
    stays the same, and cacheable, while the library does.
    """
    skills = sorted(skills, key=_get_name)
    if not skills:
        return SkillMenu(text="", tokens=0, budget=budget, shown=())
    # Estimated at four bytes per token, minus the heading and its blank line.
    room = budget * 4 - len(HEADING) - 2
    if len(skills) * _SHORTEST_LINE > room:
        return _compose_menu_by_utility(skills, budget, estimate_uses())
    # Compare estimated lengths first: rendering a thousand lines up to seven times would be slow.
    sizes = [(len(s.name) + 8, s.when_to_use_line, sum(map(count_bytes, s.tags)) + 2 * len(s.tags) + 1) for s in skills]

    def has_room(cap: int) -> bool:
        tags = cap >= _MIN_LENGTH_WITH_TAGS
        return room >= sum(
            name + count_bytes(cue[:cap]) + 2 * (len(cue) > cap) + (tag if tags and tag > 1 else 0)
            for name, cue, tag in sizes
        )

    # If even the shortest lines have no room, no others need to be measured.
    for cap in _LINE_LIMITS if has_room(_LINE_LIMITS[-1]) else ():
        if has_room(cap):
            return _build_menu_from_lines(
                [format_menu_line(summary, cap) for summary in skills], skills, (), budget, cap
            )
    return _compose_menu_by_utility(skills, budget, estimate_uses())


_get_name = operator.attrgetter("name")


def format_menu_line(summary: SkillSummary, cap: int = _LINE_LIMITS[0]) -> str:
    """Return the menu line of a skill, with its when-to-use line cut to `cap` characters."""
    cue = clean_to_one_line(summary.when_to_use_line)
    if len(cue) > cap:
        cue = cue[: cap - 1].rstrip() + "…"
    tags = (
        f" [{', '.join(map(clean_to_one_line, summary.tags))}]" if summary.tags and cap >= _MIN_LENGTH_WITH_TAGS else ""
    )
    return f"- {summary.name} — {cue}{tags}" if cue else f"- {summary.name}{tags}"


def _compose_menu_by_utility(summaries: Sequence[SkillSummary], budget: int, utility: Mapping[str, float]) -> SkillMenu:
    cap = _LINE_LIMITS[-1]
    room = budget * 4 - len(HEADING) - len(_format_unlisted_count_line(len(summaries))) - 4
    ranked = sorted(summaries, key=lambda summary: (-utility[summary.name], summary.name))
    kept: dict[str, str] = {}
    edge: tuple[str, str] | None = None
    for summary in ranked:
        uses = utility[summary.name]
        if uses < _USES_PER_TOKEN * _SHORTEST_LINE / 4:
            break
        drawn = format_menu_line(summary, cap)
        if uses < _USES_PER_TOKEN * estimate_tokens(drawn):
            continue
        room -= count_bytes(drawn) + 1
        if room < 0:
            last = next(reversed(kept), summary.name)
            is_tie = last != summary.name and utility[last] == uses
            edge = (last, summary.name) if is_tie else None
            break
        kept[summary.name] = drawn
    shown = [summary for summary in summaries if summary.name in kept]
    others = [summary for summary in summaries if summary.name not in kept]
    menu = _build_menu_from_lines([kept[s.name] for s in shown], shown, tuple(map(_get_name, others)), budget, cap)
    return replace(menu, tie=edge)


def _build_menu_from_lines(
    lines: Sequence[str], shown: Sequence[SkillSummary], cut: tuple[str, ...], budget: int, cap: int
) -> SkillMenu:
    text = "\n".join([HEADING, "", *lines, *([_format_unlisted_count_line(len(cut))] if cut else [])])
    names = tuple(summary.name for summary in shown)
    return SkillMenu(text=text, tokens=estimate_tokens(text), budget=budget, shown=names, cut=cut, max_line_length=cap)


def _format_unlisted_count_line(count: int) -> str:
    return f"({count} more skills are not listed here; search_skills finds them.)"


_MAX_CHANGELOG_LINES = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillChangesSinceLastVisit:
    """The skills added, changed and removed since a user's last visit."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()  # lines of the changelog that name them

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)

    def render_prompt_section(self) -> str:
        """Return the section for an interactive prompt; empty without news."""
        parts = [
            f"- {what}: {', '.join(found)}"
            for what, found in (("new", self.added), ("changed", self.changed), ("gone", self.removed))
            if found
        ]
        return (
            "\n".join(["## What's new", "", *parts, *(f"  - {clean_to_one_line(line)}" for line in self.lines)])
            if parts
            else ""
        )


def compute_library_fingerprint(hashes: Mapping[str, str]) -> str:
    """Return one hash over a whole library, given the hash of each skill."""
    lines = "".join(f"{name}\0{digest}\n" for name, digest in sorted(hashes.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def list_visible_skill_hashes(snapshot: LibrarySnapshot, context: GateContext) -> dict[str, str]:
    """Return the hashes of the skills that a user may see, disabled ones included, by name."""
    return {
        item.name: item.tree_hash
        for item in snapshot.listing
        if item.summary is not None
        and item.state not in UNUSABLE_STATES
        and not lifecycle.list_closed_gates(item.summary, context)
    }


def find_skill_changes_since_visit(
    before: Mapping[str, str] | None,
    now: Mapping[str, str],
    *,
    hidden: Collection[str] = (),
    changelog: Callable[[], str] = lambda: "",
) -> SkillChangesSinceLastVisit:
    """Return the skills that changed since `before`; nothing on a user's first visit.

    `hidden` are skills that exist but must not be shown to this user.
    """
    if before is None:
        return SkillChangesSinceLastVisit()
    added = tuple(sorted(name for name in now if name not in before))
    removed = tuple(sorted(name for name in before if name not in now and name not in hidden))
    changed = tuple(sorted(name for name, digest in now.items() if name in before and before[name] != digest))
    found = {*added, *changed, *removed}
    lines = _list_changelog_lines_naming_skills(changelog().splitlines(), found, hidden=hidden) if found else ()
    return SkillChangesSinceLastVisit(added=added, changed=changed, removed=removed, lines=lines)


def _list_changelog_lines_naming_skills(
    lines: Collection[str], names: Collection[str], *, hidden: Collection[str]
) -> tuple[str, ...]:
    """Return the first lines that name one of these skills and none of the hidden ones."""
    wanted, unwanted = _compile_name_pattern(names), _compile_name_pattern(hidden)
    named = (line.strip(" \t-*+") for line in lines if wanted.search(line) and not (hidden and unwanted.search(line)))
    return tuple(named)[:_MAX_CHANGELOG_LINES]


def _compile_name_pattern(names: Collection[str]) -> re.Pattern[str]:
    # People write `csv summary` and `csv_summary` for csv-summary.
    spellings = (re.escape(name).replace(r"\-", "[-_ ]") for name in names)
    return re.compile(rf"(?i)(?<![\w-])(?:{'|'.join(spellings)})(?![\w-])")
