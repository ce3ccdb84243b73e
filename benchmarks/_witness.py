"""Every look at the bound that decides: on which side an item is first decided, and after which share of its draws."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from habitus.evidence.bounds import (
    ERROR,
    ItemBettingEvidenceSums,
    ItemExposurePayoffs,
    predict_success_of_each_exposure,
)
from habitus.evidence.findings import add_observations_to_sums
from habitus.evidence.model import EvidenceItem, ItemObservation
from habitus.evidence.regression import Floats, ObservationTable
from habitus.evidence.sums import NO_BETTING, EvidenceSums


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Witness(ItemBettingEvidenceSums):
    """A game that remembers each play."""

    plays: tuple[ItemExposurePayoffs, ...] = ()

    def with_exposures(self, rows: ObservationTable) -> Witness:
        expected, went = predict_success_of_each_exposure(rows, self.outcomes_by_kind)
        return Witness(
            log_capitals=self.log_capitals,
            outcomes_by_kind=went,
            plays=(*self.plays, ItemExposurePayoffs.from_rows(rows, expected)),
        )

    def fortunes_at_every_look(self, *, up: bool) -> Floats:
        """The logarithm of the capital that was staked against no effect."""
        columns = {
            name: [getattr(each, name) for each in self.plays]
            for name in ("payoffs", "assignment_variances", "max_stake_up", "max_stake_down")
        }
        whole = ItemExposurePayoffs(**{name: np.concatenate(each) for name, each in columns.items()})
        return whole.compute_log_evidence_after_each_exposure(0, up=up)


def witnesses(rows: Iterable[ItemObservation], items: Sequence[EvidenceItem]) -> dict[EvidenceItem, Witness]:
    new = EvidenceSums(
        betting=dict.fromkeys(
            items, Witness(log_capitals=NO_BETTING.log_capitals, outcomes_by_kind=NO_BETTING.outcomes_by_kind)
        )
    )
    return {
        item: game
        for item, game in add_observations_to_sums(rows, settled=new).betting.items()
        if isinstance(game, Witness)
    }


def first_sides(rows: Iterable[ItemObservation], items: Sequence[EvidenceItem]) -> tuple[Floats, Floats]:
    """Of each item 1, -1, or 0 where it never was decided; and after which share of its draws."""
    side, when = np.zeros(len(items)), np.full(len(items), np.inf)
    for number, game in enumerate(witnesses(rows, items).values()):
        for sign in (1, -1) if game.plays else ():
            crossed = np.flatnonzero(game.fortunes_at_every_look(up=sign > 0) >= np.log(2 / ERROR))
            share = (crossed[0] + 1) / sum(len(each.payoffs) for each in game.plays) if len(crossed) else np.inf
            if share < when[number]:
                side[number], when[number] = sign, share
    return side, when
