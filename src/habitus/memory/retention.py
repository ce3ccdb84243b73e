"""Retention of engrams, decided without touching anything: utility, cap, pruning, compaction."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from habitus.errors import Invalid
from habitus.memory.model import Engram, LessonCounters
from habitus.settings import RetentionSettings

CREDIT_SECONDS = 300

_TRIED = 5  # times shown before a hit rate says something
_POOR = 0.35

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def utility(engram: Engram) -> float:
    """How much a lesson has earned its place: confidence, how often it helped, a trial, how often it came up."""
    counters = engram.counters
    rate = hit_rate(counters)
    earned = 0.5 * engram.confidence + 0.8 * rate + 0.3 * engram.verified
    total = earned + min(0.1 * math.log(1 + max(counters.frequency, 0)), 0.3)
    is_stale = counters.retrievals >= _TRIED and rate < _POOR
    return total / 2 if is_stale else total


def hit_rate(counters: LessonCounters) -> float:
    return (counters.helpful + 1) / (counters.retrievals + 2)


def over_the_cap(lessons: Iterable[Engram], most: int) -> list[Engram]:
    """The lessons of one place that have to go: the newest stays, then what is pinned, then the most useful."""
    found = [engram for engram in lessons if engram.kind.is_lesson]
    if len(found) <= most:
        return []
    newest = max(found, key=lambda engram: (engram.created_on or _LONG_AGO, engram.id))
    ranked = sorted(found, key=lambda engram: (engram is not newest, not engram.is_pinned, -utility(engram), engram.id))
    return ranked[most:]


def to_prune(lessons: Iterable[Engram], keep: RetentionSettings, now: datetime) -> list[Engram]:
    """Lessons that never helped or have expired, each with its reason, the worst first, and only a share of all."""
    found = [engram for engram in lessons if engram.kind.is_lesson]
    due = [replace(engram, reason=why) for engram in found if (why := _why_pruned(engram, keep, now))]
    due.sort(key=lambda engram: (utility(engram), engram.id))
    return due[: int(len(found) * keep.pruned)]


def _why_pruned(engram: Engram, keep: RetentionSettings, now: datetime) -> str:
    counters, shown = engram.counters, engram.counters.last_retrieved or engram.created_on
    if engram.is_pinned:
        return ""
    if counters.retrievals >= keep.tries and not counters.helpful:
        return f"shown {counters.retrievals} times, and it never helped"
    if shown is not None and now - shown >= timedelta(days=keep.lesson_days):
        return f"not shown since {shown:%Y-%m-%d}"
    return ""


def to_drop(entries: Sequence[Engram], keep: Sequence[int]) -> list[Engram]:
    """What a compaction lets go, given the places (from 0) that it keeps. A pinned entry is never let go."""
    unknown = [place for place in keep if not 0 <= place < len(entries)]
    if unknown or not keep:
        what = f"place {unknown[0]}" if unknown else "nothing"
        raise Invalid(f"A compaction of {len(entries)} entries can't keep {what}.", mend="Everything is kept.")
    kept = set(keep)
    return [engram for place, engram in enumerate(entries) if place not in kept and not engram.is_pinned]


def most_useful(entries: Sequence[Engram], most: int) -> list[int]:
    """The places of the entries that a compaction without a model keeps: what is pinned, then the most useful."""
    ranked = sorted(
        range(len(entries)), key=lambda place: (not entries[place].is_pinned, -utility(entries[place]), place)
    )
    return sorted(ranked[:most])
