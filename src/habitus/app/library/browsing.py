"""Browsing skills and lessons with search, filters and usage; and the map of skills by meaning.

The map depends only on the skills and is stored, so a skill stays where people have seen it.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from habitus import sql
from habitus.app.home import Home
from habitus.app.use_cases import skills
from habitus.evidence.findings import ItemVerdict
from habitus.evidence.model import EffectEstimate, ItemKind
from habitus.files import write_atomically
from habitus.memory.cortex import Cortex
from habitus.memory.model import Engram, LessonKind, TrustLevel
from habitus.search.texts.embedding import get_default_embedder
from habitus.search.texts.words import STOP_WORDS
from habitus.skills.layers.layer import format_skill_address
from habitus.skills.layers.listing import ListedSkill, SkillDetails
from habitus.skills.model import SkillSummary
from habitus.use_counts import UsageCounts

if TYPE_CHECKING:
    from habitus.app.learning.evidence import EvidenceService

    # Importing the statistics takes longer than making a list.


_MAX_LESSONS = 1000
USAGE_DAYS = 30
# By name and version.
_EffectsByVersion = Mapping[tuple[str, int | None], tuple[ItemVerdict | None, "EffectEstimate | None"]]


class SkillSortOrder(StrEnum):
    """The sort order of a list of skills; a leading minus reverses it."""

    NAME = "name"
    USES = "uses"
    EFFECT = "effect"
    SOURCE = "source"


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillListRow:
    """A skill with its counters, daily uses and known effect; verdict and effect are None while unknown."""

    item: ListedSkill
    counters: UsageCounts
    days: tuple[int, ...] = ()
    verdict: ItemVerdict | None = None
    effect: EffectEstimate | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class BrowseSkillsResult:
    """One page of skills, by name or most relevant first; `tags` counts the tags of all skills, most frequent first."""

    rows: tuple[SkillListRow, ...]
    found: int
    total: int
    tags: Mapping[str, int]
    # Whether the search words fit any skill well.
    fits: bool


def browse_skills(
    home: Home,
    request: skills.ListSkillsRequest,
    order: SkillSortOrder | None = None,
    *,
    is_reversed: bool = False,
    skip: int = 0,
) -> BrowseSkillsResult:
    """Return one page of the matching skills, starting after the first `skip`."""
    items = skills.list_existing_and_pending_skills(home)
    chosen, fits = skills.filter_and_search_skills(home, request, items)
    last = skip + (request.limit or len(chosen))
    if order is SkillSortOrder.EFFECT:
        rows = _sort_rows_by_effect(build_skill_rows(home, chosen), is_reversed=is_reversed)[skip:last]
    else:
        # Sorting by use needs the counters of every match; otherwise those of the page are enough.
        uses = _read_usage_of_listed_skills(home, chosen) if order is SkillSortOrder.USES else None
        page = _sort_listed_skills(chosen, order, uses, is_reversed=is_reversed)[skip:last]
        rows = build_skill_rows(home, page, uses)
    return BrowseSkillsResult(
        rows=tuple(rows), found=len(chosen), total=len(items), tags=home.skills.last_snapshot.tags, fits=fits
    )


def _sort_listed_skills(
    items: Sequence[ListedSkill], order: SkillSortOrder | None, uses: SkillsUsageSummary | None, *, is_reversed: bool
) -> Sequence[ListedSkill]:
    if uses is not None:
        # Most skills of a large library were never used, and only those that were need a look at their count.
        counts = {key: counters.used for key, counters in uses.counted.items() if counters.used}
        used, unused = list[ListedSkill](), list[ListedSkill]()
        for item in sorted(items, key=attrgetter("name")):
            (used if (item.layer, item.name) in counts else unused).append(item)
        # The sort is stable in either direction: equally used skills stay in the order of their names.
        used.sort(key=lambda item: counts[item.layer, item.name], reverse=not is_reversed)
        return [*unused, *used] if is_reversed else [*used, *unused]
    if order is None:
        return items
    return sorted(
        items,
        key=_get_source_sort_key if order is SkillSortOrder.SOURCE else lambda item: (item.name, ""),
        reverse=is_reversed,
    )


def _get_source_sort_key(item: ListedSkill) -> tuple[str, str]:
    return ("" if item.summary is None else item.summary.source, item.name)


def _sort_rows_by_effect(rows: Sequence[SkillListRow], *, is_reversed: bool) -> list[SkillListRow]:
    """Sort rows by effect, highest first; rows without one come last in either direction."""
    known = sorted(
        ((row.effect.value, row) for row in rows if row.effect is not None),
        key=lambda one: (one[0] if is_reversed else -one[0], one[1].item.name),
    )
    return [*(row for _, row in known), *(row for row in rows if row.effect is None)]


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillsUsageSummary:
    """Counters and daily uses of skills, and whether any conversation has an outcome."""

    counted: skills.CountersBySkill
    days: Mapping[str, tuple[int, ...]]
    is_judged: bool


def read_usage_of_one_skill(home: Home, shown: SkillDetails) -> SkillsUsageSummary:
    """Read the usage of one skill whose counters are known already."""
    item = shown.item
    counted = {(item.layer, item.name): shown.counters}
    return SkillsUsageSummary(
        counted=counted, days=_count_daily_uses(home, [item]), is_judged=home.journal.has_any_explicit_feedback()
    )


def build_skill_rows(
    home: Home, items: Sequence[ListedSkill], uses: SkillsUsageSummary | None = None
) -> list[SkillListRow]:
    """Return the skills with counters, uses of the last thirty days, and the known effect of their current version."""
    uses = uses or _read_usage_of_listed_skills(home, items)
    # Outside the read transaction: the evidence may have to write its sums first.
    known = _map_skill_versions_to_effects(home.evidence) if uses.is_judged else {}
    rows = []
    for item in items:
        version, name = (
            None if item.summary is None else item.summary.version,
            format_skill_address(item.name, item.layer),
        )
        verdict, effect = known.get((name, version), (None, None))
        counters = uses.counted.get((item.layer, item.name), UsageCounts())
        rows.append(
            SkillListRow(item=item, counters=counters, days=uses.days.get(name, ()), verdict=verdict, effect=effect)
        )
    return rows


def _read_usage_of_listed_skills(home: Home, items: Sequence[ListedSkill]) -> SkillsUsageSummary:
    with sql.read_transaction(home.shared):
        return SkillsUsageSummary(
            counted=skills.read_usage_counts_of_skills(home.skills, items),
            days=_count_daily_uses(home, items),
            is_judged=home.journal.has_any_explicit_feedback(),
        )


def _count_daily_uses(home: Home, items: Sequence[ListedSkill]) -> Mapping[str, tuple[int, ...]]:
    """Count the uses of each skill per day, oldest day first."""
    now = home.clock()
    counted: dict[str, list[int]] = {}
    layers = {home.skills.get_layer(name).store.key: name for name in {item.layer for item in items}}
    keys = {name: key for key, name in layers.items()}
    one = (items[0].name, keys[items[0].layer]) if len(items) == 1 else None
    for name, key, at in home.journal.list_skill_use_times(now - timedelta(days=USAGE_DAYS), skill=one):
        if key in layers:
            days = counted.setdefault(format_skill_address(name, layers[key]), [0] * USAGE_DAYS)
            days[USAGE_DAYS - 1 - min((now - at).days, USAGE_DAYS - 1)] += 1
    return {name: tuple(days) for name, days in counted.items()}


def _map_skill_versions_to_effects(evidence: EvidenceService) -> _EffectsByVersion:
    """Map each version of a skill to its verdict and effect, as far as the evidence knows them."""
    return {
        (one.item.name, one.item.version): (
            None if (v := one.decision.verdict) is ItemVerdict.UNKNOWN else v,
            one.estimate.offering,
        )
        for one in evidence.compute_findings().items
        if one.item.kind is ItemKind.SKILL
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class LessonFilters:
    """Filters for a list of lessons; `by_use` sorts by use instead of age."""

    kind: LessonKind | None = None
    trust: TrustLevel | None = None
    by_use: bool = False
    # Words that all have to be in the text or the topic.
    q: str = ""

    def matches(self, lesson: Engram) -> bool:
        """Whether a lesson passes the filters."""
        if self.kind not in (None, lesson.kind) or self.trust not in (None, lesson.trust):
            return False
        text = f"{lesson.text} {lesson.topic}".casefold()
        return all(word in text for word in self.q.casefold().split())


@dataclass(frozen=True, kw_only=True, slots=True)
class BrowseLessonsResult:
    """Lessons by kind, the total number of lessons, and the archived ones."""

    groups: Mapping[LessonKind, tuple[Engram, ...]]
    total: int
    archived: tuple[Engram, ...]


def browse_lessons(memory: Cortex, filters: LessonFilters) -> BrowseLessonsResult:
    """Return the matching lessons by kind, newest or most used first."""
    everything = memory.list_lessons("all", _MAX_LESSONS)
    chosen = [lesson for lesson in everything if filters.matches(lesson)]
    if filters.by_use:
        chosen.sort(key=lambda lesson: (lesson.counters.retrievals, lesson.counters.helpful), reverse=True)
    groups = {kind: tuple(lesson for lesson in chosen if lesson.kind is kind) for kind in LessonKind}
    return BrowseLessonsResult(
        groups={kind: lessons for kind, lessons in groups.items() if lessons},
        total=len(everything),
        archived=memory.list_archived_lessons(),
    )


MAP_FILE = "skill-map.json"
# More dots than this can't be told apart; the rest goes into clusters.
MAX_DOTS = 500
# The grid whose cells become clusters.
_COLUMNS, _ROWS = 8, 5
# The grid whose cells are named, as far as so many skills lie in them.
_AREA_COLUMNS, _AREA_ROWS, _MIN_FOR_AREAS, _MIN_IN_AREA = 4, 3, 12, 3
# How many words name a group, each at least so many times as frequent in it as in all others.
_LABEL_WORDS, _TIMES_AS_FREQUENT = 2, 3
# Iterations of pushing dots apart, and the distance they aim for.
_ROUNDS, _APART = 60, 0.03
# If at least this share of skills has coordinates, the rest is placed between them; else the map is laid out anew.
_MIN_KNOWN_SHARE = 0.8
_NEIGHBOURS = 3

Coordinates = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class SkillMapDot:
    """A skill on the map, with coordinates from 0 to 1."""

    row: SkillListRow
    x: float
    y: float


@dataclass(frozen=True, kw_only=True)
class SkillMapCluster:
    """Skills that lie together, labelled with the words that set them apart from the others."""

    label: str
    number: int
    x: float
    y: float


@dataclass(frozen=True, kw_only=True)
class SkillMap:
    """The most used skills as dots, the others in clusters; `areas` name the parts of the map, whoever is in them."""

    dots: Sequence[SkillMapDot]
    clusters: Sequence[SkillMapCluster]
    areas: Sequence[SkillMapCluster]


def build_skill_map(home: Home) -> SkillMap:
    """Place the most used skills as dots, and the others in clusters."""
    items = [item for item in home.skills.list_skills() if item.summary is not None]
    rows = sorted(build_skill_rows(home, items), key=lambda row: (-row.counters.used, row.item.name))
    places = _load_or_compute_skill_coordinates(
        home, [row.item.summary for row in rows if row.item.summary is not None]
    )
    at = {row.item.name: tuple(places[number].tolist()) for number, row in enumerate(rows)}
    dots = [SkillMapDot(row=row, x=at[row.item.name][0], y=at[row.item.name][1]) for row in rows[:MAX_DOTS]]
    areas = (
        _group_skills_by_map_grid_cell(rows, at, columns=_AREA_COLUMNS, rows_high=_AREA_ROWS)
        if len(rows) >= _MIN_FOR_AREAS
        else []
    )
    return SkillMap(
        dots=dots,
        clusters=_group_skills_by_map_grid_cell(rows[MAX_DOTS:], at, columns=_COLUMNS, rows_high=_ROWS),
        areas=[one for one in areas if one.label and one.number >= _MIN_IN_AREA],
    )


def _group_skills_by_map_grid_cell(
    rows: Sequence[SkillListRow], at: Mapping[str, tuple[float, ...]], *, columns: int, rows_high: int
) -> list[SkillMapCluster]:
    """Return the skills by cell of a grid over the map."""
    cells: dict[tuple[int, int], list[SkillListRow]] = {}
    for row in rows:
        x, y = at[row.item.name]
        cells.setdefault((min(int(x * columns), columns - 1), min(int(y * rows_high), rows_high - 1)), []).append(row)
    groups = [inside for _, inside in sorted(cells.items())]
    return [
        SkillMapCluster(
            label=label,
            number=len(inside),
            x=float(np.mean([at[row.item.name][0] for row in inside])),
            y=float(np.mean([at[row.item.name][1] for row in inside])),
        )
        for inside, label in zip(groups, _label_skill_groups(groups), strict=True)
    ]


def _label_skill_groups(groups: Sequence[Sequence[SkillListRow]]) -> list[str]:
    """Return a label for each group: the words of names and of when to use that are frequent in it and rare elsewhere.

    A word must be several times as frequent as in all other groups together: what many skills say names none of them.

    No two groups get the same word; a group whose words are all taken gets an empty label.
    """
    words = [Counter(word for row in group for word in _list_label_words(row)) for group in groups]
    everywhere = sum(words, Counter[str]())
    total = sum(map(len, groups))
    taken: set[str] = set()
    labels = [""] * len(groups)
    for number in sorted(range(len(groups)), key=lambda number: -len(groups[number])):
        weights = {
            word: count / len(groups[number]) * math.log(1 + total / everywhere[word])
            for word, count in words[number].items()
            if word not in taken
            and (count > 1 or len(groups[number]) == 1)
            and count / len(groups[number])
            >= _TIMES_AS_FREQUENT * (everywhere[word] - count) / max(total - len(groups[number]), 1)
        }
        best = sorted(weights, key=lambda word: (-weights[word], word))[:_LABEL_WORDS]
        taken.update(best)
        labels[number] = ", ".join(best)
    return labels


def _list_label_words(row: SkillListRow) -> set[str]:
    """Return the words of a skill that can name a group."""
    about = "" if row.item.summary is None else row.item.summary.when_to_use_line
    words = re.findall(r"[^\W\d_]{3,}", f"{row.item.name} {about}".lower())
    return {word for word in words if word not in STOP_WORDS}


def _load_or_compute_skill_coordinates(home: Home, summaries: Sequence[SkillSummary]) -> Coordinates:
    """Return the coordinates of each skill, stored ones if possible; new ones are stored."""
    if not summaries:
        return np.zeros((0, 2))
    file, names = home.settings.home / MAP_FILE, [one.name for one in summaries]
    kept: dict[str, list[float]] = {}
    with suppress(OSError, ValueError):
        kept = json.loads(file.read_text())
    known = [number for number, name in enumerate(names) if name in kept]
    if len(known) == len(names):
        return np.array([kept[name] for name in names])
    # Always the bundled encoder: the map must not move when the search encoder is changed.
    vectors = get_default_embedder().embed(
        [f"{one.title} {one.when_to_use_line} {' '.join(one.tags)}" for one in summaries]
    )
    if len(known) >= _MIN_KNOWN_SHARE * len(names):
        places = _place_new_skills_near_neighbours(vectors.astype(np.float64), names, kept, known)
    else:
        places = compute_map_layout(vectors.astype(np.float64))
    if not home.is_read_only:
        with suppress(OSError):
            said = dict(zip(names, np.round(places, 4).tolist(), strict=True))
            write_atomically(file, json.dumps(said, sort_keys=True).encode())
    return np.round(places, 4)


def _place_new_skills_near_neighbours(
    vectors: Coordinates, names: Sequence[str], kept: Mapping[str, list[float]], known: Sequence[int]
) -> Coordinates:
    """Keep known coordinates, and place the others amid their nearest neighbours."""
    places = np.array([kept.get(name, [0.5, 0.5]) for name in names])
    for number in sorted(set(range(len(names))) - set(known)):
        near = np.argsort(-(vectors[known] @ vectors[number]), kind="stable")[:_NEIGHBOURS]
        places[number] = places[[known[one] for one in near]].mean(axis=0)
    return places


def compute_map_layout(vectors: Coordinates) -> Coordinates:
    """Project vectors on the two directions of greatest variance, spread over the map with some distance between
    dots."""
    if vectors.shape[1] < 2:
        # Without an encoder there are no directions; only the order of the skills is left.
        vectors = np.array([(number, number % _ROWS) for number in range(len(vectors))], dtype=np.float64)
    centred = vectors - vectors.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T @ centred)
    axes = directions[:, [-1, -2]]
    # An eigenvector may point either way; fixing the sign makes the map the same on every machine.
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), [0, 1]])
    flat = np.round(centred @ axes, 6)
    order = np.argsort(np.argsort(flat, axis=0, kind="stable"), axis=0, kind="stable")
    span = np.ptp(flat, axis=0)
    # Half by rank and half by value: ranks alone hide distances, values alone crowd the middle.
    places = 0.5 * order / max(len(flat) - 1, 1) + 0.5 * (flat - flat.min(axis=0)) / np.where(span > 0, span, 1)
    return _push_dots_apart(places)


def _push_dots_apart(places: Coordinates) -> Coordinates:
    """Move overlapping dots apart; only the first skills are drawn as dots."""
    dots = places[:MAX_DOTS].copy()
    for _ in range(_ROUNDS):
        between = dots[:, None, :] - dots[None, :, :]
        distance = np.sqrt((between**2).sum(axis=2)) + np.eye(len(dots))
        push = np.clip(_APART - distance, 0, None) / 2
        direction = between / np.maximum(distance, 1e-9)[:, :, None]
        dots = np.clip(dots + (direction * push[:, :, None]).sum(axis=1), 0.0, 1.0)
    return np.vstack([dots, places[MAX_DOTS:]])
