"""Traces: whether a skill that was loaded left any in what the model then did and said, or was loaded and ignored."""

from __future__ import annotations

import re
from collections.abc import Collection

_CODE = re.compile(r"```.*?\n(.*?)```|`([^`\n]+)`", re.DOTALL)
_WORD = re.compile(r"[^\W\d_]{4,}")
_NAME = re.compile(r"[\w./-]{3,}")
_LEAST = 0.1  # of a skill's own words; fewer in common are what any two texts have
_FEW = 5  # own words of a skill from which on their absence says something


def left_trace(steps: str, tools: Collection[str], *, request: str, done: str) -> bool:
    """Whether `done`, the model's calls with their arguments and its words, has anything of a skill's `steps`.

    A call of one of its tools is a trace, so is a name from its code, and so are words of its own in some number:
    those that the request had not brought up. A skill that has too little of its own left one, as far as can be told.
    """
    said = set(_words(done))
    names = {name.lower() for code in _CODE.findall(steps) for name in _NAME.findall(" ".join(code))}
    known = {name.lower() for name in _NAME.findall(request)}
    if any(name.lower() in done.lower() for name in {*tools, *(names - known)}):
        return True
    own = set(_words(_CODE.sub(" ", steps))) - set(_words(request))
    return len(own) < _FEW or len(own & said) >= _LEAST * len(own)


def _words(text: str) -> list[str]:
    """Words by their first letters, so that one in another form is the same."""
    return [word[:5] for word in _WORD.findall(text.lower())]
