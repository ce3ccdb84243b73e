"""Error signatures: what stays of an error message when names, numbers and places are taken out.

Two errors with one signature are the same mistake made again with other arguments.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache

LONGEST = 4000  # what an error says first or last is enough to know it again


@lru_cache(maxsize=512)  # every round looks at the whole turn again
def signature(error: str) -> str:
    """The same text for the same kind of error; empty for an error that says nothing."""
    text = _last_line_of_traceback(_without_envelope(error[:LONGEST].strip()))
    for pattern, placeholder in _PLACEHOLDERS:
        text = pattern.sub(placeholder, text)
    return " ".join(text.split())


_QUOTED = (r"(?:[^{0}\n]|{0}(?=\w)){{0,500}}+").format("'")

# In this order: a URL holds paths, a path holds numbers, a quoted text holds anything.
_PLACEHOLDERS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), placeholder)
    for pattern, placeholder in (
        # An apostrophe inside a word opens nothing, and closes nothing when a letter follows it.
        (rf"(?<!\w)'{_QUOTED}'(?!\w)", "<str>"),
        (r'"[^"\n]{0,500}+"', "<str>"),
        (r"`[^`\n]{1,500}+`", "<str>"),
        (r"[“„][^”“\n]{0,500}+[”“]|‘[^’\n]{0,500}+’(?!\w)", "<str>"),
        (r"(?<![\w+.-])[A-Za-z][A-Za-z0-9+.-]{1,20}+://[^\s'\"<>)\]}]++", "<url>"),
        (r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b", "<uuid>"),
        (r"(?<![\w\\])(?:[A-Za-z]:|\\\\[\w.$-]+)(?:\\{1,2}[^\s\\:*?\"<>|']+)+\\?", "<path>"),
        (r"(?<![\w:/.<~-])(?:~|\.{1,2})?/(?:[\w.@%+=~-]++/?)++", "<path>"),
        (r"(?<![\w./<-])(?:[\w.-]++/){2,}+[\w.-]*+|(?<![\w./<-])(?:[\w-]++/)++[\w-]++\.[A-Za-z]\w{0,7}", "<path>"),
        (r"\b0[xX][0-9a-fA-F]++\b", "<hex>"),
        (r"\b(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{8,}+\b", "<hex>"),
        (r"(?<![A-Za-z0-9.])(?:(?<!\w)[-+])?(?:\d++\.\d++(?:[eE][-+]?\d++)?|\d++[eE][-+]\d++)(?!\.?\d)", "<num>"),
        (r"(?<![A-Za-z0-9])(?:(?<!\w)[-+])?\d++(?:,\d{3})*(?![A-Za-z]\w)", "<num>"),
    )
)


def _without_envelope(text: str) -> str:
    """What stood around a JSON object, and the message inside it, instead of the whole object."""
    start = text.find("{")
    if start < 0:
        return text
    try:
        envelope, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return text
    message = _message(envelope)
    return f"{text[:start]}{message}{text[end:]}".strip() if message else text


def _message(envelope: object) -> str:
    """The first text under `message`, `error`, `detail`, `msg` or `reason`, from the outside in."""
    if not isinstance(envelope, dict):
        return ""
    for key in ("message", "error", "detail", "msg", "reason"):
        inside = envelope.get(key)
        if isinstance(inside, str) and inside:
            return inside
        if isinstance(inside, dict) and (found := _message(inside)):
            return found
    return ""


def _last_line_of_traceback(text: str) -> str:
    if not text.startswith("Traceback (most recent call last)"):
        return text
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith((" ", "\t"))]
    return lines[-1]
