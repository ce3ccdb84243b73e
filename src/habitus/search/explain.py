"""Why a hit has its score: what each signal added, with the lexical share told apart by field."""

from __future__ import annotations

import numpy as np

from habitus.search.calibration import FIELD_LENGTHS, FIELD_NORMS, FIELD_WEIGHTS
from habitus.search.corpus import Corpus
from habitus.search.entry import FIELDS, Entry
from habitus.search.ranking import PART_NAMES, Ranking
from habitus.search.request import Request
from habitus.search.signals import Signals
from habitus.search.words import code


def parts_of(corpus: Corpus, asked: Request, found: Signals, ranked: Ranking, row: int) -> dict[str, float]:
    """Contributions to the ranking score in log-odds, the biggest first; parts that add nothing are left out."""
    parts = dict(zip(PART_NAMES, ranked.parts[row].tolist(), strict=True))
    lexical = parts.pop("lexical")
    shares = _shares(corpus, asked, corpus.entries[int(found.slots[row])])
    parts |= {f"lexical.{field}": lexical * share for field, share in shares.items()}
    rounded = {name: round(value, 3) for name, value in parts.items()}
    return dict(sorted(((n, v) for n, v in rounded.items() if v), key=lambda item: (-abs(item[1]), item[0])))


def _shares(corpus: Corpus, asked: Request, entry: Entry) -> dict[str, float]:
    """How much each field has of the terms that were asked for."""
    codes = np.array([code(term) for term in asked.terms], dtype=np.uint32)
    worth = corpus.rarity(codes) * np.array(list(asked.terms.values()), dtype=np.float32)
    by_code = dict(zip(codes.tolist(), worth.tolist(), strict=True))
    shares: dict[str, float] = {}
    start = 0
    for field, length in zip(FIELDS, entry.lengths, strict=True):
        of_field = entry.codes[start : start + length]
        start += length
        norm = 1 - FIELD_NORMS[field] + FIELD_NORMS[field] * length / FIELD_LENGTHS[field]
        matched = of_field[np.isin(of_field, codes)].tolist()
        shares[field] = sum(by_code[number] for number in matched) * FIELD_WEIGHTS[field] / norm
    total = sum(shares.values())
    return {field: share / total for field, share in shares.items() if share} if total else {}
