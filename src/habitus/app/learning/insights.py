"""Insights into the library: effects over time, the cost of the menu, unused and confused skills.

The usage of one skill is counted by version and week.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import ClassVar

from habitus.app.home import Home
from habitus.app.learning.evidence import convert_exposures_to_observations
from habitus.app.learning.improve_store import open_improve_store
from habitus.app.library.explaining import build_skill_menu_options, select_skills_for_request
from habitus.evidence.estimation import estimate_item_effects
from habitus.evidence.findings import ItemFinding, add_observations_to_sums
from habitus.evidence.model import EffectEstimate, ItemKind
from habitus.improve.report import describe_candidate_result
from habitus.journal.usage import JudgedUse
from habitus.plain_data import INTERNAL
from habitus.skills.choosing import menu
from habitus.skills.choosing.selection import UserRequest
from habitus.skills.layers.layer import format_skill_address
from habitus.skills.layers.listing import ListedSkill, build_skill_uses_url_path, sum_counters_over_stages
from habitus.skills.library import Library
from habitus.skills.model import SkillState, SkillVersion
from habitus.text import estimate_tokens
from habitus.use_counts import UsageCounts

# Skills shown, and weeks at which the effect of each is estimated.
_HELPS, _WEEKS = 12, 6
# Menu lines shown, the most expensive first.
_MAX_LINES = 10
_UNUSED_AFTER = timedelta(days=14)
# Skills that are compared, and the share of a skill's own score from which another may be mistaken for it.
_MAX_CONFUSED, _CONFUSION_SHARE = 10, 0.9


@dataclass(frozen=True, kw_only=True, slots=True)
class DatedEffectEstimate:
    """An effect as it was known at a point in time; None before the first outcome."""

    at: datetime
    effect: EffectEstimate | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillEffectHistory:
    """The effect of offering a skill, week by week up to now, and the tokens it takes in a prompt."""

    IN_JSON: ClassVar = ("links",)

    name: str
    effect: EffectEstimate
    over_time: Sequence[DatedEffectEstimate]
    tokens: int
    used: int
    # The address of `used`.
    address: str = field(metadata=INTERNAL)

    @property
    def links(self) -> Mapping[str, str]:
        """The address of exactly the uses that are counted."""
        return {"used": self.address}


@dataclass(frozen=True, kw_only=True, slots=True)
class MenuLineCost:
    """The cost of one line of the menu and the uses of its skill."""

    IN_JSON: ClassVar = ("links",)

    name: str
    tokens: int
    used: int
    # The address of `used`.
    address: str = field(metadata=INTERNAL)

    @property
    def links(self) -> Mapping[str, str]:
        """The address of exactly the uses that are counted."""
        return {"used": self.address}


@dataclass(frozen=True, kw_only=True, slots=True)
class MenuCost:
    """The cost of the list of skills that every conversation begins with."""

    tokens: int
    budget: int
    shown: int
    # Skills left out because the budget was full.
    cut: int
    dearest: Sequence[MenuLineCost]
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
class ConfusedSkillPair:
    """A skill, and another one that search finds nearly as well for the first one's own description."""

    name: str
    other: str
    # The score of the other one as a share of the skill's own.
    share: float


@dataclass(frozen=True, kw_only=True, slots=True)
class TriedSkillCandidateSummary:
    """A candidate edit that was tried for a skill, with its state and results in words."""

    skill: str
    number: int
    state: str
    summary: str


