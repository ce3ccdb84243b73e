"""Observations for the tests: an item that was drawn, and units that went as they are told to."""

from __future__ import annotations

import random
from collections.abc import Iterator

from habitus.evidence.model import EvidenceItem, ItemKind, ItemObservation

SKILL = EvidenceItem(kind=ItemKind.SKILL, name="csv-summary", version=1)


def drawn(
    item: EvidenceItem = SKILL,
    *,
    units: int = 400,
    withheld: float = 0.5,
    with_it: float = 0.5,
    without: float = 0.5,
    uptake: float = 1.0,
    seed: int = 1,
) -> Iterator[ItemObservation]:
    """Units in which a draw offered or withheld the item, and so many of each arm went well; the oldest first."""
    chance = random.Random(seed)
    for number in range(units):
        is_offered = chance.random() >= withheld
        is_used = is_offered and chance.random() < uptake
        yield ItemObservation(
            unit=f"{item.name} {item.version} {number}",
            item=item,
            is_offered=is_offered,
            propensity=1 - withheld,
            is_used=is_used,
            success=float(chance.random() < (with_it if is_used else without)),
            request_kind=str(number % 3),
            tokens=310,
            age_days=(units - number) / 20,
        )
