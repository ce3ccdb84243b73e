"""Lift: what offering an item changes, and what using it changes, estimated to be shown; `bounds` decides."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from habitus.evidence.association import association
from habitus.evidence.contrast import contrast
from habitus.evidence.fusion import WIDTH, fuse
from habitus.evidence.model import Item, Observation
from habitus.evidence.table import Flags, Floats, Table

HALF_LIFE_DAYS = 90.0


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


def estimates(observations: Iterable[Observation], *, half_life_days: float = HALF_LIFE_DAYS) -> dict[Item, Estimate]:
    """Of every item that was observed; evidence counts half after a half-life, because models and habits change."""
    table = Table.of(observations)
    if not table.items:
        return {}
    explicit = _effects(table.where(table.has_outcome & table.is_explicit), half_life_days)
    weak = _effects(table.where(table.has_outcome & ~table.is_explicit), half_life_days)
    randomised = _has_both_arms(table.where(table.has_outcome & table.is_explicit & table.is_random))
    uptakes = _uptakes(table.where(table.is_random))
    offered, withheld = _arms(table.where(table.is_offered)), _arms(table.where(~table.is_offered))
    tokens = table.per_item(table.tokens * table.is_offered) / np.maximum(table.per_item(table.is_offered), 1)
    used, ignored = table.per_item(table.is_used), table.per_item(table.is_ignored)
    return {
        item: Estimate(
            item=item,
            basis=Basis.RANDOMISED if randomised[number] else Basis.ASSOCIATIONAL,
            offering=explicit.get(item),
            using=_using(explicit.get(item), uptakes[number]) if randomised[number] else None,
            weak=weak.get(item),
            uptake=uptakes[number],
            offered=offered[number],
            withheld=withheld[number],
            tokens=round(float(tokens[number])),
            used=int(used[number]),
            ignored=int(ignored[number]),
        )
        for number, item in enumerate(table.items)
    }


def _effects(rows: Table, half_life_days: float) -> dict[Item, Effect]:
    """Of offering each item that these outcomes tell of."""
    table = rows.narrowed()
    if not table.items:
        return {}
    weights = table.weights(half_life_days)
    seen = association(table, weights)
    drawn = contrast(table, table.success - seen.expected, weights, seen.noise, seen.leverage)
    freshness = np.zeros(len(table.items))
    np.maximum.at(freshness, table.item, weights)
    effects = fuse(seen, drawn, freshness)
    each = zip(table.items, effects.values, effects.lows, effects.highs, strict=True)
    return {item: _effect(value, low, high) for item, value, low, high in each}


def _has_both_arms(table: Table) -> Flags:
    return np.asarray((table.per_item(table.is_offered) > 0) & (table.per_item(~table.is_offered) > 0), dtype=np.bool_)


def _uptakes(table: Table) -> list[Effect | None]:
    """How much likelier each item is used when the draw offers it than when it withholds it."""
    nothing = np.zeros(len(table.item))
    used = contrast(table, table.is_used.astype(np.float64), nothing + 1, _use_noise(table), nothing)
    margins = WIDTH * np.sqrt(used.variances)
    each = zip(used.is_known, used.effects, margins, strict=True)
    return [_effect(value, value - margin, value + margin) if known else None for known, value, margin in each]


def _use_noise(table: Table) -> Floats:
    """Of each row, the variance of using its item in its arm; as if one more had used it and one had not."""
    arm = 2 * table.item + table.is_offered
    used, rows = np.bincount(arm, weights=table.is_used), np.bincount(arm)
    share = (used + 1) / (rows + 2)
    return np.asarray((share * (1 - share))[arm], dtype=np.float64)


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


def _arms(table: Table) -> list[Arm]:
    explicit = table.per_item(table.has_outcome & table.is_explicit)
    weak = table.per_item(table.has_outcome & ~table.is_explicit)
    missing = table.per_item(~table.has_outcome)
    return [Arm(explicit=int(explicit[n]), weak=int(weak[n]), missing=int(missing[n])) for n in range(len(table.items))]
