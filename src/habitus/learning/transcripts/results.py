"""Whether a tool's result was a failure, read from its structure: flags, status fields, exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

_LEADING_ERROR = re.compile(r"(?:Traceback \(most recent call last\):|(?:[A-Za-z_][\w.]{0,80})?(?:Error|Exception): )")
_FAILED_STATUS = frozenset({"error", "failed", "failure"})
_EXIT_CODES = ("exit_code", "exitCode", "returncode", "return_code")


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    success: bool
    error: str = ""
    is_weak: bool = False


def from_fields(fields: Mapping[str, object]) -> Reading | None:
    """What the fields of a structured result say; none when they say nothing about success."""
    for key in ("is_error", "isError", "interrupted"):
        if fields.get(key) is True:
            return Reading(success=False, error=_error_text(fields))
    for key in ("success", "ok"):
        if isinstance(said := fields.get(key), bool):
            return Reading(success=said, error="" if said else _error_text(fields))
    for code in (_exit_code(fields), _exit_code(fields.get("metadata"))):
        if code is not None:
            return Reading(success=code == 0, error=_error_text(fields) or f"exit code {code}" if code else "")
    if fields.get("error"):
        return Reading(success=False, error=_error_text(fields))
    status = fields.get("status")
    if isinstance(status, str) and status.lower() in _FAILED_STATUS:
        return Reading(success=False, error=_error_text(fields) or status)
    return None


def from_text(text: str) -> Reading:
    """For formats without any structure: a JSON result's own fields, else an error line at the very beginning.

    Always weak. A text that talks about errors further down is a success: a log file was read, a search found errors.
    """
    stripped = text.lstrip()
    if stripped.startswith("{"):
        try:
            fields = json.loads(stripped)
        except (ValueError, RecursionError):
            fields = None
        if isinstance(fields, dict) and (reading := from_fields(fields)):
            return Reading(success=reading.success, error=reading.error, is_weak=True)
    if _LEADING_ERROR.match(stripped):
        return Reading(success=False, error=stripped, is_weak=True)
    return Reading(success=True, is_weak=True)


def _exit_code(fields: object) -> int | None:
    if not isinstance(fields, Mapping):
        return None
    for key in _EXIT_CODES:
        code = fields.get(key)
        if isinstance(code, int) and not isinstance(code, bool):
            return code
    return None


def _error_text(fields: Mapping[str, object]) -> str:
    for key in ("error", "message", "stderr", "detail", "output", "stdout"):
        value = fields.get(key)
        if isinstance(value, str) and value.strip():
            return value.strip()
        if isinstance(value, Mapping):
            return json.dumps(value, default=str)
    return ""
