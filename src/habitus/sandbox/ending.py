"""Endings of processes in words, and what a program says itself of how it ended."""

from __future__ import annotations

import json
import signal

_LAST_SIGNAL = 64


def ending(exit_code: int | None) -> str:
    """An exit code in words. Above 128 it is how a wrapper reports the signal that ended the process."""
    if exit_code is None:
        return "it stopped answering"
    number = -exit_code if exit_code < 0 else exit_code - 128
    return f"ended by {signal_name(number)}" if 0 < number <= _LAST_SIGNAL else f"exit code {exit_code}"


def signal_name(number: int) -> str:
    """The usual name. Real-time signals are counted from the first; C libraries keep two or three for themselves."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN{number - signal.SIGRTMIN:+d}" if number >= 32 else f"signal {number}"


def error_told(printed: str) -> str:
    """What a program says went wrong, where it prints an object whose `status` is "error"; nothing otherwise."""
    try:
        told = json.loads(printed)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(told, dict) or told.get("status") != "error":
        return ""
    reason = told.get("error") or told.get("message") or "no reason given"
    words = reason if isinstance(reason, str) else _written(reason)
    return " ".join(words.split())[:500]


def _written(reason: object) -> str:
    try:
        return json.dumps(reason, ensure_ascii=False)
    except RecursionError:
        return "more than can be written down"
