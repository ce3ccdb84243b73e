"""Browsing skills and lessons with search, filters and usage; and the map of skills by meaning.

The map depends only on the skills and is stored, so a skill stays where people have seen it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from habitus import sql
from habitus.app.home import Home
from habitus.app.use_cases.skills import Counted, SkillList, everything, matching, used
from habitus.evidence.findings import Verdict
from habitus.evidence.model import ItemKind
from habitus.files import write_whole
from habitus.memory.memory import Cortex
from habitus.memory.model import Engram, Kind, TrustLevel
from habitus.search.texts.embedding import default_embedder
from habitus.skills.layers.layer import address
from habitus.skills.layers.listing import Listed, ShownSkill
from habitus.skills.model import Counters, Summary

if TYPE_CHECKING:
    from habitus.app.learning.evidence import Evidence

    # Importing the statistics takes longer than making a list.
    from habitus.evidence.estimation import Effect


_LESSONS = 1000
DAYS = 30
# By name and version.
_Known = Mapping[tuple[str, int | None], tuple[Verdict | None, "Effect | None"]]


class Order(StrEnum):
    """The sort order of a list of skills; a leading minus reverses it."""

    NAME = "name"
    USES = "uses"
    EFFECT = "effect"
    SOURCE = "source"


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A skill with its counters, daily uses and known effect; verdict and effect are None while unknown."""

    item: Listed
    counters: Counters
    days: tuple[int, ...] = ()
    verdict: Verdict | None = None
    effect: Effect | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Browsed:
    """One page of skills, by name or most relevant first; `tags` counts the tags of all skills, most frequent first."""

    rows: tuple[Row, ...]
    found: int
    total: int
    tags: Mapping[str, int]
    # Whether the search words fit any skill well.
    fits: bool


def browse(
    home: Home, wanted: SkillList, order: Order | None = None, *, turned: bool = False, skip: int = 0
) -> Browsed:
    """Return one page of the matching skills, starting after the first `skip`."""
    items = everything(home)
    chosen, fits = matching(home, wanted, items)
    last = skip + (wanted.limit or len(chosen))
    # These two orders need the counters of every match; the others only those of the page.
    if order in (Order.USES, Order.EFFECT):
        rows = _sort_rows(rows_of(home, chosen), order, turned=turned)[skip:last]
    else:
        rows = rows_of(home, _in_order(chosen, order, turned=turned)[skip:last])
    return Browsed(rows=tuple(rows), found=len(chosen), total=len(items), tags=home.skills.last.tags, fits=fits)


def _in_order(items: Sequence[Listed], order: Order | None, *, turned: bool) -> Sequence[Listed]:
    if order is None:
        return items
    return sorted(items, key=_source if order is Order.SOURCE else lambda item: (item.name, ""), reverse=turned)


def _source(item: Listed) -> tuple[str, str]:
    return ("" if item.summary is None else item.summary.source, item.name)


def _sort_rows(rows: Sequence[Row], order: Order, *, turned: bool) -> list[Row]:
    """Sort rows by value, highest first; rows without a value come last in either direction."""
    known = [(_value(row, order), row) for row in rows]
    ranked = sorted(
        ((value, row) for value, row in known if value is not None),
        key=lambda one: (one[0] if turned else -one[0], one[1].item.name),
    )
    return [*(row for _, row in ranked), *(row for value, row in known if value is None)]


def _value(row: Row, order: Order) -> float | None:
    if order is Order.USES:
        return row.counters.used
    return None if row.effect is None else row.effect.value


@dataclass(frozen=True, kw_only=True, slots=True)
class Uses:
    """Counters and daily uses of skills, and whether any conversation has an outcome."""

    counted: Counted
    days: Mapping[str, tuple[int, ...]]
    is_judged: bool


def uses_of(home: Home, shown: ShownSkill) -> Uses:
    """Read the usage of one skill whose counters are known already."""
    item = shown.item
    counted = {(item.layer, item.name): shown.counters}
    return Uses(counted=counted, days=_days(home, [item]), is_judged=home.journal.is_judged())


