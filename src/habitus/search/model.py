"""The input and output of a search: documents, hits, results and the report about an index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Change this whenever documents are encoded differently: stored entries are then recomputed.
SHAPE = "3"


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A searchable skill, lesson or tool; `when_to_use` says when to use it."""

    id: str
    name: str
    cue: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    body: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hit:
    """A matching document; `score` is its relevance by itself, 0–1, and `parts` its rank's contributions, biggest
    first.
    """

    id: str
    score: float
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Results:
    """Hits, best first; `fits` is false if the best one is not good enough to be offered."""

    hits: tuple[Hit, ...] = ()
    fits: bool = False
    confidence: float = 0.0
    # The confidence below which nothing is offered.
    least: float = 0.0


def results_as_json(found: Results) -> dict[str, Any]:
    return {"results": found.hits, "fits": found.fits, "confidence": found.confidence, "least": found.least}


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """A description of an index, for status commands."""

    collection: str
    documents: int
    learned: int
    embedding: str
    floor: float
    notes: tuple[str, ...] = ()
