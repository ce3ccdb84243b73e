"""Ranks candidates by their signals, computes confidences, and explains scores. The weights are in `calibration`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from habitus.search import signals
from habitus.search.calibration import FIELD_LENGTHS, FIELD_NORMS, FIELD_WEIGHTS, STATED_WEIGHTS, RankingCalibration
from habitus.search.corpus import SearchCorpus
from habitus.search.learned_requests import USE_SIGNAL_NAMES, SimilarityToLearnedRequests
from habitus.search.postings import Slots
from habitus.search.signals import CandidateSignals, mask_possibly_wanted_codes
from habitus.search.texts.index_entry import FIELDS, Codes

Floats = NDArray[np.float32]

# The floor was calibrated on sets of some thousand documents; see docs/decisions/search.md for smaller ones.
_MANY, _PER_TENFOLD = 4000, 0.1
# The cosine from which two documents are twins, and the penalty of the one that was never used.
_TWINS, _LESS = 0.97, 0.02

CONFIDENCE_NAMES = (
    *signals.FIT_NAMES,
    "nearest",
    "usual",
    # The contribution of use to the score.
    "liking",
)


def penalize_unused_near_duplicates(usage: SimilarityToLearnedRequests, vectors: Floats) -> SimilarityToLearnedRequests:
    """Lower the score of an unused document that says the same as a used one: use tells the two apart."""
    used = np.flatnonzero(usage.familiarity > 0)
    if not len(used) or not vectors.shape[1]:
        return usage
    likeness = vectors @ vectors[used].T
    is_twin = (likeness.max(1) >= _TWINS) & (usage.familiarity == 0)
    values = usage.values.copy()
    values[is_twin] = np.minimum(usage.values[used[likeness.argmax(1)[is_twin]]], 0) - _LESS
    return replace(usage, values=values)


@dataclass(frozen=True, kw_only=True, slots=True)
class CandidateScores:
    """The score of each candidate in log-odds, and the contributions of all parts."""

    scores: Floats
    parts: Floats


PART_NAMES = (*signals.SIGNAL_NAMES, *signals.STATED_NAMES, *USE_SIGNAL_NAMES)


def score_candidates(
    candidates: CandidateSignals, usage: SimilarityToLearnedRequests, tier: RankingCalibration, share_having_body: float
) -> CandidateScores:
    """Score the candidates by all signals."""
    weights = blend_weights(tier.short, tier.long, share_having_body)
    stated = candidates.stated * np.array(STATED_WEIGHTS, dtype=np.float32)
    base = candidates.values @ weights + stated.sum(1)
    # The more familiar the likely candidates are, the more use counts and the less their texts.
    trust = float(_softmax(base) @ usage.familiarity)
    pull = 1 + (tier.trusted_base - 1) * trust
    from_use = usage.values * blend_weights(tier.used, tier.trusted_used, trust)
    parts = np.concatenate([candidates.values * weights * pull, stated * pull, from_use], axis=1)
    return CandidateScores(scores=parts.sum(1), parts=parts)


def compute_confidence(
    candidates: CandidateSignals, usage: SimilarityToLearnedRequests, tier: RankingCalibration
) -> Floats:
    """Return the probability that each candidate matches the request, regardless of the other candidates."""
    weights = _blend_weights_by_row(tier.confidence_new, tier.confidence_used, usage.familiarity)
    odds = (build_confidence_features(candidates, usage, tier) * weights[:, :-1]).sum(1) + weights[:, -1]
    chances: Floats = 1 / (1 + np.exp(-np.clip(odds, -30, 30)))
    return chances


def compute_offer_threshold(tier: RankingCalibration, count: int) -> float:
    """Return the confidence from which the best of so many documents is offered."""
    # Among more documents, one is near by chance more often.
    return tier.floor - _PER_TENFOLD * max(0.0, math.log10(_MANY / max(count, 1)))


def build_confidence_features(
    candidates: CandidateSignals, usage: SimilarityToLearnedRequests, tier: RankingCalibration
) -> Floats:
    """Return one row of features per candidate, in the order of CONFIDENCE_NAMES."""
    # How far use is trusted depends on the candidate itself here, not on the others.
    liking = (usage.values * _blend_weights_by_row(tier.used, tier.trusted_used, usage.familiarity)).sum(1) / 10
    return np.concatenate([candidates.fit, np.stack([usage.nearest, usage.usual, liking], axis=1)], axis=1)


def blend_weights(a: tuple[float, ...], b: tuple[float, ...], share: float) -> Floats:
    return np.asarray((1 - share) * np.array(a) + share * np.array(b), dtype=np.float32)


def _blend_weights_by_row(a: tuple[float, ...], b: tuple[float, ...], shares: Floats) -> Floats:
    """Blend two weight vectors for each row by a share of its own."""
    return np.asarray(np.outer(1 - shares, a) + np.outer(shares, b), dtype=np.float32)


def _softmax(scores: Floats) -> Floats:
    powers = np.exp(scores - scores.max())
    chances: Floats = powers / powers.sum()
    return chances


class ScoreExplanation(Mapping[str, float]):
    """The contributions to a score in log-odds, biggest first; computed on first access, because few callers look."""

    def __init__(self, values: list[float], said: tuple[Codes, list[int]], worths: Mapping[int, float]) -> None:
        """Take the part values, the document's terms with their number per field, and the worth of each term."""
        self._values = values
        self._said = said
        self._worths = worths

    @cached_property
    def _contributions_by_name(self) -> dict[str, float]:
        codes, lengths = self._said
        places = np.flatnonzero(mask_possibly_wanted_codes(codes, np.array([*self._worths], dtype=np.uint32)))
        return _label_contributions(self._values, _compute_matched_field_shares(self._worths, codes, lengths, places))

    def __getitem__(self, part: str) -> float:
        return self._contributions_by_name[part]

    def __iter__(self) -> Iterator[str]:
        return iter(self._contributions_by_name)

    def __len__(self) -> int:
        return len(self._contributions_by_name)

    def __repr__(self) -> str:
        return repr(self._contributions_by_name)