# In the functions below, `user` restricts uses to that user's; None means all users.
def list_surest_skill_effect_histories(home: Home, user: str | None) -> tuple[SkillEffectHistory, ...]:
    """Return the effects of the best-known skills over all users' conversations, the most helpful first."""
    now, uses = home.clock(), _count_skill_uses(home, user)
    timestamps = [now - timedelta(weeks=weeks) for weeks in reversed(range(_WEEKS))]
    sums, kept, by_request = home.evidence.sum_conversations(timestamps[0])
    began: dict[str, datetime] = {}
    for one in kept:
        began.setdefault(one.unit, one.at)
    history, since = [], timestamps[0]
    for at in timestamps:
        # A conversation counts from the week in which it began.
        new = [one for one in kept if since < began[one.unit] <= at] if at > since else []
        today = at.timestamp() / 86_400
        sums = add_observations_to_sums(
            convert_exposures_to_observations(new, by_request, at), settled=sums, today=today
        )
        found = estimate_item_effects(sums, today).items()
        history.append({item: estimate for item, estimate in found if item.kind is ItemKind.SKILL})
        since = at
    latest = {item.name: item for item in sorted(history[-1], key=lambda item: item.version)}
    known = [
        (name, item, effect) for name, item in latest.items() if (effect := history[-1][item].offering) is not None
    ]
    # Effects whose sign is known come first; of the others, those with the narrowest intervals.
    surest = sorted(known, key=lambda one: (one[2].low <= 0 <= one[2].high, one[2].high - one[2].low))[:_HELPS]
    return tuple(
        SkillEffectHistory(
            name=name.partition("@")[0],
            effect=effect,
            over_time=[
                DatedEffectEstimate(at=at, effect=found[item].offering if item in found else None)
                for at, found in zip(timestamps, history, strict=True)
            ],
            tokens=history[-1][item].tokens,
            used=uses.get(name.partition("@")[0], 0),
            address=_build_uses_path(name, user),
        )
        for name, item, effect in sorted(surest, key=lambda one: -one[2].value)
    )


def compute_menu_cost(home: Home, user: str | None) -> MenuCost:
    """Return the tokens of the menu in total and by line."""
    drawn, uses = _build_menu_of_all_skills(home), _count_skill_uses(home, user)
    lines = [
        MenuLineCost(name=name, tokens=cost, used=uses.get(name, 0), address=_build_uses_path(name, user))
        for name, cost in _estimate_tokens_per_menu_line(drawn).items()
    ]
    return MenuCost(
        tokens=drawn.tokens,
        budget=drawn.budget,
        shown=len(drawn.shown),
        cut=len(drawn.cut),
        dearest=sorted(lines, key=lambda line: (-line.tokens, line.name))[:_MAX_LINES],
        unused_tokens=sum(line.tokens for line in lines if not line.used),
    )


def list_old_never_used_skills(home: Home, user: str | None) -> tuple[UnusedSkill, ...]:
    """Return the skills that have been active for two weeks and were never used, oldest first."""
    uses, costs, since = (
        _count_skill_uses(home, user),
        _estimate_tokens_per_menu_line(_build_menu_of_all_skills(home)),
        home.clock() - _UNUSED_AFTER,
    )
    found = [
        UnusedSkill(name=item.name, since=item.summary.created_on, tokens=costs.get(item.name, 0))
        for item in home.skills.list_skills()
        if item.state is SkillState.OK and item.summary is not None and not uses.get(item.name)
    ]
    old = [one for one in found if one.since is None or one.since <= since]
    return tuple(sorted(old, key=lambda one: (str(one.since or ""), one.name)))


def _build_menu_of_all_skills(home: Home) -> menu.SkillMenu:
    selected = select_skills_for_request(home, UserRequest(text="", user=home.get_user(), now=home.clock()))
    return menu.build_menu_for_selection(selected, home.skills.read_all_counters(), build_skill_menu_options(home))


def _estimate_tokens_per_menu_line(drawn: menu.SkillMenu) -> dict[str, int]:
    # The first paragraph introduces the menu; each following line is one skill, in order.
    lines = drawn.text.split("\n\n", 1)[-1].split("\n")
    return {name: estimate_tokens(line) for name, line in zip(drawn.shown, lines, strict=False)}


def _count_skill_uses(home: Home, user: str | None) -> dict[str, int]:
    """Return the uses of each skill; those from before each use had a user count for everybody."""
    others = home.journal.count_skill_uses_by_other_users(user) if user is not None else {}
    keys = {layer.name: layer.store.key for layer in home.skills.layers}
    counted = home.skills.read_all_counters()
    return {
        item.name: sum_counters_over_stages(counted.get((item.layer, item.name), {})).used
        - others.get((keys[item.layer], item.name), 0)
        for item in home.skills.list_skills()
    }


def _build_uses_path(name: str, user: str | None) -> str:
    """Return the address of the uses that `_count_skill_uses` counts."""
    return f"/skills/{name}/uses{'' if user is None else '?own=true'}"


