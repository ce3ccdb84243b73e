"""Traces: whether a skill that was loaded left any in what the model then did and said, or was loaded and ignored."""

from __future__ import annotations

import re
from collections.abc import Collection

_FENCE = "```"
_INLINE = re.compile(r"`([^`\n]+)`")
_WORD = re.compile(r"[^\W\d_]{4,}")
_NAME = re.compile(r"[\w./-]{3,}")
_MOST = 100_000  # characters that are looked at
_LEAST = 0.1  # of a skill's own words; fewer in common are what any two texts have
_FEW = 5  # own words of a skill from which on their absence says something


def left_trace(steps: str, tools: Collection[str], *, request: str, done: str, if_unclear: bool = True) -> bool:
    """Whether `done`, the model's calls with their arguments and its words, has anything of a skill's `steps`.

    A call of one of its tools is a trace, so is a name from its code, and so are words of its own in some number:
    those that the request had not brought up. Of a skill that has too little of its own nobody can tell: `if_unclear`.
    """
    steps, request, done = (text[:_MOST].lower() for text in (steps, request, done))
    prose, code = steps.split(_FENCE)[::2], steps.split(_FENCE)[1::2]
    names = {name for text in (*code, *_INLINE.findall("\n".join(prose))) for name in _NAME.findall(text)}
    if any(name in done for name in {*map(str.lower, tools), *(names - set(_NAME.findall(request)))}):
        return True
    own = {word for text in prose for word in _words(_INLINE.sub(" ", text))} - set(_words(request))
    if len(own) < _FEW:
        return if_unclear
    return len(own & set(_words(done))) >= _LEAST * len(own)


def _words(text: str) -> list[str]:
    """Words by their first letters, so that one in another form is the same."""
    return [word[:5] for word in _WORD.findall(text)]
