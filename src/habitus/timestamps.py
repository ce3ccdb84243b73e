"""Moments as people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from habitus.errors import Invalid

_UNITS = {
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_AGO = re.compile(r"(\d+)\s*(s|m|h|d|w)[a-z]*(\s+ago)?", re.IGNORECASE)


def parse_timestamp(text: str, now: datetime) -> datetime:
    """`2026-05-01`, `2026-05-01 14:30`, `14:30` (today), `yesterday`, `2h`, `3 days ago`; local time unless it says."""
    try:
        return _parse_time_text(text.strip(), now)
    except (ValueError, OverflowError):
        raise Invalid(
            f"'{text}' is not a time that can be read.",
            hint="Write 2026-05-01, '2026-05-01 14:30', 14:30, 2h or '3 days ago'.",
        ) from None


def _parse_time_text(wanted: str, now: datetime) -> datetime:
    ago = _AGO.fullmatch(wanted)
    if ago:
        return now - int(ago[1]) * _UNITS[ago[2].lower()]
    local = now.astimezone()
    if wanted.lower() in ("now", "today", "yesterday"):
        midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
        return {"now": now, "today": midnight, "yesterday": midnight - timedelta(days=1)}[wanted.lower()]
    if re.fullmatch(r"\d{1,2}:\d{2}(:\d{2})?", wanted):
        hours, rest = wanted.split(":", 1)
        wanted = f"{local:%Y-%m-%d} {hours:0>2}:{rest}"
    timestamp = datetime.fromisoformat(wanted)
    if re.search(r"\d:\d\d:\d\d(?![.,\d])", wanted):
        timestamp += timedelta(microseconds=999_999)  # a time as we print it stands for its whole second
    return (timestamp if timestamp.tzinfo else timestamp.astimezone()).astimezone(UTC)