def explain_scores(
    corpus: SearchCorpus, candidates: CandidateSignals, ranked: CandidateScores, rows: list[int]
) -> list[Mapping[str, float]]:
    """Return the contributions to the score of each row; parts that add nothing are left out."""
    slots = candidates.slots[rows]
    said = zip(map(corpus.get_term_codes_at_slot, slots.tolist()), corpus.lengths[slots].tolist(), strict=True)
    parts = ranked.parts[rows].tolist()
    return [ScoreExplanation(values, one, candidates.worths) for values, one in zip(parts, said, strict=True)]


def _label_contributions(values: list[float], shares: dict[str, float]) -> dict[str, float]:
    parts = dict(zip(PART_NAMES, values, strict=True))
    lexical = parts.pop("lexical")
    parts |= {f"lexical.{field}": lexical * share for field, share in shares.items()}
    told = [(name, round(value, 3)) for name, value in parts.items() if abs(value) >= 0.0005]
    return dict(sorted(told, key=lambda part: (-abs(part[1]), part[0])))


def _compute_matched_field_shares(
    by_code: Mapping[int, float], codes: Codes, lengths: list[int], places: Slots
) -> dict[str, float]:
    """Return the share of each field in the matched terms, which occur only at these places."""
    worths = [by_code.get(number, 0.0) for number in codes[places].tolist()]
    borders = np.searchsorted(places, np.cumsum((0, *lengths))).tolist()
    shares: dict[str, float] = {}
    for field, length, (start, end) in zip(FIELDS, lengths, pairwise(borders), strict=True):
        norm = 1 - FIELD_NORMS[field] + FIELD_NORMS[field] * length / FIELD_LENGTHS[field]
        shares[field] = sum(worths[start:end]) * FIELD_WEIGHTS[field] / norm
    total = sum(shares.values())
    return {field: share / total for field, share in shares.items() if share} if total else {}
