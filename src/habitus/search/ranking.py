"""From signals to an order and a confidence: two linear models whose weights stand in `calibration`.

Differences of the ranking score are log-odds ("how much rather this one than that"), because the weights were
fitted by a softmax over candidates. Confidence is a separate judgement of the best hit: does anything fit at all?
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from habitus.search import learned, signals
from habitus.search.calibration import Tier
from habitus.search.signals import Signals

Floats = NDArray[np.float32]

CONFIDENCE_NAMES = (
    "strength",
    "coverage",
    "meaning",
    "part",
    "words",
    "said",
    "name",
    "lead",  # how much likelier the best is than all others together
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """Per candidate: its score in log-odds and what every part adds to it. `trust` is that in learned requests."""

    scores: Floats
    parts: Floats
    trust: float


PART_NAMES = (*signals.NAMES, *learned.NAMES)


def rank(found: Signals, usage: UseCounts, tier: Tier, share_with_body: float) -> Ranking:
    weights = blend(tier.short, tier.long, share_with_body)
    base = found.values @ weights
    trust = float(_softmax(base) @ usage.familiarity)
    pull = 1 + (tier.trusted_base - 1) * trust
    from_use = usage.values * blend(tier.used, tier.trusted_used, trust)
    parts = np.concatenate([found.values * weights * pull, from_use], axis=1)
    return Ranking(scores=parts.sum(1), parts=parts, trust=trust)


def confidence(found: Signals, usage: UseCounts, ranking: Ranking, tier: Tier, best: int) -> float:
    """The chance that the best candidate is what was asked for."""
    weights = blend(tier.confidence_new, tier.confidence_used, ranking.trust)
    evidence = confidence_evidence(found, usage, ranking, best)
    odds = float(evidence @ weights[:-1] + weights[-1])
    return float(1 / (1 + np.exp(-np.clip(odds, -30, 30))))


def confidence_evidence(found: Signals, usage: UseCounts, ranking: Ranking, best: int) -> Floats:
    of_best = {name: float(found.values[best, place]) for place, name in enumerate(signals.NAMES)}
    of_best |= {
        "strength": float(found.strength[best]),
        "lead": float(_softmax(ranking.scores)[best]),
        "nearest": float(usage.nearest[best]),
        "usual": float(usage.usual[best]),
        "liking": float(ranking.parts[best, len(signals.NAMES) :].sum()) / 10,
    }
    return np.array([of_best[name] for name in CONFIDENCE_NAMES], dtype=np.float32)


def blend(a: tuple[float, ...], b: tuple[float, ...], share: float) -> Floats:
    return np.asarray((1 - share) * np.array(a) + share * np.array(b), dtype=np.float32)


def _softmax(scores: Floats) -> Floats:
    powers = np.exp(scores - scores.max())
    chances: Floats = powers / powers.sum()
    return chances
