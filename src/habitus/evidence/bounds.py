"""A bound that stays valid however often one looks: a confidence sequence for what offering an item changes.

Whoever believes that offering changes nothing must find the draw a fair game, whatever is known of the outcome. We bet
against it: after each randomised exposure our capital is multiplied by `1 + stake * ((success - expected) * (offered -
propensity) - propensity * (1 - propensity) * effect)`, whose mean is one if the effect is true. A capital of forty is
then seen, at whatever time, at most once in forty. Nothing is shrunk, aged, or taken from another version.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from habitus.evidence.sums import KINDS, Flags, Floats, Table

ERROR = 0.05  # how often a bound may ever be wrong
_STAKES = np.geomspace(0.1, 3.2, 11)
_TRUST = np.exp(-0.5 * (np.log(_STAKES / 0.9) / 0.7) ** 2)  # in each stake: most in those that show 10 to 40 of 100
_SHARES = np.log(_TRUST / _TRUST.sum())
_AS_USUAL = 4  # a kind of request is expected to go as all do, as if so many had gone so
_SAFE = 0.95  # of what would risk everything
_NEAR = np.array([0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0])
_EFFECTS = np.concatenate([-_NEAR[::-1], [0], _NEAR])  # those that are bet against
_GRID = np.linspace(-1, 1, 201)
_PARTS = np.linspace(0, 1, 33)  # of the way from one effect that is bet against to the next
_HALVINGS = 20  # to find a bound
_AT_ONCE = 16  # factors that are multiplied before a logarithm is taken


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """The effect of offering lies in between, and did at every look before."""

    low: float = -1.0
    high: float = 1.0
    offered: int = 0  # units of each arm that it rests on
    withheld: int = 0


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Plays:
    """Randomised exposures of one item, in the order of time: what each pays, and what the effect adds to it."""

    pays: Floats
    adds: Floats
    most_up: Floats  # the most that may be staked on a good effect without going bankrupt
    most_down: Floats

    @classmethod
    def of(cls, rows: Table, expected: Floats) -> Plays:
        """`expected` is how each would go by what was known before, between 0 and 1."""
        chance, adds = rows.propensity, rows.propensity * (1 - rows.propensity)
        return cls(
            pays=(rows.success - expected) * (rows.is_offered - chance),
            adds=adds,
            most_up=_SAFE / (np.maximum(expected * (1 - chance), (1 - expected) * chance) + adds),
            most_down=_SAFE / (np.maximum(expected * chance, (1 - expected) * (1 - chance)) + adds),
        )

    def factors(self, effects: Floats, *, up: bool) -> Floats:
        """The factor by which each exposure changes the capital of each stake against each effect."""
        gains = self.pays[:, None] - self.adds[:, None] * effects
        stakes = np.minimum(_STAKES, (self.most_up if up else self.most_down)[:, None])
        return np.asarray(1 + stakes[:, None, :] * (gains if up else -gains)[:, :, None], dtype=np.float64)

    def fortunes(self, effect: float, *, up: bool) -> Floats:
        """The logarithm of our capital after every exposure, if it was staked against an effect that is not larger."""
        return _together(np.log(self.factors(np.array([effect]), up=up)[:, 0]).cumsum(0))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Game:
    """Sums over the plays of one item: the logarithms of capital, by side, effect that was bet against, and stake."""

    capitals: Floats
    went: Floats  # by kind of request: units, and how many of them went well
    offered: int = 0
    withheld: int = 0
    squares: float = 0.0  # of what was paid
    adds: float = 0.0

    @classmethod
    def new(cls) -> Game:
        return cls(capitals=np.zeros((2, len(_EFFECTS), len(_STAKES))), went=np.zeros((2, KINDS)))

    def after(self, rows: Table) -> Game:
        """With more randomised exposures, in the order of time."""
        expected, went = expect(rows, self.went)
        plays = Plays.of(rows, expected)
        won = np.stack([_logarithms(plays.factors(_EFFECTS, up=up)) for up in (False, True)])
        return Game(
            capitals=self.capitals + won,
            went=went,
            offered=self.offered + int(rows.is_offered.sum()),
            withheld=self.withheld + int((~rows.is_offered).sum()),
            squares=self.squares + float(plays.pays @ plays.pays),
            adds=self.adds + float(plays.adds.sum()),
        )

    def fortune(self, effect: float, *, up: bool) -> float:
        """The logarithm of our capital, if it was staked against an effect that is not larger (smaller).

        Between two that were bet against, a logarithm lies above the straight line: to take the line is to be careful.
        """
        place = min(int(np.searchsorted(_EFFECTS, effect, side="right")), len(_EFFECTS) - 1)
        below, above = _EFFECTS[place - 1], _EFFECTS[place]
        part = (effect - below) / (above - below)
        capital = self.capitals[int(up)]
        return float(_together(capital[place - 1] * (1 - part) + capital[place] * part))


def expect(rows: Table, went: Floats) -> tuple[Floats, Floats]:
    """How each exposure would go by those before it, its own kind of request above all; and how all went now."""
    is_kind = rows.kind[:, None] == np.arange(KINDS)
    each = np.stack([is_kind, is_kind * rows.success[:, None]], axis=1)
    after = went + each.cumsum(0)
    before = after - each
    whole, of_kind = before.sum(2), before[np.arange(len(rows.kind)), :, rows.kind]
    overall = (whole[:, 1] + 1) / (whole[:, 0] + 2)
    return (of_kind[:, 1] + _AS_USUAL * overall) / (of_kind[:, 0] + _AS_USUAL), after[-1]


def _logarithms(factors: Floats) -> Floats:
    """Of the product over all exposures."""
    starts = np.arange(0, len(factors), _AT_ONCE)
    return np.asarray(np.log(np.multiply.reduceat(factors, starts)).sum(0), dtype=np.float64)


def _together(capitals: Floats) -> Floats:
    """Of capital that is spread over the stakes, all of it; in logarithms."""
    return np.asarray(np.logaddexp.reduce(capitals + _SHARES, axis=-1), dtype=np.float64)


def find_bound(game: Game) -> Bound:
    """One arm alone bounds nothing: then outcomes are missing by arm, and the game is not fair."""
    if not (game.offered and game.withheld):
        return Bound(offered=game.offered, withheld=game.withheld)
    enough = math.log(2 / ERROR)  # half of the error for either side
    return Bound(
        low=_largest_refuted(game.capitals[1], enough),
        high=-_largest_refuted(game.capitals[0, ::-1], enough),  # the effects lie the same to both sides of none
        offered=game.offered,
        withheld=game.withheld,
    )


def _largest_refuted(capital: Floats, enough: float) -> float:
    """The largest effect that is refuted along with all smaller ones, to a thousandth of the way to the next bet."""
    place = _first_false(_together(capital) >= enough)
    if not place:
        return -1.0
    low, width = 0.0, 1.0
    for _ in range(2):
        parts = (low + width * _PARTS)[:, None]
        among = _together(capital[place - 1] * (1 - parts) + capital[place] * parts)
        low += width * float(_PARTS[_first_false(among >= enough) - 1])
        width *= float(_PARTS[1])
    return float(_EFFECTS[place - 1] * (1 - low) + _EFFECTS[place] * low)


def _first_false(flags: Flags) -> int:
    """The last one, if no other."""
    return int(np.argmin(flags[:-1])) if not flags[:-1].all() else len(flags) - 1


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
