"""Why a hit has its score: what each signal added, with the lexical share told apart by field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import pairwise

import numpy as np

from habitus.search.calibration import FIELD_LENGTHS, FIELD_NORMS, FIELD_WEIGHTS
from habitus.search.corpus import Corpus
from habitus.search.entry import FIELDS, Codes, IndexEntry
from habitus.search.postings import Slots
from habitus.search.ranking import PART_NAMES, Ranking
from habitus.search.request import SearchRequest
from habitus.search.signals import Signals, maybe
from habitus.search.words import code


class Explanation(Mapping[str, float]):
    """The contributions to a score in log-odds, the biggest first; worked out when somebody asks, as few do."""

    def __init__(self, values: list[float], entry: IndexEntry, codes: Codes, worths: Mapping[int, float]) -> None:
        self._values = values
        self._entry = entry
        self._codes = codes
        self._worths = worths

    @cached_property
    def _term_parts(self) -> dict[str, float]:
        places = np.flatnonzero(maybe(self._entry.codes, self._codes))
        return _parts(self._values, _shares(self._worths, self._entry, places))

    def __getitem__(self, part: str) -> float:
        return self._term_parts[part]

    def __iter__(self) -> Iterator[str]:
        return iter(self._term_parts)

    def __len__(self) -> int:
        return len(self._term_parts)

    def __repr__(self) -> str:
        return repr(self._term_parts)


def explain(
    corpus: Corpus, asked: SearchRequest, found: Signals, ranked: Ranking, rows: list[int]
) -> list[Mapping[str, float]]:
    """Per row what its score is made of; parts that add nothing are left out."""
    codes = np.array([code(term) for term in asked.terms], dtype=np.uint32)
    worth = corpus.rarity(codes) * np.array(list(asked.terms.values()), dtype=np.float32)
    worths = dict(zip(codes.tolist(), worth.tolist(), strict=True))
    return [Explanation(ranked.parts[row].tolist(), corpus.entry(int(found.slots[row])), codes, worths) for row in rows]


def _parts(values: list[float], shares: dict[str, float]) -> dict[str, float]:
    parts = dict(zip(PART_NAMES, values, strict=True))
    lexical = parts.pop("lexical")
    parts |= {f"lexical.{field}": lexical * share for field, share in shares.items()}
    told = [(name, round(value, 3)) for name, value in parts.items() if abs(value) >= 0.0005]
    return dict(sorted(told, key=lambda part: (-abs(part[1]), part[0])))


def _shares(by_code: Mapping[int, float], entry: IndexEntry, places: Slots) -> dict[str, float]:
    """How much each field has of the terms that were asked for; they can stand only at these places."""
    worths = [by_code.get(number, 0.0) for number in entry.codes[places].tolist()]
    borders = np.searchsorted(places, np.cumsum((0, *entry.lengths))).tolist()
    shares: dict[str, float] = {}
    for field, length, (start, end) in zip(FIELDS, entry.lengths, pairwise(borders), strict=True):
        norm = 1 - FIELD_NORMS[field] + FIELD_NORMS[field] * length / FIELD_LENGTHS[field]
        shares[field] = sum(worths[start:end]) * FIELD_WEIGHTS[field] / norm
    total = sum(shares.values())
    return {field: share / total for field, share in shares.items() if share} if total else {}
