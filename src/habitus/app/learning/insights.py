"""Insights into the library: effects over time, the cost of the menu, unused and confused skills.

The usage of one skill is counted by version and week.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from statistics import fmean

from habitus.app.home import Home
from habitus.app.learning.evidence import chosen_items, observations
from habitus.app.learning.improving import open_store
from habitus.app.library.explaining import select
from habitus.evidence.estimation import Effect, estimates
from habitus.evidence.findings import Finding, sums_of
from habitus.evidence.model import ItemKind
from habitus.improve.report import summary_of
from habitus.journal.model import KeptExposure, Origin
from habitus.skills.choosing import menu
from habitus.skills.choosing.selection import Request
from habitus.skills.layers.layer import address
from habitus.skills.layers.listing import Listed
from habitus.skills.library import Library
from habitus.skills.model import Counters, State, Version
from habitus.text import tokens

# Skills shown, and weeks at which the effect of each is estimated.
_HELPS, _WEEKS = 12, 6
# Menu lines shown, the most expensive first.
_LINES = 10
_UNUSED_AFTER = timedelta(days=14)
# Skills in the confusion matrix.
_CONFUSED = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class EffectAt:
    """An effect as it was known at a point in time; None before the first outcome."""

    at: datetime
    effect: Effect | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillEffect:
    """The effect of offering a skill, week by week up to now, and the tokens it takes in a prompt."""

    name: str
    effect: Effect
    over_time: Sequence[EffectAt]
    tokens: int
    used: int


@dataclass(frozen=True, kw_only=True, slots=True)
class MenuLine:
    """The cost of one line of the menu and the uses of its skill."""

    name: str
    tokens: int
    used: int


@dataclass(frozen=True, kw_only=True, slots=True)
class MenuCost:
    """The cost of the list of skills that every conversation begins with."""

    tokens: int
    budget: int
    shown: int
    # Skills left out because the budget was full.
    cut: int
    dearest: Sequence[MenuLine]
    # Tokens of the lines of skills that were never used.
    unused_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class UnusedSkill:
    """A skill that was never used, and since when it exists."""

    name: str
    since: datetime | None
    # Tokens of its menu line in every conversation; 0 if it has none.
    tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Confusion:
    """How well each column's skill matches a request in the words of each row's skill, 0 to 1."""

    names: Sequence[str]
    rows: Sequence[Sequence[float]]


@dataclass(frozen=True, kw_only=True, slots=True)
class TriedCandidate:
    """A candidate edit that was tried for a skill, with its state and results in words."""

    skill: str
    number: int
    state: str
    summary: str


def effects(home: Home) -> tuple[SkillEffect, ...]:
    """Return the effects of the best-known skills, the most helpful first."""
    now = home.clock()
    kept = home.evidence.exposures()
    rows = observations(kept, chosen_items(kept), now)
    skills = [row for row in rows if row.item.kind is ItemKind.SKILL]
    timestamps = [now - timedelta(weeks=weeks) for weeks in reversed(range(_WEEKS))]
    ages = [(now - at).total_seconds() / 86_400 for at in timestamps]
    history = [estimates(sums_of([row for row in skills if row.age_days >= age]), -age) for age in ages]
    latest = {item.name: item for item in sorted(history[-1], key=lambda item: item.version)}
    known = [
        (name, item, effect) for name, item in latest.items() if (effect := history[-1][item].offering) is not None
    ]
    # The narrowest interval is the best-known effect.
    surest = sorted(known, key=lambda one: one[2].high - one[2].low)[:_HELPS]
    return tuple(
        SkillEffect(
            name=name.partition("@")[0],
            effect=effect,
            over_time=[
                EffectAt(at=at, effect=found[item].offering if item in found else None)
                for at, found in zip(timestamps, history, strict=True)
            ],
            tokens=history[-1][item].tokens,
            used=history[-1][item].used,
        )
        for name, item, effect in sorted(surest, key=lambda one: -one[2].value)
    )


def menu_cost(home: Home) -> MenuCost:
    """Return the tokens of the menu in total and by line."""
    drawn, uses = _menu(home), _uses(home.skills)
    lines = [MenuLine(name=name, tokens=cost, used=uses.get(name, 0)) for name, cost in _costs(drawn).items()]
    return MenuCost(
        tokens=drawn.tokens,
        budget=drawn.budget,
        shown=len(drawn.shown),
        cut=len(drawn.cut),
        dearest=sorted(lines, key=lambda line: (-line.tokens, line.name))[:_LINES],
        unused_tokens=sum(line.tokens for line in lines if not line.used),
    )


def unused_skills(home: Home) -> tuple[UnusedSkill, ...]:
    """Return the skills that have been active for two weeks and were never used, oldest first."""
    uses, costs, since = _uses(home.skills), _costs(_menu(home)), home.clock() - _UNUSED_AFTER
    found = [
        UnusedSkill(name=item.name, since=item.summary.created_on, tokens=costs.get(item.name, 0))
        for item in home.skills.listing()
        if item.state is State.OK and item.summary is not None and not uses.get(item.name)
    ]
    old = [one for one in found if one.since is None or one.since <= since]
    return tuple(sorted(old, key=lambda one: (str(one.since or ""), one.name)))


def _menu(home: Home) -> menu.Menu:
    selected = select(home, Request(text="", user=home.user(), now=home.clock()))
    return menu.make_menu(selected, home.skills.all_counters(), home.settings.context_tokens)


def _costs(drawn: menu.Menu) -> dict[str, int]:
    # The first paragraph introduces the menu; each following line is one skill, in order.
    lines = drawn.text.split("\n\n", 1)[-1].split("\n")
    return {name: tokens(line) for name, line in zip(drawn.shown, lines, strict=False)}


def _uses(skills: Library) -> dict[str, int]:
    counted = skills.all_counters().items()
    return {name: sum(stages.values(), Counters()).used for (_, name), stages in counted}


def confusion(home: Home) -> Confusion:
    """Return the confusion matrix of the skills that are most similar to another one."""
    seen = home.skills.snapshot()
    cues = {item.name: item.summary.cue for item in seen.listing if item.summary is not None and item.state is State.OK}
    near = home.finder.neighbours(at=seen)
    pairs = [(-hit.score, name, hit.id) for name, hits in near.items() for hit in hits if {name, hit.id} <= cues.keys()]
    alike = dict.fromkeys(name for _, one, other in sorted(pairs) for name in (one, other))
    names = frozenset(list(alike)[:_CONFUSED])
    found = {
        name: {hit.id: hit.score for hit in home.finder.search(cues[name], k=len(names), among=names, at=seen).hits}
        for name in names
    }
    order = sorted(names)
    return Confusion(names=order, rows=[[found[row].get(column, 0.0) for column in order] for row in order])


def tried_candidates(home: Home) -> tuple[TriedCandidate, ...]:
    """Return the candidates tried for skills with their results, the latest of each skill first."""
    store = open_store(home)
    return tuple(
        TriedCandidate(skill=skill, number=one.number, state=one.state.value, summary=summary_of(one))
        for skill in store.skills()
        for one in reversed(store.candidates(skill))
    )


# The latest ones shown.
_VERSIONS, _WEEKS_SHOWN = 20, 26


@dataclass(frozen=True, kw_only=True, slots=True)
class Uses:
    """How often something was used with success, with failure, and without feedback."""

    good: int = 0
    bad: int = 0
    unknown: int = 0

    @property
    def total(self) -> int:
        return self.good + self.bad + self.unknown

    def __add__(self, other: Uses) -> Uses:
        return Uses(good=self.good + other.good, bad=self.bad + other.bad, unknown=self.unknown + other.unknown)


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillUsage:
    """The uses of a skill by version and by week, oldest first; a week is named by its Monday."""

    versions: tuple[tuple[int, Uses], ...]
    weeks: tuple[tuple[date, Uses], ...]
    # By version, newest first.
    items: tuple[Finding, ...]


def record_of(home: Home, item: Listed) -> SkillUsage:
    """Return the uses and findings of a skill; only real conversations count."""
    kept = home.journal.exposures([address(item.name, item.layer), item.name])
    return SkillUsage(
        versions=tuple(
            (version.number, _of_version(home.skills, item, version.number)) for version in _last(home.skills, item)
        ),
        weeks=_weeks([one for one in kept if one.exposure.is_used and one.origin is Origin.REAL], home.clock()),
        items=home.evidence.of_skill(item),
    )


def _last(skills: Library, item: Listed) -> Iterable[Version]:
    return skills.history(address(item.name, item.layer))[-_VERSIONS:]


def _of_version(skills: Library, item: Listed, number: int) -> Uses:
    stages = skills.counters(address(item.name, item.layer), version=number).values()
    good, bad, used = (sum(getattr(each, key) for each in stages) for key in ("succeeded", "failed", "used"))
    return Uses(good=good, bad=bad, unknown=max(used - good - bad, 0))


def _weeks(kept: Iterable[KeptExposure], now: datetime) -> tuple[tuple[date, Uses], ...]:
    """Count the uses by week, with the empty weeks in between for a chart."""
    counted: dict[date, Uses] = {}
    for one in kept:
        week = _monday(one.at)
        counted[week] = counted.get(week, Uses()) + _went(one)
    if not counted:
        return ()
    last = _monday(now)
    first = max(min(counted), last - timedelta(weeks=_WEEKS_SHOWN - 1))
    weeks = [first + timedelta(weeks=number) for number in range((last - first).days // 7 + 1)]
    return tuple((week, counted.get(week, Uses())) for week in weeks)


def _monday(timestamp: datetime) -> date:
    day = timestamp.astimezone(UTC).date()
    return day - timedelta(days=day.weekday())


def _went(one: KeptExposure) -> Uses:
    if not one.said:
        return Uses(unknown=1)
    return Uses(good=1) if fmean(one.said) >= 0.5 else Uses(bad=1)
