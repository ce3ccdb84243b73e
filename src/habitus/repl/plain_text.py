"""Text from models, tools and files, made safe for a terminal."""

from __future__ import annotations

import re

_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


def clean(text: str) -> str:
    """Text without the control characters that could drive a terminal."""
    if text.isprintable():
        return text
    return "".join(char for char in text if char in "\n\t" or char.isprintable() or char == "\u200d")


def one_line(text: str, most: int = 200) -> str:
    """The beginning of a text as one line; what a program wrote to colour it is gone."""
    line = " ".join(clean(_SEQUENCE.sub("", text[: most * 8])).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def shown_seconds(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 min 05 s`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"


def count_of(number: int, thing: str) -> str:
    """`1 skill`, `2 skills`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
