"""Made-up use with a known truth: which items a retrieval chose, which of them a draw withheld, and how it went."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from habitus.evidence.model import EvidenceItem, ItemKind, ItemObservation

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]

COUNT, EFFECTIVE, CHOSEN, KINDS = 50, 25, 5, 8  # the first 25 items have an effect
ITEMS = [EvidenceItem(kind=ItemKind.LESSON, name=f"item {number:02}") for number in range(COUNT)]
_A_DAY = 50  # episodes
_TOKENS = 300
_HARDNESS = 0.15  # what one standard deviation of hardness takes from the chance of success


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """How a world differs from the plainest one."""

    withheld: float = 0.1
    prefers_hard: float = 0.0  # how much items differ in being preferred for requests that are hard inside their kind
    prefers_kinds: float = 0.0
    is_zipf: bool = False
    has_drift: bool = False  # half-way every lift is drawn anew; the truth is today's
    flipped: float = 0.0  # of the labels; the truth is that of the right ones
    longest: int = 1  # turns of a conversation, which is assigned whole
    is_taken_in_part: bool = False  # an offer works only where it is taken


SCENARIOS = {
    "hidden": Scenario(prefers_hard=0.5),
    "independent": Scenario(),
    "confounded_by_kind": Scenario(prefers_kinds=1.0),
    "drift": Scenario(has_drift=True),
    "rare": Scenario(is_zipf=True),
    "noisy_12": Scenario(flipped=0.12),
    "noisy_24": Scenario(flipped=0.24),
    "no_withholding": Scenario(withheld=0.0, prefers_hard=0.5),
    "clustered": Scenario(longest=20),
    "partial_use": Scenario(is_taken_in_part=True),
}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Use:
    """A row is a conversation, a column one of the items that it chose."""

    chosen: Numbers
    is_offered: Flags
    is_used: Flags
    success: Floats  # of a conversation: the mean of its turns
    kind: Numbers
    propensity: float
    truth: Floats  # of each item: the mean effect of offering it where it was chosen; nan if it never was

    def observations(self) -> Iterator[ItemObservation]:
        for row, (success, kind) in enumerate(zip(self.success.tolist(), self.kind.tolist(), strict=True)):
            unit, request_kind, age = str(row), str(kind), (len(self.kind) - row) / _A_DAY
            each = zip(
                self.chosen[row].tolist(), self.is_offered[row].tolist(), self.is_used[row].tolist(), strict=True
            )
            for item, is_offered, is_used in each:
                yield ItemObservation(
                    unit=unit,
                    item=ITEMS[item],
                    is_offered=is_offered,
                    propensity=self.propensity,
                    is_used=is_used,
                    success=success,
                    request_kind=request_kind,
                    tokens=_TOKENS,
                    age_days=age,
                )


def simulate(scenario: Scenario, episodes: int, seed: int) -> Use:
    random = np.random.default_rng(seed)
    turns = _turns(scenario, episodes, random)
    rows = len(turns)
    kind, hardness = random.integers(KINDS, size=rows), random.normal(size=rows)
    chosen = _choose(scenario, kind, hardness, random)
    is_offered = random.random(chosen.shape) >= scenario.withheld
    uptake = random.uniform(0.1, 0.9, COUNT)[chosen] if scenario.is_taken_in_part else np.ones(chosen.shape)
    is_used = is_offered & (random.random(chosen.shape) < uptake)
    lifts = _lifts(random)[chosen]
    if scenario.has_drift:
        lifts[rows // 2 :] = _lifts(random)[chosen[rows // 2 :]]
    base = 0.55 + random.normal(scale=0.15, size=KINDS)[kind] - _HARDNESS * hardness
    level = base + (lifts * is_used).sum(1)
    without = level[:, None] - lifts * is_used
    effects = uptake * (_chance(without + lifts) - _chance(without))
    told = scenario.flipped + (1 - 2 * scenario.flipped) * _chance(level)
    return Use(
        chosen=chosen,
        is_offered=is_offered,
        is_used=is_used,
        success=random.binomial(turns, told) / turns,
        kind=kind,
        propensity=1 - scenario.withheld,
        truth=_means(chosen, effects, since=rows // 2 if scenario.has_drift else 0),
    )


def _turns(scenario: Scenario, episodes: int, random: np.random.Generator) -> Numbers:
    """How many turns each conversation has, until there were so many episodes."""
    turns = random.integers(1, scenario.longest + 1, size=episodes)
    return turns[: int(np.searchsorted(turns.cumsum(), episodes)) + 1]


def _choose(scenario: Scenario, kind: Numbers, hardness: Floats, random: np.random.Generator) -> Numbers:
    """The best few of each row by what the scenario prefers and by chance."""
    scores = random.gumbel(size=(len(kind), COUNT))
    scores += scenario.prefers_hard * np.outer(hardness, random.normal(size=COUNT))
    scores += scenario.prefers_kinds * random.normal(size=(KINDS, COUNT))[kind]
    if scenario.is_zipf:
        scores -= np.log(random.permutation(COUNT) + 1)
    return np.argpartition(-scores, CHOSEN, axis=1)[:, :CHOSEN]


def _lifts(random: np.random.Generator) -> Floats:
    return np.concatenate([random.normal(0.02, 0.17, EFFECTIVE), np.zeros(COUNT - EFFECTIVE)])


def _chance(level: Floats) -> Floats:
    return np.clip(level, 0.02, 0.98)


def _means(chosen: Numbers, effects: Floats, since: int) -> Floats:
    items, values = chosen[since:].ravel(), effects[since:].ravel()
    with np.errstate(invalid="ignore"):
        means = np.bincount(items, weights=values, minlength=COUNT) / np.bincount(items, minlength=COUNT)
    return np.asarray(means, dtype=np.float64)
