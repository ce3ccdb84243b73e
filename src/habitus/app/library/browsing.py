"""Browsing skills and lessons: through search and filters, each with how it fared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from habitus.app.home import Home
from habitus.app.use_cases.skills import SkillList, everything, matching, used
from habitus.evidence.policy import Verdict
from habitus.journal.journal import Journal
from habitus.memory.cortex import Cortex
from habitus.memory.model import Engram, Kind, TrustLevel
from habitus.skills.layers import address
from habitus.skills.listing import Listed
from habitus.skills.model import Counters

if TYPE_CHECKING:
    from habitus.app.growth.evidence import Evidence  # its arithmetic takes longer to import than a list to make

_LESSONS = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A skill, how it fared, and whether it is known to help; None while that is not known."""

    item: Listed
    counters: Counters
    verdict: Verdict | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Browsed:
    """Rows in order: by name, or the best fit first. `tags` of all skills with how many have each, the most first."""

    rows: tuple[Row, ...]
    found: int
    total: int
    tags: Mapping[str, int]
    fits: bool  # whether what was searched for fits anything well


def browse(home: Home, wanted: SkillList) -> Browsed:
    items = everything(home)
    chosen, fits = matching(home, wanted, items)
    page = chosen[: wanted.limit]
    with home.reading():
        counted, known = used(home.skills, page), _known(home.journal, home.evidence, page)
    return Browsed(
        rows=tuple(
            Row(
                item=item,
                counters=counted.get((item.layer, item.name), Counters()),
                verdict=known.get(address(item.name, item.layer)),
            )
            for item in page
        ),
        found=len(chosen),
        total=len(items),
        tags=home.skills.last.tags,
        fits=fits,
    )


def _known(journal: Journal, evidence: Evidence, items: Sequence[Listed]) -> dict[str, Verdict]:
    """Of the version that is there now, what evidence says; its arithmetic is done where anybody has judged."""
    versions = {address(item.name, item.layer): item.summary.version for item in items if item.summary is not None}
    kept = journal.exposures(list(versions))
    if not any(one.said for one in kept):
        return {}
    found = ((one.item, one.judgement.verdict) for one in evidence.findings(kept).items)
    return {
        item.name: verdict
        for item, verdict in found
        if verdict is not Verdict.UNKNOWN and versions.get(item.name) == item.version
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class LessonFilters:
    """Which lessons somebody wants to see, and whether what agents were told most comes first, or what is new."""

    kind: Kind | None = None
    trust: TrustLevel | None = None
    by_use: bool = False

    def fits(self, lesson: Engram) -> bool:
        return (self.kind is None or lesson.kind is self.kind) and (self.trust is None or lesson.trust is self.trust)


@dataclass(frozen=True, kw_only=True, slots=True)
class BrowsedLessons:
    """Lessons by kind, as many as there are at all, and those that are put away."""

    groups: Mapping[Kind, tuple[Engram, ...]]
    total: int
    archived: tuple[Engram, ...]


def browse_lessons(memory: Cortex, filters: LessonFilters) -> BrowsedLessons:
    everything = memory.list_lessons("all", _LESSONS)
    chosen = [lesson for lesson in everything if filters.fits(lesson)]
    if filters.by_use:
        chosen.sort(key=lambda lesson: (lesson.counters.retrievals, lesson.counters.helpful), reverse=True)
    groups = {kind: tuple(lesson for lesson in chosen if lesson.kind is kind) for kind in Kind}
    return BrowsedLessons(
        groups={kind: lessons for kind, lessons in groups.items() if lessons},
        total=len(everything),
        archived=memory.archived(),
    )
