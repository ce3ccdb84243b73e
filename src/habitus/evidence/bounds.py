"""A bound that stays valid however often one looks: a confidence sequence for what offering an item changes.

Whoever believes that offering changes nothing must find the draw a fair game, whatever is known of the outcome. We bet
against it: after each randomised exposure our capital is multiplied by `1 + stake * ((success - expected) * (offered -
propensity) - propensity * (1 - propensity) * effect)`, whose mean is one if the effect is true. A capital of forty is
then seen, at whatever time, at most once in forty. Nothing is shrunk, aged, or taken from another version.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from habitus.evidence.model import Item, Observation
from habitus.evidence.table import Floats, Numbers, Table

ERROR = 0.05  # how often a bound may ever be wrong
_STAKES = np.geomspace(0.05, 3.2, 13)
_AS_USUAL = 4  # a kind of request is expected to go as all do, as if so many had gone so
_SAFE = 0.95  # of what would risk everything
_HALVINGS = 20  # to find a bound
_GRID = np.linspace(-1, 1, 201)


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """The effect of offering lies in between, and did at every look before."""

    low: float = -1.0
    high: float = 1.0
    offered: int = 0  # units of each arm that it rests on
    withheld: int = 0


def bound(game: Game, *, error: float = ERROR) -> Bound:
    """One arm alone bounds nothing: then outcomes are missing by arm, and the game is not fair."""
    if not (game.offered and game.withheld):
        return Bound(offered=game.offered, withheld=game.withheld)
    enough = math.log(2 / error)  # half of the error for either side
    return Bound(
        low=reach(lambda effect: game.fortune(effect, up=True) >= enough),
        high=-reach(lambda effect: game.fortune(-effect, up=False) >= enough),
        offered=game.offered,
        withheld=game.withheld,
    )


def reach(is_refuted: Callable[[float], bool]) -> float:
    """The largest effect that is refuted along with all smaller ones; -1 where none is."""
    low, high = -1.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_refuted(middle) else (low, middle)
    return low


def is_worse(version: Game, predecessor: Game, *, error: float = ERROR) -> bool:
    """Whether a version is known to help less than its predecessor did, each set off against its own withheld units.

    Were it as good, some effect would be neither too large for the one nor too small for the other, and betting
    against it on both sides would win nothing. Between two points of the grid the smaller winnings of both count.
    """
    against_version = [version.fortune(effect, up=False) for effect in _GRID[:-1]]
    against_predecessor = [predecessor.fortune(effect, up=True) for effect in _GRID[1:]]
    return min(a + b for a, b in zip(against_version, against_predecessor, strict=True)) >= math.log(1 / error)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Game:
    """The randomised exposures of one item as a fair game: what each pays, and what the effect adds to it."""

    pays: Floats
    adds: Floats
    most_up: Floats  # the most that may be staked on a good effect without going bankrupt, one for each exposure
    most_down: Floats
    offered: int
    withheld: int

    def fortune(self, effect: float, *, up: bool) -> float:
        """The logarithm of our capital today, if it was staked against an effect that is not larger (smaller)."""
        return float(_together(self._winnings(effect, up).sum(1)))

    def fortunes(self, effect: float, *, up: bool) -> Floats:
        """The same after every exposure."""
        return _together(self._winnings(effect, up).cumsum(1))

    def _winnings(self, effect: float, up: bool) -> Floats:
        """The logarithm of what each stake makes of its capital at each exposure."""
        gains = self.pays - self.adds * effect
        stakes = np.minimum(_STAKES[:, None], self.most_up if up else self.most_down)
        return np.asarray(np.log1p(stakes * (gains if up else -gains)), dtype=np.float64)


def _together(capitals: Floats) -> Floats:
    """Of capital that is spread evenly over the stakes, all of it; in logarithms."""
    return np.asarray(np.logaddexp.reduce(capitals, axis=0) - math.log(len(_STAKES)), dtype=np.float64)


def games(observations: Iterable[Observation]) -> dict[Item, Game]:
    """Of each item, its randomised exposures with an explicit outcome, in the order of time."""
    table = Table.of(observations)
    chosen = table.where(table.has_outcome & table.is_explicit & table.is_random)
    order = np.argsort(chosen.item, kind="stable")
    starts = np.searchsorted(chosen.item[order], np.arange(len(table.items) + 1))
    return {item: _game(chosen, order[starts[number] : starts[number + 1]]) for number, item in enumerate(table.items)}


def _game(table: Table, rows: Numbers) -> Game:
    chance, offered = table.propensity[rows], table.is_offered[rows]
    expected = _expected(table.success[rows], table.kind[rows])
    adds = chance * (1 - chance)
    return Game(
        pays=(table.success[rows] - expected) * (offered - chance),
        adds=adds,
        most_up=_SAFE / (np.maximum(expected * (1 - chance), (1 - expected) * chance) + adds),
        most_down=_SAFE / (np.maximum(expected * chance, (1 - expected) * (1 - chance)) + adds),
        offered=int(offered.sum()),
        withheld=int((~offered).sum()),
    )


def _expected(success: Floats, kind: Numbers) -> Floats:
    """Of each exposure, how those before it went, its own kind of request above all."""
    overall = (success.cumsum() - success + 1) / (np.arange(len(success)) + 2)
    is_kind = kind[:, None] == np.unique(kind)
    went = is_kind * success[:, None]
    went_before, before = (went.cumsum(0) - went)[is_kind], (is_kind.cumsum(0) - is_kind)[is_kind]
    return np.asarray((went_before + _AS_USUAL * overall) / (before + _AS_USUAL), dtype=np.float64)
