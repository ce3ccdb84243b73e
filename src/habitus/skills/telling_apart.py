"""Words that tell two skills apart: what one says of itself, the other does not, and few others do. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

_WORD = re.compile(r"[a-z][a-z0-9-]{3,}")
_COMMON = frozenset(
    word
    for line in (
        "this that with from when what which will your have been into only also then than them they their there",
        "skill skills uses used using user users asks asked file files make makes create creates work works task tasks",
        "about after before every each other some such more most very should would could must help helps need needs",
    )
    for word in line.split()
)


def words_of(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.lower())) - _COMMON


def telling_words(one: str, other: str, spread: Counter[str], most: int = 3) -> tuple[str, ...]:
    """Words of the first text that would tell it from the second; those come first that few texts have (`spread`)."""
    own = words_of(one) - words_of(other)
    return tuple(sorted(own, key=lambda word: (spread[word], -len(word), word))[:most])


def spread_of(texts: Iterable[str]) -> Counter[str]:
    return Counter(word for text in texts for word in words_of(text))