def rows_of(home: Home, items: Sequence[Listed], uses: Uses | None = None) -> list[Row]:
    """Return the skills with counters, uses of the last thirty days, and the known effect of their current version."""
    uses = uses or _read_uses(home, items)
    # Outside the read transaction: the evidence may have to write its sums first.
    known = _known_effects(home.evidence) if uses.is_judged else {}
    rows = []
    for item in items:
        version, name = None if item.summary is None else item.summary.version, address(item.name, item.layer)
        verdict, effect = known.get((name, version), (None, None))
        counters = uses.counted.get((item.layer, item.name), Counters())
        rows.append(Row(item=item, counters=counters, days=uses.days.get(name, ()), verdict=verdict, effect=effect))
    return rows


def _read_uses(home: Home, items: Sequence[Listed]) -> Uses:
    # Layers of this machine are in another database, which one transaction can't cover.
    counted = used(home.skills, [item for item in items if not home.is_shared(item.layer)])
    with sql.reading(home.shared):
        counted |= used(home.skills, [item for item in items if home.is_shared(item.layer)])
        return Uses(counted=counted, days=_days(home, items), is_judged=home.journal.is_judged())


def _days(home: Home, items: Sequence[Listed]) -> Mapping[str, tuple[int, ...]]:
    """Count the uses of each skill per day, oldest day first."""
    now = home.clock()
    counted: dict[str, list[int]] = {}
    one = address(items[0].name, items[0].layer) if len(items) == 1 else None
    for name, at in home.journal.used_since(now - timedelta(days=DAYS), of=one):
        counted.setdefault(name, [0] * DAYS)[DAYS - 1 - min((now - at).days, DAYS - 1)] += 1
    return {name: tuple(days) for name, days in counted.items()}


