"""Lenient parsing of values from other systems (counts, dates, flags, lists, JSON), with a diagnostic for each
oddity.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from habitus.skills.formats.base import UnreadableEntryError
from habitus.skills.model import Diagnostic, Severity
from habitus.use_counts import UsageCounts

MAX_COUNT = 2**31 - 1
MAX_JSON = 64 * 1024 * 1024


class DiagnosticCollector:
    """Collects the diagnostics of one file or folder."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.diagnostics: list[Diagnostic] = []
        self.vcs_files: list[str] = []  # one file of each version control folder, none of which is read

    def add(self, message: str, hint: str = "", severity: Severity = Severity.WARNING) -> None:
        """Add a diagnostic."""
        self.diagnostics.append(Diagnostic(file=self.file, message=message, hint=hint, severity=severity))


def parse_storable_json(content: bytes, file: str) -> Any:
    """Parse JSON into storable values; raise `UnreadableEntryError` if it is invalid or too large."""
    if len(content) > MAX_JSON:
        raise UnreadableEntryError(f"{file} has {len(content):,} bytes; at most {MAX_JSON:,} are read.")
    try:
        # parse_constant maps NaN and Infinity to None, which JSON proper can't hold.
        return make_json_storable(json.loads(content.decode("utf-8-sig"), parse_constant=lambda _: None))
    except UnicodeDecodeError as error:
        raise UnreadableEntryError(f"{file} is not UTF-8 at byte {error.start}.") from None
    except json.JSONDecodeError as error:
        raise UnreadableEntryError(f"{file} is not valid JSON (line {error.lineno}): {error.msg}.") from None
    except (ValueError, RecursionError) as error:
        raise UnreadableEntryError(f"{file} can't be read as JSON: {error}.") from None


def parse_storable_json_object(content: bytes, file: str) -> dict[str, Any]:
    """Parse a JSON object; raise `UnreadableEntryError` for any other value."""
    value = parse_storable_json(content, file)
    if not isinstance(value, dict):
        raise UnreadableEntryError(f"{file} holds {_describe_kind(value)}, not an object.")
    return value


def dump_json(value: object) -> bytes:
    """Render a value as indented JSON."""
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode()


def make_json_storable(value: Any) -> Any:
    """Return the value as UTF-8 JSON can hold it: no lone surrogates, no NaN, only plain values."""
    match value:
        case str():
            return value if value.isascii() else value.encode("utf-8", "replace").decode()
        case list() | tuple():
            return [make_json_storable(item) for item in value]
        case dict():
            return {make_json_storable(str(key)): make_json_storable(item) for key, item in value.items()}
        case float() if not math.isfinite(value):
            return None
        case bool() | int() | float() | None:
            return value
    return str(value)


def to_text(value: Any) -> str:
    """Return any value as text; None is empty."""
    match value:
        case str():
            return value
        case None:
            return ""
        case bool() | list() | dict():
            return json.dumps(value, ensure_ascii=False)
    return str(value)


def parse_text_list(value: Any, field: str, notes: DiagnosticCollector) -> tuple[str, ...]:
    """Parse a list of texts from a list, a JSON list as text, or words separated by commas."""
    if isinstance(value, str) and value.strip().startswith("["):
        try:
            value = make_json_storable(json.loads(value))
        except (ValueError, RecursionError):
            notes.add(f"'{field}' looks like a JSON list and is none.", "It was cut at its commas.")
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        notes.add(f"'{field}' is {_describe_kind(value)}, not a list; it was left out.")
        return ()
    return tuple(to_text(item) for item in value)


def parse_count(value: Any, field: str, notes: DiagnosticCollector, default: int = 0) -> int:
    """Parse a count within 0 and `MAX_COUNT`, or return the default."""
    if value is None or value == "":
        return default
    try:
        number = int(float(value)) if isinstance(value, str) and not value.strip().isdigit() else int(value)
    except (TypeError, ValueError, OverflowError):
        notes.add(f"'{field}' is {_quote_value(value)}, not a number; {default} was used.")
        return default
    if not 0 <= number <= MAX_COUNT:
        notes.add(f"'{field}' is {_quote_value(number)}; the nearest possible count was used.")
    return min(max(number, 0), MAX_COUNT)


def parse_fraction(value: Any, field: str, notes: DiagnosticCollector, default: float) -> float:
    """Parse a number from 0 to 1, or return the default."""
    if value is None or value == "":
        return default
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        notes.add(f"'{field}' is {_quote_value(value)}, not a number; {default} was used.")
        return default
    return default if math.isnan(number) else min(max(number, 0.0), 1.0)


def parse_flag(value: Any, field: str, notes: DiagnosticCollector, default: bool) -> bool:
    """Parse true or false in common spellings, or return the default."""
    match value.strip().lower() if isinstance(value, str) else value:
        case None | "":
            return default
        case True | 1 | "true" | "yes" | "on" | "1" | "t":
            return True
        case False | 0 | "false" | "no" | "off" | "0" | "f":
            return False
    notes.add(f"'{field}' is {_quote_value(value)}, not true or false; {str(default).lower()} was used.")
    return default


def parse_timestamp_field(value: Any, field: str, notes: DiagnosticCollector) -> datetime | None:
    """Parse a timestamp from ISO 8601, or from seconds or milliseconds since 1970; without a zone it is UTC."""
    if value in (None, "", 0, False):
        return None
    try:
        if isinstance(value, str) and not _is_numeric_timestamp(value):
            found = datetime.fromisoformat(value.strip())
        elif isinstance(value, datetime):
            found = value
        else:
            seconds = float(value)
            # 1e11 seconds are the year 5138, so a larger number must be milliseconds.
            found = datetime.fromtimestamp(seconds / 1000 if abs(seconds) > 1e11 else seconds, UTC)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        notes.add(f"'{field}' is {_quote_value(value)}, not a date; it was left out.", "Write ISO 8601.")
        return None


def format_iso_timestamp(value: datetime | None) -> str:
    """Format a timestamp as ISO 8601 in UTC; None is empty."""
    return "" if value is None else value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def pack_counters(counters: UsageCounts) -> dict[str, Any]:
    """Return every counter under our own names, for formats with fewer."""
    counts = {name: getattr(counters, name) for name in _COUNTED}
    return {**counts, "last_used": format_iso_timestamp(counters.last_used)}


def unpack_counters(values: Mapping[str, Any], notes: DiagnosticCollector) -> UsageCounts:
    """Parse counters that `pack_counters` wrote."""
    counts: dict[str, Any] = {name: parse_count(values.get(name), name, notes) for name in _COUNTED}
    return UsageCounts(**counts, last_used=parse_timestamp_field(values.get("last_used"), "last_used", notes))


# What other systems count; how a use ended without a word is known here only.
_COUNTED = ("recommended", "used", "succeeded", "failed")


def _is_numeric_timestamp(value: str) -> bool:
    # Eight digits such as 20260131 are a date, not seconds.
    return value.strip().replace(".", "", 1).isdecimal() and len(value.strip()) != 8


def _describe_kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "nothing"}
    return kinds.get(type(value), "a number")


def _quote_value(value: Any) -> str:
    shown = str(value) if not isinstance(value, int) or abs(value) < 10**20 else "a huge number"
    return repr(shown[:60])
