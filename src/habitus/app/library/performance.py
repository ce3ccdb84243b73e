"""Faring: how a skill did, version by version and week by week, and what that proves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from statistics import fmean

from habitus.app.home import Home
from habitus.evidence.findings import Finding
from habitus.journal.model import KeptExposure, Origin
from habitus.skills.layers import address
from habitus.skills.library import Library
from habitus.skills.listing import Listed
from habitus.skills.model import Version

_VERSIONS, _WEEKS = 20, 26  # the last


@dataclass(frozen=True, kw_only=True, slots=True)
class Uses:
    """How often something was used, and how often that is known to have gone well or wrong."""

    good: int = 0
    bad: int = 0
    unknown: int = 0

    @property
    def total(self) -> int:
        return self.good + self.bad + self.unknown

    def __add__(self, other: Uses) -> Uses:
        return Uses(good=self.good + other.good, bad=self.bad + other.bad, unknown=self.unknown + other.unknown)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fared:
    """`weeks` by their Monday, from the first with a use on; `versions` by their number; both the oldest first."""

    versions: tuple[tuple[int, Uses], ...]
    weeks: tuple[tuple[date, Uses], ...]
    findings: tuple[Finding, ...]


def record_of(home: Home, item: Listed) -> Fared:
    kept = home.journal.exposures([address(item.name, item.layer), item.name])
    return Fared(
        versions=tuple(
            (version.number, _of_version(home.skills, item, version.number)) for version in _last(home.skills, item)
        ),
        weeks=_weeks([one for one in kept if one.exposure.is_used and one.origin is Origin.REAL], home.clock()),
        findings=home.evidence.of_skill(item),
    )


def _last(skills: Library, item: Listed) -> Iterable[Version]:
    return skills.history(address(item.name, item.layer))[-_VERSIONS:]


def _of_version(skills: Library, item: Listed, number: int) -> Uses:
    stages = skills.counters(address(item.name, item.layer), version=number).values()
    good, bad, used = (sum(getattr(each, key) for each in stages) for key in ("succeeded", "failed", "used"))
    return Uses(good=good, bad=bad, unknown=max(used - good - bad, 0))


def _weeks(kept: Iterable[KeptExposure], now: datetime) -> tuple[tuple[date, Uses], ...]:
    """Weeks without a use count, too, so that a chart has its gaps."""
    counted: dict[date, Uses] = {}
    for one in kept:
        week = _monday(one.at)
        counted[week] = counted.get(week, Uses()) + _went(one)
    if not counted:
        return ()
    last = _monday(now)
    first = max(min(counted), last - timedelta(weeks=_WEEKS - 1))
    weeks = [first + timedelta(weeks=number) for number in range((last - first).days // 7 + 1)]
    return tuple((week, counted.get(week, Uses())) for week in weeks)


def _monday(moment: datetime) -> date:
    day = moment.astimezone(UTC).date()
    return day - timedelta(days=day.weekday())


def _went(one: KeptExposure) -> Uses:
    if not one.said:
        return Uses(unknown=1)
    return Uses(good=1) if fmean(one.said) >= 0.5 else Uses(bad=1)
