"""The map of skills: at most so many dots where their meanings put them, and clusters for the rest.

The layout depends on nothing but the skills, and is kept, so that a skill stays where somebody saw it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from habitus.app.home import Home
from habitus.app.library.browsing import Row, rows_of
from habitus.files import write_whole
from habitus.search.embedding import default_embedder
from habitus.skills.model import Summary

FILE = "skill-map.json"
MOST = 500  # dots
_COLUMNS, _ROWS = 8, 5  # of the grid whose cells are clusters
_ROUNDS, _APART = 60, 0.03  # of pushing dots apart, and how far
_KNOWN = 0.8  # the share of skills that must have a place for the others to be put between them
_NEAR = 3

Places = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Dot:
    """A skill, with its place from 0 to 1 in both directions."""

    row: Row
    x: float
    y: float


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Skills that there are no dots for, called after what most of them have in common."""

    label: str
    number: int
    x: float
    y: float


@dataclass(frozen=True, kw_only=True)
class SkillMap:
    dots: Sequence[Dot]
    clusters: Sequence[Cluster]


def map_skills(home: Home) -> SkillMap:
    """Those that are used most are dots."""
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
    """The tag, or else the word of their names, that most of them have."""
    tags = Counter(tag for row in rows if row.item.summary is not None for tag in row.item.summary.tags)
    counted = tags or Counter(word for row in rows for word in row.item.name.split("-") if not word.isdigit())
    return min(counted, key=lambda word: (-counted[word], word), default="")


def _places(home: Home, summaries: Sequence[Summary]) -> Places:
    if not summaries:
        return np.zeros((0, 2))
    file, names = home.settings.home / FILE, [one.name for one in summaries]
    kept: dict[str, list[float]] = {}
    with suppress(OSError, ValueError):
        kept = json.loads(file.read_text())
    known = [number for number, name in enumerate(names) if name in kept]
    if len(known) == len(names):
        return np.array([kept[name] for name in names])
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
    """What has a place keeps it; the others are put between those that are most like them."""
    places = np.array([kept.get(name, [0.5, 0.5]) for name in names])
    for number in sorted(set(range(len(names))) - set(known)):
        near = np.argsort(-(vectors[known] @ vectors[number]), kind="stable")[:_NEAR]
        places[number] = places[[known[one] for one in near]].mean(axis=0)
    return places


def lay_out(vectors: Places) -> Places:
    """The two directions in which meanings differ most, spread over the whole map, with dots a little apart."""
    centred = vectors - vectors.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T @ centred)
    axes = directions[:, [-1, -2]]
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), [0, 1]])  # an eigenvector may point either way
    flat = np.round(centred @ axes, 6)
    order = np.argsort(np.argsort(flat, axis=0, kind="stable"), axis=0, kind="stable")
    span = np.ptp(flat, axis=0)
    places = 0.5 * order / max(len(flat) - 1, 1) + 0.5 * (flat - flat.min(axis=0)) / np.where(span > 0, span, 1)
    return _push_apart(places)


def _push_apart(places: Places) -> Places:
    """Only those that are drawn as dots: the first."""
    dots = places[:MOST].copy()
    for _ in range(_ROUNDS):
        between = dots[:, None, :] - dots[None, :, :]
        distance = np.sqrt((between**2).sum(axis=2)) + np.eye(len(dots))
        push = np.clip(_APART - distance, 0, None) / 2
        direction = between / np.maximum(distance, 1e-9)[:, :, None]
        dots = np.clip(dots + (direction * push[:, :, None]).sum(axis=1), 0.0, 1.0)
    return np.vstack([dots, places[MOST:]])
