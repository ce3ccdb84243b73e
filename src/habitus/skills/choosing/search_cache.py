"""Skills found from what is kept: the listing, and the file of the index. A doubt is no answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from habitus.search import Results
from habitus.skills.choosing.project import project_words
from habitus.skills.layers.layer import project_root
from habitus.skills.layers.listing_cache import ODD, KeptListing, View, digest_marks, open_listing

_INDEXED = "SELECT name, tree_hash FROM indexed_skills"


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundSkills:
    """Skills that fit a request, and when to use each."""

    results: Results
    cues: Mapping[str, str]


def read_found(view: View, query: str, k: int) -> FoundSkills | None:
    """As the command finds them; None where the library or its index must be brought up to date first."""
    try:
        with open_listing(view) as kept:
            if not _is_in_step(kept) or not all(shelf.is_same() for shelf in kept.shelves.values()):
                return None
            from habitus.search.searcher import open_kept  # numpy, where there is something to search

            index = open_kept(kept.connection, view.home / "cache", "skills")
            if index is None:
                return None
            index.project = project_words(project_root(view.cwd))
            results = index.search(query, k=k)
            summaries = {hit.id: kept.find(hit.id).item.summary for hit in results.hits}
        cues = {name: summary.cue for name, summary in summaries.items() if summary is not None}
        return FoundSkills(results=results, cues=cues)
    except ODD:
        return None


def _is_in_step(kept: KeptListing) -> bool:
    """Whether all that is listed was indexed as it is, and the static encoder answers."""
    found = digest_marks(dict(kept.connection.execute(_INDEXED).fetchall()))
    return (kept.head["encoder"], kept.head["indexed"]) == ("static", found)
