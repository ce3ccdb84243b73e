"""Every look at the bound that decides: on which side an item is first decided, and after which share of its draws."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from habitus.evidence.bounds import ERROR, Game, Plays, expect
from habitus.evidence.findings import sums_of
from habitus.evidence.model import Item, Observation
from habitus.evidence.running import NO_GAME, Running
from habitus.evidence.sums import Floats, Table


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Witness(Game):
    """A game that remembers each play."""

    plays: tuple[Plays, ...] = ()

    def after(self, rows: Table) -> Witness:
        expected, went = expect(rows, self.went)
        return Witness(capitals=self.capitals, went=went, plays=(*self.plays, Plays.of(rows, expected)))

    def fortunes_at_every_look(self, *, up: bool) -> Floats:
        """The logarithm of the capital that was staked against no effect."""
        columns = {
            name: [getattr(each, name) for each in self.plays] for name in ("pays", "adds", "most_up", "most_down")
        }
        whole = Plays(**{name: np.concatenate(each) for name, each in columns.items()})
        return whole.fortunes(0, up=up)


def witnesses(rows: Iterable[Observation], items: Sequence[Item]) -> dict[Item, Witness]:
    new = Running(games=dict.fromkeys(items, Witness(capitals=NO_GAME.capitals, went=NO_GAME.went)))
    return {item: game for item, game in sums_of(rows, settled=new).games.items() if isinstance(game, Witness)}


def first_sides(rows: Iterable[Observation], items: Sequence[Item]) -> tuple[Floats, Floats]:
    """Of each item 1, -1, or 0 where it never was decided; and after which share of its draws."""
    side, when = np.zeros(len(items)), np.full(len(items), np.inf)
    for number, game in enumerate(witnesses(rows, items).values()):
        for sign in (1, -1) if game.plays else ():
            crossed = np.flatnonzero(game.fortunes_at_every_look(up=sign > 0) >= np.log(2 / ERROR))
            share = (crossed[0] + 1) / sum(len(each.pays) for each in game.plays) if len(crossed) else np.inf
            if share < when[number]:
                side[number], when[number] = sign, share
    return side, when
