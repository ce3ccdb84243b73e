"""Input of a command: text and JSON from a file, standard input or the line, and moments as people write them."""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

from habitus.errors import Invalid, StorageFailed
from habitus.files import given_path


def read_bytes(file: str) -> bytes:
    """The content of a file; `-` is standard input."""
    try:
        return sys.stdin.buffer.read() if file == "-" else given_path(file).read_bytes()
    except OSError as error:
        raise StorageFailed(f"Can't read {file}: {error.strerror}.", mend="Check the path.") from None


def read_text(file: str) -> str:
    """The text of a file; `-` is standard input."""
    try:
        return read_bytes(file).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        name = "standard input" if file == "-" else file
        raise Invalid(f"{name} is not UTF-8 at byte {error.start}.", mend="Save it as UTF-8.") from None


def read_json(given: str, what: str) -> Any:
    """JSON as it is written, or in a file; `-` is standard input."""
    text = given if given.lstrip()[:1] in ("{", "[", '"') else read_text(given)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"The {what} is not JSON: {error}.", mend="Check the quotes, or give a file.") from None


_UNITS = {
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_AGO = re.compile(r"(\d+)\s*(s|m|h|d|w)[a-z]*(\s+ago)?", re.IGNORECASE)


def parse(text: str, now: datetime) -> datetime:
    """`2026-05-01`, `2026-05-01 14:30`, `14:30` (today), `yesterday`, `2h`, `3 days ago`; local time unless it says."""
    try:
        return _parse_moment(text.strip(), now)
    except (ValueError, OverflowError):
        raise Invalid(
            f"'{text}' is not a time that can be read.",
            mend="Write 2026-05-01, '2026-05-01 14:30', 14:30, 2h or '3 days ago'.",
        ) from None


def _parse_moment(wanted: str, now: datetime) -> datetime:
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
    moment = datetime.fromisoformat(wanted)
    if re.search(r"\d:\d\d:\d\d(?![.,\d])", wanted):
        moment += timedelta(microseconds=999_999)  # a time as we print it stands for its whole second
    return (moment if moment.tzinfo else moment.astimezone()).astimezone(UTC)


def show_moment(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"
