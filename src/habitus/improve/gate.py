"""The gate: whether a changed skill does better than today's on the same tasks, decided so that placebo can't pass.

Each round asks every task once with today's version and once with the candidate. Whoever believes that the candidate is
no better must find a bet on it unfair: our capital is multiplied by `1 + stake * (difference + margin)` for every pair.
With one stake for a whole round, its mean is at most one even if some tasks gain what others lose (the product of such
means is at most their mean's power), so 1 / error is ever reached, at any look, in at most that share of runs.
The k-th candidate of a skill has 6 / (pi² k²) of the error of all: however many are tried, it is never spent twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

import numpy as np

from habitus.evidence.bounds import ERROR, reach
from habitus.tasks.rollouts import Rollout, TaskSplit

MOST_ROUNDS = 10  # rollouts of a task and side
FEWEST_TASKS = 10  # with fewer, a run can hardly show anything
MARGIN = 0.03  # a shorter version may do worse by so much
_NOISE = 0.3  # the usual variance of a difference
_MOST_STAKED = 0.9  # of what would risk everything
_OPTIMISM = 2.0  # standard errors by which a candidate may be better than it looks, before racing stops it


class Claim(StrEnum):
    BETTER = "better"
    NOT_WORSE = "not worse"  # by more than the margin, for a shorter version


class GateVerdict(StrEnum):
    OPEN = "open"  # more rounds may decide
    ACCEPTED = "accepted"
    HOPELESS = "stopped early"  # not shown, and no longer likely to be
    NOT_SHOWN = "not shown"  # at the end of all rounds


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutPair:
    """One task in one round, with both versions."""

    old: Rollout
    new: Rollout


def pair_rollouts(rollouts: Iterable[Rollout], side: TaskSplit, tasks: Sequence[str]) -> list[RolloutPair]:
    """Return the pairs of all whole rounds, task by task and round by round."""
    made = {(one.round, one.task, one.is_new): one for one in rollouts if one.side is side and one.counts}
    pairs: list[RolloutPair] = []
    number = 0
    while tasks and all((number, task, is_new) in made for task in tasks for is_new in (False, True)):
        pairs += [RolloutPair(old=made[number, task, False], new=made[number, task, True]) for task in tasks]
        number += 1
    return pairs


@dataclass(frozen=True, kw_only=True, slots=True)
class Tally:
    """How the pairs of all whole rounds went; arrays where many runs are simulated at once."""

    better: Any = 0  # the candidate passed, today's version did not
    same: Any = 0
    worse: Any = 0

    @classmethod
    def of(cls, pairs: Iterable[RolloutPair]) -> Self:
        differences = [pair.new.is_ok - pair.old.is_ok for pair in pairs]
        return cls(better=differences.count(1), same=differences.count(0), worse=differences.count(-1))

    @property
    def pairs(self) -> Any:
        return self.better + self.same + self.worse

    @property
    def difference(self) -> Any:
        return (self.better - self.worse) / np.maximum(self.pairs, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Gate:
    """The rule for one candidate, fixed before its first rollout."""

    tasks: int
    number: int = 1  # which candidate of its skill it is, counting all that were ever tried
    claim: Claim = Claim.BETTER
    rounds: int = MOST_ROUNDS

    @property
    def error(self) -> float:
        return 6 / (math.pi * self.number) ** 2 * ERROR

    @property
    def smallest_effect(self) -> float:
        """The difference that a whole run shows in about every second case; smaller ones it usually misses."""
        stake, pairs = self._stakes[0], self.tasks * self.rounds
        return min(1.0, _enough(self.error) / (pairs * stake) + stake * _NOISE / 2 - self._margin)

    def verdict(self, tally: Tally) -> GateVerdict:
        """After a whole round."""
        if self.is_shown(tally):
            return GateVerdict.ACCEPTED
        if tally.pairs >= self.tasks * self.rounds:
            return GateVerdict.NOT_SHOWN
        return GateVerdict.HOPELESS if self.is_hopeless(tally) else GateVerdict.OPEN

    def is_shown(self, tally: Tally) -> Any:
        return self.capital(tally) >= _enough(self.error)

    def capital(self, tally: Tally) -> Any:
        """Its logarithm, having begun with 1."""
        return _fortune(tally, -self._margin, self._stakes)

    def is_hopeless(self, tally: Tally) -> Any:
        """Whether even a candidate that is better than it looks would not be shown by the last round."""
        left, pairs = self.tasks * self.rounds - tally.pairs, tally.pairs
        better, worse = (tally.better + 0.5) / (pairs + 1), (tally.worse + 0.5) / (pairs + 1)
        spread = np.sqrt((better + worse - (better - worse) ** 2) / np.maximum(pairs, 1))
        better, worse = np.minimum(better + _OPTIMISM / 2 * spread, 1), np.maximum(worse - _OPTIMISM / 2 * spread, 0)
        at_best = Tally(
            better=tally.better + left * better,
            same=tally.same + left * np.maximum(1 - better - worse, 0),
            worse=tally.worse + left * worse,
        )
        return ~np.asarray(self.is_shown(at_best))

    def interval(self, tally: Tally) -> Interval:
        """The difference on these tasks lies in between; a candidate is accepted where all of it is good enough."""
        return interval(tally, self._stakes, error=self.error)

    @property
    def _margin(self) -> float:
        return MARGIN if self.claim is Claim.NOT_WORSE else 0.0

    @property
    def _stakes(self) -> tuple[float, ...]:
        """The stake that wins most from the smallest effect that could still be shown; and a high one for what hardly
        ever differs."""
        stake = best_stake(self.tasks * self.rounds, self.error)
        return (stake, _MOST_STAKED) if self.claim is Claim.NOT_WORSE else (stake,)


def error_left(tried: int) -> float:
    """Of the error that all candidates of a skill share, what so many have not spent, as a share."""
    return 1 - sum(6 / (math.pi * number) ** 2 for number in range(1, tried + 1))


def best_stake(pairs: int, error: float) -> float:
    return min(_MOST_STAKED, math.sqrt(2 * _enough(error) / (max(pairs, 1) * _NOISE)))


def interval(tally: Tally, stakes: tuple[float, ...], *, error: float) -> Interval:
    """All differences that a bet neither way refutes, each way with this error."""
    mirrored, enough = Tally(better=tally.worse, same=tally.same, worse=tally.better), _enough(error)
    return Interval(
        low=reach(lambda effect: bool(_fortune(tally, effect, stakes) >= enough)),
        high=-reach(lambda effect: bool(_fortune(mirrored, effect, stakes) >= enough)),
    )


def _fortune(tally: Tally, effect: float, stakes: tuple[float, ...]) -> Any:
    """The logarithm of our capital, spread evenly over the stakes, if the true difference is at most this effect."""
    capitals = []
    for most in stakes:
        stake = min(most, _MOST_STAKED / (1 + effect)) if effect > -1 else most
        capitals.append(
            tally.better * math.log1p(stake * (1 - effect))
            + tally.same * math.log1p(-stake * effect)
            + tally.worse * math.log1p(-stake * (1 + effect))
        )
    return np.logaddexp.reduce(capitals, axis=0) - math.log(len(stakes))


def _enough(error: float) -> float:
    return math.log(1 / error)