def list_confused_skill_pairs(home: Home) -> tuple[ConfusedSkillPair, ...]:
    """Return the pairs of similar skills in which search may find the second instead of the first, worst first."""
    seen = home.skills.snapshot()
    cues = {
        item.name: item.summary.when_to_use_line
        for item in seen.listing
        if item.summary is not None and item.state is SkillState.OK
    }
    near = home.finder.find_neighbours_of_all_skills(at=seen)
    pairs = [(-hit.score, name, hit.id) for name, hits in near.items() for hit in hits if {name, hit.id} <= cues.keys()]
    alike = dict.fromkeys(name for _, one, other in sorted(pairs) for name in (one, other))
    names = frozenset(list(alike)[:_MAX_CONFUSED])
    found = []
    for name in sorted(names):
        hits = home.finder.search(cues[name], k=len(names), among=names, at=seen).hits
        scores = {hit.id: hit.score for hit in hits if hit.score > 0}
        own = scores.pop(name, 0.0) or max(scores.values(), default=1.0)
        found += [ConfusedSkillPair(name=name, other=other, share=score / own) for other, score in scores.items()]
    confused = [pair for pair in found if pair.share >= _CONFUSION_SHARE]
    return tuple(sorted(confused, key=lambda pair: (-pair.share, pair.name, pair.other)))


def list_tried_candidates(home: Home) -> tuple[TriedSkillCandidateSummary, ...]:
    """Return the candidates tried for skills with their results, the latest of each skill first."""
    store = open_improve_store(home)
    return tuple(
        TriedSkillCandidateSummary(
            skill=skill, number=one.number, state=one.state.value, summary=describe_candidate_result(one)
        )
        for skill in store.list_skills_with_candidates()
        for one in reversed(store.list_candidates(skill))
    )


# The latest ones shown.
_VERSIONS, _WEEKS_SHOWN = 20, 26


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillUsageHistory:
    """The uses of a skill by version and by week, oldest first; a week is named by its Monday."""

    versions: tuple[tuple[int, UsageCounts], ...]
    weeks: tuple[tuple[date, UsageCounts], ...]
    # By version, newest first.
    items: tuple[ItemFinding, ...]
    # The versions that were made in a week.
    made: Mapping[date, tuple[int, ...]]


def read_skill_usage_history(home: Home, item: ListedSkill) -> SkillUsageHistory:
    """Return the uses and findings of a skill; only real conversations count."""
    used = home.journal.load_judged_uses_of_skill(item.name, home.skills.get_layer(item.layer).store.key)
    made: dict[date, tuple[int, ...]] = {}
    for version in home.skills.list_versions(format_skill_address(item.name, item.layer)):
        week = _get_monday(version.made_on)
        made[week] = (*made.get(week, ()), version.number)
    return SkillUsageHistory(
        versions=tuple(
            (version.number, _count_version_uses(home.skills, item, version.number))
            for version in _list_latest_versions(home.skills, item)
        ),
        weeks=_count_weekly_uses(used, home.clock(), build_skill_uses_url_path(item.layer, item.name)),
        items=home.evidence.find_skill_findings(item),
        made=made,
    )


def _list_latest_versions(skills: Library, item: ListedSkill) -> Iterable[SkillVersion]:
    return skills.list_versions(format_skill_address(item.name, item.layer))[-_VERSIONS:]


def _count_version_uses(skills: Library, item: ListedSkill, number: int) -> UsageCounts:
    counted = sum_counters_over_stages(skills.read_counters(item, version=number))
    return replace(counted, address=f"{build_skill_uses_url_path(item.layer, item.name)}?version={number}")


def _count_weekly_uses(used: Iterable[JudgedUse], now: datetime, address: str) -> tuple[tuple[date, UsageCounts], ...]:
    """Count the uses by week, with the empty weeks in between for a chart."""
    counted: dict[date, UsageCounts] = {}
    for one in used:
        week = _get_monday(one.use.at)
        counted[week] = counted.get(week, UsageCounts()) + one.counts
    if not counted:
        return ()
    last = _get_monday(now)
    first = max(min(counted), last - timedelta(weeks=_WEEKS_SHOWN - 1))
    weeks = [first + timedelta(weeks=number) for number in range((last - first).days // 7 + 1)]
    end = timedelta(days=6)
    return tuple(
        (week, replace(counted.get(week, UsageCounts()), address=f"{address}?since={week}&until={week + end}"))
        for week in weeks
    )


def _get_monday(timestamp: datetime) -> date:
    day = timestamp.astimezone(UTC).date()
    return day - timedelta(days=day.weekday())
