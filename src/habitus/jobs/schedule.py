"""Schedules: when a job is due, from text such as 'daily at 3:30'. Pure.

Each due time is a slot with a key that becomes the job's id. However many schedulers run, and whatever their clocks
say, a slot gets one job.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo

from habitus.settings import DAYS, SCHEDULE_PATTERN


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleDueTime:
    """One due time of a schedule."""

    key: str
    timestamp: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """An hourly, daily (no `weekday`) or weekly schedule."""

    is_hourly: bool = False
    # 0 is Monday.
    weekday: int | None = None
    at: time = time()

    def get_current_due_time(self, now: datetime, zone: tzinfo) -> ScheduleDueTime:
        """Return the slot that is due now."""
        slot = self._find_due_time_in_period(now, zone)
        return slot if slot.timestamp <= now else self._find_due_time_in_period(now - self._period_length, zone)

    def get_next_due_time(self, now: datetime, zone: tzinfo) -> ScheduleDueTime:
        """Return the next slot after now."""
        slot = self._find_due_time_in_period(now, zone)
        return slot if slot.timestamp > now else self._find_due_time_in_period(now + self._period_length, zone)

    @property
    def _period_length(self) -> timedelta:
        # Hours are in UTC and days in the zone: hosts in two zones share an hour's slot, and a day has one key each.
        if self.is_hourly:
            return timedelta(hours=1)
        return timedelta(days=1 if self.weekday is None else 7)

    def _find_due_time_in_period(self, around: datetime, zone: tzinfo) -> ScheduleDueTime:
        """Return the slot of the hour, day or week that contains this time."""
        if self.is_hourly:
            hour = around.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
            return ScheduleDueTime(key=f"{hour:%Y-%m-%dT%H}", timestamp=hour)
        day = around.astimezone(zone).date()
        if self.weekday is not None:
            day += timedelta(days=self.weekday - day.weekday())
        key = f"{day:%Y-%m-%d}" if self.weekday is None else f"{day:%G-W%V}"
        return ScheduleDueTime(key=key, timestamp=datetime.combine(day, self.at, zone).astimezone(UTC))


def parse_schedule(text: str) -> Schedule | None:
    """Parse a schedule that the settings have validated; None for 'off'."""
    found = re.fullmatch(SCHEDULE_PATTERN, text)
    assert found is not None, f"The settings let '{text}' pass."
    if text == "off":
        return None
    if text == "hourly":
        return Schedule(is_hourly=True)
    at = time(int(found["hour"] or 0), int(found["minute"] or 0))
    if text.startswith("daily"):
        return Schedule(at=at)
    return Schedule(weekday=DAYS.index(found["day"] or DAYS[0]), at=at)
