"""Lift: what offering an item changes, and what using it changes, estimated to be shown; `bounds` decides."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from habitus.evidence.drift import WIDTH, fuse, present
from habitus.evidence.model import Item
from habitus.evidence.running import Counts, Running
from habitus.evidence.sums import Period, looks


class Basis(StrEnum):
    """What an estimate rests on."""

    RANDOMISED = "randomised"
    ASSOCIATIONAL = "associational"  # nothing was withheld: what chose the item may be what made the difference


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """A change of the share that goes well, with the interval that holds the truth nine times in ten."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """The units of one arm, by what is known of how they went."""

    explicit: int = 0
    weak: int = 0
    missing: int = 0

    @property
    def total(self) -> int:
        return self.explicit + self.weak + self.missing


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """What is known of an item; an effect that nothing speaks for is none."""

    item: Item
    basis: Basis
    offering: Effect | None  # by explicit outcomes alone
    using: Effect | None  # in the units that used it because it was offered
    weak: Effect | None  # of offering, by weak signals alone: to be shown, never to decide
    uptake: Effect | None  # how much likelier it is used when it is offered
    offered: Arm
    withheld: Arm
    tokens: int  # of the offer, in one turn
    used: int
    ignored: int  # of the used: recalled, and no trace of it in what was done

    @property
    def per_1000_tokens(self) -> float | None:
        """The effect of offering it for each thousand tokens of the prompt that it takes."""
        return self.offering.value * 1000 / self.tokens if self.offering and self.tokens > 0 else None


def estimates(running: Running, today: float) -> dict[Item, Estimate]:
    """Of every item that was observed; how fast evidence fades, because models and habits change, is learned."""
    drawn = {item for item, game in running.games.items() if game.offered and game.withheld}
    drawn_weak = {item for item, counts in running.counts.items() if counts.drawn_weak.all()}
    with_word, with_sign = (
        [item for item, counts in running.counts.items() if getattr(counts, name).any()]
        for name in ("explicit", "weak")
    )
    offering = _effects(running, running.explicit, with_word, drawn, today)
    weak = _effects(running, running.weak, with_sign, drawn_weak, today)
    found = {}
    for item, counts in running.counts.items():
        uptake = _uptake(counts)
        found[item] = Estimate(
            item=item,
            basis=Basis.RANDOMISED if item in drawn else Basis.ASSOCIATIONAL,
            offering=offering.get(item),
            using=_using(offering.get(item), uptake) if item in drawn else None,
            weak=weak.get(item),
            uptake=uptake,
            withheld=_arm(counts, 0),
            offered=_arm(counts, 1),
            tokens=round(float(counts.tokens[1] / max(_arm(counts, 1).total, 1))),
            used=int(counts.used.sum()),
            ignored=int(counts.ignored.sum()),
        )
    return found


def _effects(
    running: Running, periods: Sequence[Period], items: Sequence[Item], drawn: Container[Item], today: float
) -> dict[Item, Effect]:
    """Of offering each of these items."""
    if not items:
        return {}
    columns = np.array([running.columns[item] for item in items])
    kinds = np.array([column for feature, column in running.columns.items() if isinstance(feature, int)])
    seen = looks(
        [period for period in periods if period.units[0]], columns, kinds, np.array([item in drawn for item in items])
    )
    effects = fuse(present(seen, today))
    each = zip(items, effects.values, effects.lows, effects.highs, strict=True)
    return {item: _effect(value, low, high) for item, value, low, high in each}


def _arm(counts: Counts, arm: int) -> Arm:
    return Arm(explicit=int(counts.explicit[arm]), weak=int(counts.weak[arm]), missing=int(counts.missing[arm]))


def _uptake(counts: Counts) -> Effect | None:
    """How much likelier an item is used when the draw offers it than when it withholds it."""
    if not counts.drawn.all():
        return None
    withheld, offered = counts.weights_used / counts.weights
    share = (counts.drawn_used + 1) / (counts.drawn + 2)  # as if one more had used it and one had not
    margin = WIDTH * math.sqrt(float((share * (1 - share) * counts.squares / counts.weights**2).sum()))
    return _effect(offered - withheld, offered - withheld - margin, offered - withheld + margin)


def _using(offering: Effect | None, uptake: Effect | None) -> Effect | None:
    """The offer as instrument: what offering changes, it changes in those who use the item because it was offered."""
    if offering is None or uptake is None or uptake.low <= 0:
        return None
    value = offering.value / uptake.value
    unsure = value * (uptake.high - uptake.low) / 2 / uptake.value
    low = value - math.hypot((offering.value - offering.low) / uptake.value, unsure)
    high = value + math.hypot((offering.high - offering.value) / uptake.value, unsure)
    return _effect(value, low, high)


def _effect(*parts: float) -> Effect:
    value, low, high = (min(max(float(part), -1.0), 1.0) for part in parts)
    return Effect(value=value, low=low, high=high)
