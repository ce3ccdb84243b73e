"""Verdicts: what the bounds allow to be done with an item, and why, in plain words. Only bounds promote or retire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from habitus.evidence.bounds import Bound, Game, is_worse
from habitus.evidence.lift import Estimate
from habitus.evidence.model import Item
from habitus.evidence.words import of_100, units

NEGLIGIBLE = 0.05  # a change of so many in one is not worth a place in the prompt
_OFTEN, _MOSTLY = 10, 0.8  # recalled so often, and so large a share without a trace: it is ignored


class Verdict(StrEnum):
    PROMOTE = "promote"  # it helps
    KEEP = "keep"  # it does no harm worth mentioning
    DEGRADE = "degrade"  # it does not help enough to be offered early
    RETIRE = "retire"  # it does harm
    UNKNOWN = "not known yet"


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    verdict: Verdict
    reason: str


def judge(estimate: Estimate, bound: Bound) -> Judgement:
    if bound.high < 0:
        return Judgement(verdict=Verdict.RETIRE, reason=f"It does harm: at least {of_100(-bound.high)} fewer go well.")
    if bound.low > 0:
        return Judgement(verdict=Verdict.PROMOTE, reason=f"It helps: at least {of_100(bound.low)} more go well.")
    if is_ignored(estimate):
        reason = f"It was recalled {estimate.used} times and left no trace in {estimate.ignored} of them."
        return Judgement(verdict=Verdict.DEGRADE, reason=reason)
    if bound.high <= NEGLIGIBLE:
        return Judgement(verdict=Verdict.DEGRADE, reason=f"It helps {of_100(bound.high)} at most.")
    if bound.low >= -NEGLIGIBLE:
        return Judgement(
            verdict=Verdict.KEEP, reason=f"It harms {of_100(-bound.low)} at most; whether it helps is open."
        )
    return Judgement(verdict=Verdict.UNKNOWN, reason=_why_unknown(estimate, bound))


def is_ignored(estimate: Estimate) -> bool:
    """Recalled again and again, and nothing it says was done."""
    return estimate.used >= _OFTEN and estimate.ignored >= _MOSTLY * estimate.used


def _why_unknown(estimate: Estimate, bound: Bound) -> str:
    if not bound.offered + bound.withheld:
        said = estimate.offered.explicit + estimate.withheld.explicit
        return "It was never withheld at random." if said else "Nobody said yet how it went."
    if not bound.withheld:
        return f"It was offered in {units(bound.offered)} and withheld in none that was judged."
    if not bound.offered:
        return f"It was withheld in {units(bound.withheld)} and offered in none that was judged."
    return (
        f"Between {of_100(-bound.low)} fewer and {of_100(bound.high)} more go well, "
        f"by {units(bound.offered)} with it and {bound.withheld} without."
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollback:
    """A version that is known to do worse than the one before it."""

    item: Item
    to: Item
    reason: str


def rollbacks(games: Mapping[Item, Game]) -> list[Rollback]:
    """Of each newest version that was put to the draw, whether the one before it was better."""
    versions: dict[tuple[str, str], list[Item]] = {}
    for item in sorted(games):
        if games[item].offered and games[item].withheld:
            versions.setdefault((item.kind, item.name), []).append(item)
    pairs = [(each[-2], each[-1]) for each in versions.values() if len(each) > 1]
    return [
        Rollback(item=new, to=old, reason=_why_back(new, old, games))
        for old, new in pairs
        if is_worse(games[new], games[old])
    ]


def _why_back(new: Item, old: Item, games: Mapping[Item, Game]) -> str:
    counted = (games[item].offered + games[item].withheld for item in (new, old))
    return "Version {} does worse than version {}, by {} and {}.".format(
        new.version, old.version, *(units(count) for count in counted)
    )
