"""What goes into an index and what comes out of a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Changes whenever the same document would be taken apart differently: stored entries are then made anew.
SHAPE = "3"


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """Something that can be found: a skill, a lesson, a tool. `cue` says when to use it."""

    id: str
    name: str
    cue: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    body: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hit:
    """One found document. `score` says how well it fits by itself, 0–1, whatever else was found; `parts` says what
    its place in the order is made of, the biggest share first."""

    id: str
    score: float
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Results:
    """Hits, best first. `fits` is false when the best one is not good enough to be offered."""

    hits: tuple[Hit, ...] = ()
    fits: bool = False
    confidence: float = 0.0
    least: float = 0.0  # the confidence below which nothing is offered


def results_as_json(found: Results) -> dict[str, Any]:
    return {"results": found.hits, "fits": found.fits, "confidence": found.confidence, "least": found.least}


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What `describe` tells about an index."""

    collection: str
    documents: int
    learned: int
    embedding: str
    floor: float
    notes: tuple[str, ...] = ()
