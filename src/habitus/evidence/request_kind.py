"""Kind of request: one of eight, by its shape alone, so that nothing of its text is kept and no model is asked."""

from __future__ import annotations

import re

_SHORT = 120  # characters
_QUESTION = re.compile(r"[?？؟]\s*$", re.MULTILINE)


def kind_of(text: str, *, has_files: bool) -> str:
    """Whether something is asked or to be done, in a line or at length, about files or not."""
    does = "question" if _QUESTION.search(text) else "task"
    length = "short" if len(text.strip()) <= _SHORT else "long"
    return " ".join([length, does, *(["with files"] if has_files else [])])
