"""The gate: whether a changed skill does better than today's, on these tasks and on tasks like them.

Each round asks every task once with each version. A candidate is accepted when two tests agree, each at its error:

- Over rollouts: the evidence (an e-value) against "no better on these tasks" is multiplied by `1 + stake * (difference
  + margin)` for every pair. With one stake per round its mean is at most one even if some tasks gain what others lose,
  so it ever reaches 1 / error in at most that share of runs. This holds at every look.
- Over tasks: an exact sign-flip test of each task's gain, because ten repeats of one task are one piece of evidence,
  and so are ten variants of it: they are one family.
  It is exact for a change that is as likely to gain as to lose on a task, and holds for one look: it gets 75 % of the
  error, because it is repeated after every round on nearly the same gains (`benchmarks/improve.py` measures it).

The first candidate on a set of tasks gets 30 % of the error, the next 29 share the rest, and then new tasks are needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import NormalDist
from typing import Any, Self

import numpy as np

from habitus.evidence.bounds import ERROR
from habitus.tasks.model import get_task_family
from habitus.tasks.rollouts import Rollout, TaskSplit

MOST_ROUNDS = 10  # rollouts of a task and version
FEWEST_TASKS = 10  # with fewer, a run can hardly show anything
MOST_CANDIDATES = 30  # that one set of tasks may judge
MARGIN = 0.03  # a shorter version may do worse by this much
_FIRST_SHARE = 0.3  # of the error; most skills are improved once, and that run should have most of the power
_FOR_LOOKS = 0.75  # of the error for the test over tasks, which is looked at after every round
_NOISE = 0.3  # the usual variance of a difference between two rollouts
_SPREAD = 0.01  # the usual variance of the effect between tasks
_MAX_STAKE = 0.9  # below 1, so that no single loss ends all evidence
_OPTIMISM = 4.0  # standard errors by which a candidate may be better than it looks, before racing stops it


class GateHypothesis(StrEnum):
    BETTER = "better"
    NOT_WORSE = "not worse"  # by more than the margin, for a shorter version


class GateVerdict(StrEnum):
    OPEN = "open"  # more rounds may decide
    ACCEPTED = "accepted"
    HOPELESS = "stopped early"  # not shown, and no longer likely to be
    REPEATED = "repeats itself"  # not shown, and another round would say the same
    NOT_SHOWN = "not shown"  # at the end of all rounds


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutPair:
    """One task in one round, with both versions."""

    old: Rollout
    new: Rollout


def pair_complete_rounds(rollouts: Iterable[Rollout], side: TaskSplit, tasks: Sequence[str]) -> list[RolloutPair]:
    """Return the pairs of all whole rounds, task by task and round by round."""
    made = {(one.round, one.task, one.is_new): one for one in rollouts if one.side is side and one.is_counted}
    pairs: list[RolloutPair] = []
    number = 0
    while tasks and all((number, task, is_new) in made for task in tasks for is_new in (False, True)):
        pairs += [RolloutPair(old=made[number, task, False], new=made[number, task, True]) for task in tasks]
        number += 1
    return pairs


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutPairCounts:
    """The results of all whole rounds; arrays if many runs are simulated at once."""

    better: Any = 0  # pairs in which only the candidate passed
    same: Any = 0
    worse: Any = 0
    gains: Any = field(default_factory=list)  # per family: pairs that got better minus pairs that got worse
    sizes: tuple[int, ...] = ()  # tasks per family; none if each is its own
    is_repeated: Any = False  # the last two rounds agree on every task, with both versions

    @classmethod
    def from_pairs(cls, pairs: Sequence[RolloutPair]) -> Self:
        tasks = len({pair.old.task for pair in pairs})
        passed = np.array([(pair.old.is_ok, pair.new.is_ok) for pair in pairs], dtype=np.int64).reshape(-1, tasks, 2)
        differences = passed[:, :, 1] - passed[:, :, 0]
        families: dict[str, list[int]] = {}
        for number, pair in enumerate(pairs[:tasks]):
            families.setdefault(get_task_family(pair.old.task), []).append(number)
        return cls(
            better=int((differences > 0).sum()),
            same=int((differences == 0).sum()),
            worse=int((differences < 0).sum()),
            gains=[int(differences[:, members].sum()) for members in families.values()],
            sizes=tuple(map(len, families.values())) if len(families) < tasks else (),
            is_repeated=len(passed) > 1 and bool((passed[-1] == passed[-2]).all()),
        )

    @property
    def pairs(self) -> Any:
        return self.better + self.same + self.worse

    @property
    def rounds(self) -> int:
        return int(self.pairs) // max(sum(self.sizes) or len(self.gains), 1)

    @property
    def mean_differences_by_family(self) -> Any:
        """The mean difference of each family."""
        return np.array(self.gains) / (max(self.rounds, 1) * np.array(self.sizes or 1))


@dataclass(frozen=True, kw_only=True, slots=True)
class GateRule:
    """The rule for one candidate, fixed before its first rollout."""

    tasks: int
    families: int = 0  # that the tasks belong to; 0 if each is its own
    number: int = 1  # of the candidate among all that were ever tried on any of these tasks
    claim: GateHypothesis = GateHypothesis.BETTER
    rounds: int = MOST_ROUNDS

    @property
    def allowed_error(self) -> float:
        return compute_error_share_of_candidate(self.number) * ERROR

    @property
    def allowed_error_of_task_test(self) -> float:
        """The error of the test over tasks at one look."""
        return _FOR_LOOKS * self.allowed_error

    @property
    def independent_task_count(self) -> int:
        """The number of independent ones: variants of one task count once."""
        return self.families or self.tasks

    @property
    def fewest_tasks(self) -> int:
        """The number of tasks below which even the best result would not be accepted."""
        if not self.allowed_error:
            return self.independent_task_count + 1
        if self.claim is GateHypothesis.NOT_WORSE:
            return math.ceil(_compute_log_evidence_threshold(self.allowed_error) / math.log1p(_MAX_STAKE * MARGIN))
        return math.ceil(math.log2(1 / self.allowed_error_of_task_test))

    @property
    def smallest_effect(self) -> float:
        """The difference that a whole run shows in about every second case; smaller ones it usually misses."""
        if not self.allowed_error:
            return 1.0
        stake, pairs = self._betting_stakes[0], self.tasks * self.rounds
        over_rollouts = _compute_log_evidence_threshold(self.allowed_error) / (pairs * stake) + stake * _NOISE / 2
        spread = math.sqrt((_NOISE / self.rounds + _SPREAD) / self.independent_task_count)
        over_tasks = NormalDist().inv_cdf(1 - self.allowed_error_of_task_test) * spread
        return min(1.0, max(over_rollouts, over_tasks) - self._allowed_loss_margin)

    @property
    def problem(self) -> str:
        """Why no result of a run could be accepted; empty if one could."""
        if not self.allowed_error:
            return f"{MOST_CANDIDATES} candidates were tried on these gate tasks, and their error is spent"
        if self.independent_task_count >= self.fewest_tasks:
            return ""
        once = ", as variants of one task count once" if self.independent_task_count < self.tasks else ""
        claim = (
            f"that a version is not worse by {100 * MARGIN:.0f} points"
            if self._allowed_loss_margin
            else "that one is better"
        )
        there = f"{self.independent_task_count}{once}"
        return f"to show {claim} takes {self.fewest_tasks} gate tasks or more, and there are {there}"

    def decide_verdict(self, tally: RolloutPairCounts) -> GateVerdict:
        """Decide after a whole round."""
        is_general = self.is_claim_shown_with_tasks_as_observations(tally)
        # Where every answer repeats itself, the effect on these tasks is known, and only their number counts.
        if is_general and (tally.is_repeated or self.is_claim_shown_on_gate_tasks(tally)):
            return GateVerdict.ACCEPTED
        if tally.is_repeated:
            return GateVerdict.REPEATED
        if tally.pairs >= self.tasks * self.rounds:
            return GateVerdict.NOT_SHOWN
        return GateVerdict.HOPELESS if self.problem or self.is_acceptance_hopeless(tally) else GateVerdict.OPEN

    def explain_shortage_of_tasks(self, verdict: GateVerdict, tally: RolloutPairCounts) -> str:
        """Return why a candidate is not shown, if more tasks would help; empty otherwise."""
        if verdict is not GateVerdict.ACCEPTED and self.problem:
            return self.problem
        if verdict is GateVerdict.REPEATED:
            return "its answers repeat themselves, so more rounds tell nothing new: more tasks are needed"
        is_on_these = verdict is GateVerdict.NOT_SHOWN and self.is_claim_shown_on_gate_tasks(tally)
        return "it shows on these tasks, but on too few of them: more tasks are needed" if is_on_these else ""

    def is_claim_shown_with_tasks_as_observations(self, tally: RolloutPairCounts) -> bool:
        """Whether the claim holds with each task as one observation."""
        if self.claim is GateHypothesis.BETTER:
            return compute_sign_flip_p_value(tally.gains) <= self.allowed_error_of_task_test
        # Betting on task means: a sign-flip test would overlook a rare task that is lost entirely.
        return bool(
            np.log1p(_MAX_STAKE * (tally.mean_differences_by_family + MARGIN)).sum()
            >= _compute_log_evidence_threshold(self.allowed_error)
        )

    def is_claim_shown_on_gate_tasks(self, tally: RolloutPairCounts) -> Any:
        """Whether the claim holds on these very tasks; valid at every look."""
        return self.compute_log_evidence(tally) >= _compute_log_evidence_threshold(self.allowed_error)

    def compute_log_evidence(self, tally: RolloutPairCounts) -> Any:
        """Return the logarithm of the evidence over rollouts, mixed evenly over the stakes."""
        logs = [
            tally.better * math.log1p(stake * (1 + self._allowed_loss_margin))
            + tally.same * math.log1p(stake * self._allowed_loss_margin)
            + tally.worse * math.log1p(-stake * (1 - self._allowed_loss_margin))
            for stake in self._betting_stakes
        ]
        return np.logaddexp.reduce(logs, axis=0) - math.log(len(logs))

    def is_acceptance_hopeless(self, tally: RolloutPairCounts) -> Any:
        """Whether even a candidate that is better than it looks would not be shown by the last round."""
        left, pairs = self.tasks * self.rounds - tally.pairs, tally.pairs
        better, worse = (tally.better + 0.5) / (pairs + 1), (tally.worse + 0.5) / (pairs + 1)
        spread = np.sqrt((better + worse - (better - worse) ** 2) / np.maximum(pairs, 1))
        better, worse = np.minimum(better + _OPTIMISM / 2 * spread, 1), np.maximum(worse - _OPTIMISM / 2 * spread, 0)
        at_best = RolloutPairCounts(
            better=tally.better + left * better,
            same=tally.same + left * np.maximum(1 - better - worse, 0),
            worse=tally.worse + left * worse,
        )
        return ~np.asarray(self.is_claim_shown_on_gate_tasks(at_best))

    @property
    def _allowed_loss_margin(self) -> float:
        return MARGIN if self.claim is GateHypothesis.NOT_WORSE else 0.0

    @property
    def _betting_stakes(self) -> tuple[float, ...]:
        """The stake that gains most from the smallest effect that could still be shown; for a shorter version also a
        high one, for rollouts that hardly ever differ."""
        best = math.sqrt(
            2 * _compute_log_evidence_threshold(self.allowed_error) / (max(self.tasks * self.rounds, 1) * _NOISE)
        )
        stake = min(_MAX_STAKE, best)
        return (stake, _MAX_STAKE) if self.claim is GateHypothesis.NOT_WORSE else (stake,)


def compute_error_share_of_candidate(number: int) -> float:
    """Return the share of the error that the n-th candidate on a set of tasks has; 0 once it is spent."""
    if number == 1:
        return _FIRST_SHARE
    return (1 - _FIRST_SHARE) / (MOST_CANDIDATES - 1) if number <= MOST_CANDIDATES else 0.0


def compute_remaining_error_share(tried: int) -> float:
    """Return the share of the error that this many candidates have left."""
    return max(0.0, 1 - sum(map(compute_error_share_of_candidate, range(1, tried + 1))))


def compute_sign_flip_p_value(gains: Sequence[int]) -> float:
    """Return how often gains with random signs would sum up to as much, exactly."""
    chances = np.ones(1)  # of each sum, from -total to total
    for size in map(abs, gains):
        wider = np.zeros(len(chances) + 2 * size)
        wider[: len(chances)] += chances / 2
        wider[2 * size :] += chances / 2
        chances = wider
    return float(chances[sum(gains) + len(chances) // 2 :].sum())


def _compute_log_evidence_threshold(error: float) -> float:
    return math.log(1 / error)
