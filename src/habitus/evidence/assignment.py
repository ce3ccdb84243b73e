"""Assignment: whether an item is offered in a unit, drawn by hash from the installation's seed, the unit and the item.

No state is kept: whoever asks again, on whatever host, draws the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from habitus.evidence.model import Item, ItemKind

T = TypeVar("T")
Fixed = Mapping[tuple[ItemKind, str], bool]  # whether an item is offered, by its kind and name

NEAR = 0.05  # of the better one's score: two that differ by less are near-ties


@dataclass(frozen=True, kw_only=True, slots=True)
class Assignment:
    is_offered: bool = True
    propensity: float = 1.0  # how likely the offer was; 1 where nothing was drawn


OFFERED = Assignment()


@dataclass(frozen=True, kw_only=True, slots=True)
class Lots:
    """The draws of one unit: `share` of what may be withheld is. A trial has its item `fixed`, one arm each way."""

    unit: str = ""
    seed: str = ""
    share: float = 0.0
    fixed: Fixed = field(default_factory=dict)

    @property
    def are_drawn(self) -> bool:
        """Whether anything is left to chance; else every choice is as it always was."""
        return self.share > 0

    def is_fixed(self, item: Item) -> bool:
        return (item.kind, item.name) in self.fixed

    def assign(self, item: Item, *, is_sure: bool = False) -> Assignment:
        """`is_sure` is what is never withheld. Whatever its version, an item has one lot in a unit."""
        if self.is_fixed(item):
            return Assignment(is_offered=self.fixed[item.kind, item.name], propensity=0.5)
        if is_sure or not self.are_drawn:
            return OFFERED
        drawn = self._draw("offer", item.kind, item.name)
        return Assignment(is_offered=drawn >= self.share, propensity=1 - self.share)

    def prefers_second(self, first: Item, second: Item) -> bool:
        """Which of two near-ties gets the last place: each with the same chance."""
        pair = sorted((first, second))
        takes_lower = self._draw("edge", *(word for item in pair for word in (item.kind, item.name))) < 0.5
        return takes_lower == (second == pair[0])

    def _draw(self, *words: str) -> float:
        digest = hashlib.sha256("\x1f".join((self.seed, self.unit, *words)).encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8], "big") / 2**64


@dataclass(frozen=True, kw_only=True, slots=True)
class Edge(Generic[T]):
    """What there is room for. Of two near-ties at its edge `last` got the place and `left` did not, by lot."""

    taken: tuple[T, ...]
    last: T | None = None
    left: T | None = None


def edge(
    lots: Lots, ranked: Sequence[T], room: int, *, item: Callable[[T], Item], worth: Callable[[T], float]
) -> Edge[T]:
    """The first `room` of what is ranked; the last place is drawn where the next one is worth nearly as much."""
    taken = tuple(ranked[:room])
    if not lots.are_drawn or len(ranked) <= room or worth(ranked[room]) < worth(ranked[room - 1]) * (1 - NEAR):
        return Edge(taken=taken)
    last, left = ranked[room - 1], ranked[room]
    if lots.prefers_second(item(last), item(left)):
        last, left = left, last
    return Edge(taken=(*taken[:-1], last), last=last, left=left)