def _known_effects(evidence: Evidence) -> _Known:
    """Map each version of a skill to its verdict and effect, as far as the evidence knows them."""
    return {
        (one.item.name, one.item.version): (
            None if (v := one.judgement.verdict) is Verdict.UNKNOWN else v,
            one.estimate.offering,
        )
        for one in evidence.findings().items
        if one.item.kind is ItemKind.SKILL
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class LessonFilters:
    """Filters for a list of lessons; `by_use` sorts by use instead of age."""

    kind: Kind | None = None
    trust: TrustLevel | None = None
    by_use: bool = False

    def fits(self, lesson: Engram) -> bool:
        """Whether a lesson passes the filters."""
        return (self.kind is None or lesson.kind is self.kind) and (self.trust is None or lesson.trust is self.trust)


@dataclass(frozen=True, kw_only=True, slots=True)
class BrowsedLessons:
    """Lessons by kind, the total number of lessons, and the archived ones."""

    groups: Mapping[Kind, tuple[Engram, ...]]
    total: int
    archived: tuple[Engram, ...]


def browse_lessons(memory: Cortex, filters: LessonFilters) -> BrowsedLessons:
    """Return the matching lessons by kind, newest or most used first."""
    everything = memory.list_lessons("all", _LESSONS)
    chosen = [lesson for lesson in everything if filters.fits(lesson)]
    if filters.by_use:
        chosen.sort(key=lambda lesson: (lesson.counters.retrievals, lesson.counters.helpful), reverse=True)
    groups = {kind: tuple(lesson for lesson in chosen if lesson.kind is kind) for kind in Kind}
    return BrowsedLessons(
        groups={kind: lessons for kind, lessons in groups.items() if lessons},
        total=len(everything),
        archived=memory.list_archived(),
    )


FILE = "skill-map.json"
# More dots than this can't be told apart; the rest goes into clusters.
MOST = 500
# The grid whose cells become clusters.
_COLUMNS, _ROWS = 8, 5
# Iterations of pushing dots apart, and the distance they aim for.
_ROUNDS, _APART = 60, 0.03
# If at least this share of skills has coordinates, the rest is placed between them; else the map is laid out anew.
_KNOWN = 0.8
_NEAR = 3

Places = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Dot:
    """A skill on the map, with coordinates from 0 to 1."""

    row: Row
    x: float
    y: float


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Skills without a dot of their own, labelled with their most common tag or word."""

    label: str
    number: int
    x: float
    y: float


@dataclass(frozen=True, kw_only=True)
class SkillMap:
    dots: Sequence[Dot]
    clusters: Sequence[Cluster]


def map_skills(home: Home) -> SkillMap:
    """Place the most used skills as dots, and the others in clusters."""
    items = [item for item in home.skills.listing() if item.summary is not None]
    rows = sorted(rows_of(home, items), key=lambda row: (-row.counters.used, row.item.name))
    places = _places(home, [row.item.summary for row in rows if row.item.summary is not None])
    at = {row.item.name: tuple(places[number].tolist()) for number, row in enumerate(rows)}
    dots = [Dot(row=row, x=at[row.item.name][0], y=at[row.item.name][1]) for row in rows[:MOST]]
    return SkillMap(dots=dots, clusters=_clusters(rows[MOST:], at))


def _clusters(rows: Sequence[Row], at: Mapping[str, tuple[float, ...]]) -> list[Cluster]:
    cells: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        x, y = at[row.item.name]
        cells.setdefault((min(int(x * _COLUMNS), _COLUMNS - 1), min(int(y * _ROWS), _ROWS - 1)), []).append(row)
    return [
        Cluster(
            label=_common(inside),
            number=len(inside),
            x=float(np.mean([at[row.item.name][0] for row in inside])),
            y=float(np.mean([at[row.item.name][1] for row in inside])),
        )
        for _, inside in sorted(cells.items())
    ]


def _common(rows: Sequence[Row]) -> str:
    """Return the most common tag, or else the most common word of the names; empty without any."""
    tags = Counter(tag for row in rows if row.item.summary is not None for tag in row.item.summary.tags)
    counted = tags or Counter(word for row in rows for word in row.item.name.split("-") if not word.isdigit())
    return min(counted, key=lambda word: (-counted[word], word), default="")


def _places(home: Home, summaries: Sequence[Summary]) -> Places:
    """Return the coordinates of each skill, stored ones if possible; new ones are stored."""
    if not summaries:
        return np.zeros((0, 2))
    file, names = home.settings.home / FILE, [one.name for one in summaries]
    kept: dict[str, list[float]] = {}
    with suppress(OSError, ValueError):
        kept = json.loads(file.read_text())
    known = [number for number, name in enumerate(names) if name in kept]
    if len(known) == len(names):
        return np.array([kept[name] for name in names])
    # Always the bundled encoder: the map must not move when the search encoder is changed.
    vectors = default_embedder().embed([f"{one.title} {one.cue} {' '.join(one.tags)}" for one in summaries])
    if len(known) >= _KNOWN * len(names):
        places = _between(vectors.astype(np.float64), names, kept, known)
    else:
        places = lay_out(vectors.astype(np.float64))
    if not home.is_read_only:
        with suppress(OSError):
            said = dict(zip(names, np.round(places, 4).tolist(), strict=True))
            write_whole(file, json.dumps(said, sort_keys=True).encode())
    return np.round(places, 4)


def _between(vectors: Places, names: Sequence[str], kept: Mapping[str, list[float]], known: Sequence[int]) -> Places:
    """Keep known coordinates, and place the others amid their nearest neighbours."""
    places = np.array([kept.get(name, [0.5, 0.5]) for name in names])
    for number in sorted(set(range(len(names))) - set(known)):
        near = np.argsort(-(vectors[known] @ vectors[number]), kind="stable")[:_NEAR]
        places[number] = places[[known[one] for one in near]].mean(axis=0)
    return places


def lay_out(vectors: Places) -> Places:
    """Project vectors on the two directions of greatest variance, spread over the map with some distance between
    dots."""
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
    return _push_apart(places)


def _push_apart(places: Places) -> Places:
    """Move overlapping dots apart; only the first skills are drawn as dots."""
    dots = places[:MOST].copy()
    for _ in range(_ROUNDS):
        between = dots[:, None, :] - dots[None, :, :]
        distance = np.sqrt((between**2).sum(axis=2)) + np.eye(len(dots))
        push = np.clip(_APART - distance, 0, None) / 2
        direction = between / np.maximum(distance, 1e-9)[:, :, None]
        dots = np.clip(dots + (direction * push[:, :, None]).sum(axis=1), 0.0, 1.0)
    return np.vstack([dots, places[MOST:]])
