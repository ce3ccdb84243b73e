"""From signals to an order and a confidence: two linear models whose weights stand in `calibration`.

Differences of the ranking score are log-odds ("how much rather this one than that"), because the weights were
fitted by a softmax over candidates. Confidence is a separate judgement of each
candidate by itself: does it fit at all?
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from habitus.search import learned, signals
from habitus.search.calibration import STATED_WEIGHTS, Tier
from habitus.search.signals import Signals

Floats = NDArray[np.float32]

# The calibrated floor is that of sets with some thousand documents; see docs/decisions/search.md for smaller ones.
_MANY, _PER_TENFOLD = 4000, 0.1
_TWINS, _LESS = 0.97, 0.02  # the cosine from which two say the same; how much less one is liked that was never used

CONFIDENCE_NAMES = (
    *signals.FIT_NAMES,
    "nearest",
    "usual",
    "liking",  # what use adds to the score
)


@dataclass(frozen=True, kw_only=True, slots=True)
class UseCounts:
    """What learning from use says about each candidate; zeros for one that was never used."""

    values: Floats
    nearest: Floats
    usual: Floats
    familiarity: Floats

    @classmethod
    def none(cls, count: int) -> UseCounts:
        return cls(
            values=np.zeros((count, len(learned.NAMES)), dtype=np.float32),
            nearest=np.zeros(count, dtype=np.float32),
            usual=np.zeros(count, dtype=np.float32),
            familiarity=np.zeros(count, dtype=np.float32),
        )

    @classmethod
    def of(cls, liking: learned.Liking | None, ids: Sequence[str]) -> UseCounts:
        usage = cls.none(len(ids))
        if liking is None:
            return usage
        for place, id in enumerate(ids):
            row = liking.items.get(id)
            if row is not None:
                usage.values[place] = liking.values[row]
                usage.nearest[place] = liking.nearest[row]
                usage.usual[place] = liking.usual[row]
                usage.familiarity[place] = liking.familiarity[row]
        return usage

    def beside_twins(self, vectors: Floats) -> UseCounts:
        """One that was never used and says the same as one that was is liked no better: use tells the two apart."""
        used = np.flatnonzero(self.familiarity > 0)
        if not len(used) or not vectors.shape[1]:
            return self
        likeness = vectors @ vectors[used].T
        is_twin = (likeness.max(1) >= _TWINS) & (self.familiarity == 0)
        values = self.values.copy()
        values[is_twin] = np.minimum(self.values[used[likeness.argmax(1)[is_twin]]], 0) - _LESS
        return replace(self, values=values)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """Per candidate: its score in log-odds and what every part adds to it."""

    scores: Floats
    parts: Floats


PART_NAMES = (*signals.NAMES, *signals.STATED_NAMES, *learned.NAMES)


def rank(found: Signals, usage: UseCounts, tier: Tier, share_with_body: float) -> Ranking:
    weights = blend(tier.short, tier.long, share_with_body)
    stated = found.stated * np.array(STATED_WEIGHTS, dtype=np.float32)
    base = found.values @ weights + stated.sum(1)
    trust = float(_softmax(base) @ usage.familiarity)
    pull = 1 + (tier.trusted_base - 1) * trust
    from_use = usage.values * blend(tier.used, tier.trusted_used, trust)
    parts = np.concatenate([found.values * weights * pull, stated * pull, from_use], axis=1)
    return Ranking(scores=parts.sum(1), parts=parts)


def confidence(found: Signals, usage: UseCounts, tier: Tier) -> Floats:
    """Of each candidate, the chance that it is what was asked for, whatever else there is."""
    weights = _blend_each(tier.confidence_new, tier.confidence_used, usage.familiarity)
    odds = (confidence_evidence(found, usage, tier) * weights[:, :-1]).sum(1) + weights[:, -1]
    chances: Floats = 1 / (1 + np.exp(-np.clip(odds, -30, 30)))
    return chances


def floor(tier: Tier, count: int) -> float:
    """The confidence from which the best of so many is offered: of more documents, one is near by chance more often."""
    return tier.floor - _PER_TENFOLD * max(0.0, math.log10(_MANY / max(count, 1)))


def confidence_evidence(found: Signals, usage: UseCounts, tier: Tier) -> Floats:
    """One row per candidate, in the order of CONFIDENCE_NAMES. How far use is trusted is the candidate's own matter."""
    liking = (usage.values * _blend_each(tier.used, tier.trusted_used, usage.familiarity)).sum(1) / 10
    return np.concatenate([found.fit, np.stack([usage.nearest, usage.usual, liking], axis=1)], axis=1)


def blend(a: tuple[float, ...], b: tuple[float, ...], share: float) -> Floats:
    return np.asarray((1 - share) * np.array(a) + share * np.array(b), dtype=np.float32)


def _blend_each(a: tuple[float, ...], b: tuple[float, ...], shares: Floats) -> Floats:
    """The blend of each row by a share of its own."""
    return np.asarray(np.outer(1 - shares, a) + np.outer(shares, b), dtype=np.float32)


def _softmax(scores: Floats) -> Floats:
    powers = np.exp(scores - scores.max())
    chances: Floats = powers / powers.sum()
    return chances
