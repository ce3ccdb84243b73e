"""Schedules: when a job is due, from words such as 'daily at 3:30'. Pure.

Each time it is due is a slot with a key. A job bears the key of its slot, so however many schedulers there are, however
often they look and whatever their clocks do, a slot has one job.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo

from habitus.settings import DAYS, SCHEDULE


@dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    key: str
    moment: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """Every hour, day (no `weekday`) or week."""

    is_hourly: bool = False
    weekday: int | None = None  # 0 is Monday
    at: time = time()

    def last(self, now: datetime, zone: tzinfo) -> Slot:
        """The slot that is now."""
        slot = self._slot(now, zone)
        return slot if slot.moment <= now else self._slot(now - self._period, zone)

    def next(self, now: datetime, zone: tzinfo) -> Slot:
        slot = self._slot(now, zone)
        return slot if slot.moment > now else self._slot(now + self._period, zone)

    @property
    def _period(self) -> timedelta:
        if self.is_hourly:
            return timedelta(hours=1)
        return timedelta(days=1 if self.weekday is None else 7)

    def _slot(self, around: datetime, zone: tzinfo) -> Slot:
        """The slot of the hour, day or week that holds a moment. Hours are those of the world, days those of the zone:
        two hosts in two zones have the same hour, and each its day, which has one key."""
        if self.is_hourly:
            hour = around.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
            return Slot(key=f"{hour:%Y-%m-%dT%H}", moment=hour)
        day = around.astimezone(zone).date()
        if self.weekday is not None:
            day += timedelta(days=self.weekday - day.weekday())
        key = f"{day:%Y-%m-%d}" if self.weekday is None else f"{day:%G-W%V}"
        return Slot(key=key, moment=datetime.combine(day, self.at, zone).astimezone(UTC))


def read(text: str) -> Schedule | None:
    """From what the settings let pass; nothing for 'off'."""
    found = re.fullmatch(SCHEDULE, text)
    assert found is not None, f"The settings let '{text}' pass."
    if text == "off":
        return None
    if text == "hourly":
        return Schedule(is_hourly=True)
    at = time(int(found["hour"] or 0), int(found["minute"] or 0))
    if text.startswith("daily"):
        return Schedule(at=at)
    return Schedule(weekday=DAYS.index(found["day"] or DAYS[0]), at=at)
