"""The input and output of a search: documents, hits, results and the report about an index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# Change this whenever documents are encoded differently: stored entries are then recomputed.
ENTRY_FORMAT = "3"


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchDocument:
    """A searchable skill, lesson or tool; `when_to_use` says when to use it."""

    id: str
    name: str
    when_to_use: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    body: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexHit:
    """A matching document; `score` is its relevance by itself, 0–1, and `parts` its rank's contributions, biggest
    first.
    """

    id: str
    score: float
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchResults:
    """Hits, best first; `fits` is false if the best one is not good enough to be offered."""

    hits: tuple[IndexHit, ...] = ()
    fits: bool = False
    confidence: float = 0.0
    # The confidence below which nothing is offered.
    min_confidence: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexReport:
    """A description of an index, for status commands."""

    collection: str
    documents: int
    learned: int
    embedding: str
    floor: float
    notes: tuple[str, ...] = ()
