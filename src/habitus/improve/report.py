"""The report on a candidate: both versions side by side on the gate's tasks, and the result of the exam."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import assert_never

from habitus.improve.candidates import Candidate, CandidateState
from habitus.improve.exam import PassRateDifferenceInterval, compute_pass_rate_difference_interval
from habitus.improve.gate import GateHypothesis, GateRule, RolloutPairCounts, pair_complete_rounds
from habitus.tasks.model import get_task_family
from habitus.tasks.rollouts import Rollout, TaskSplit
from habitus.text import format_quantity

_REGRESSION = 0.3  # a task that passes less often by so much is named


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskPassCounts:
    """How often one task passed with each version, of so many rollouts each."""

    task: str
    tries: int
    old: int
    new: int

    @property
    def is_regression(self) -> bool:
        return self.new - self.old <= -_REGRESSION * self.tries and self.tries > 1


@dataclass(frozen=True, kw_only=True, slots=True)
class VersionComparison:
    """Whole rounds of gate or exam: pass rates, their difference with its interval, and the mean cost of a rollout."""

    tasks: int
    families: int  # that the tasks belong to: so many observations
    rounds: int
    old: float
    new: float
    difference: float
    interval: PassRateDifferenceInterval
    old_tokens: int
    new_tokens: int
    old_steps: float
    new_steps: float
    rows: tuple[TaskPassCounts, ...]

    @property
    def regressions(self) -> tuple[TaskPassCounts, ...]:
        return tuple(row for row in self.rows if row.is_regression)

    @property
    def summary_line(self) -> str:
        families = f" (variants of {self.families})" if self.families < self.tasks else ""
        return (
            f"{100 * self.old:.0f} → {100 * self.new:.0f} of 100 on {format_quantity(self.tasks, 'task')}{families}, "
            f"{format_quantity(self.rounds, 'round')}: {format_difference_in_points(self)} on tasks like these"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class CandidateReport:
    candidate: Candidate
    gate: VersionComparison | None = None  # none before the first whole round
    exam: VersionComparison | None = None
    opened: float | None = None  # the share of rollouts with the candidate that opened the skill
    rollouts: int = 0
    tokens: int = 0
    dollars: float = 0.0


def build_candidate_report(candidate: Candidate, rollouts: Sequence[Rollout]) -> CandidateReport:
    mine = [one for one in rollouts if one.candidate == candidate.id]
    opened = [one.is_opened for one in mine if one.is_counted and one.is_new]
    return CandidateReport(
        candidate=candidate,
        gate=_compare_versions_on_split(mine, TaskSplit.GATE, candidate),
        exam=_compare_versions_on_split(mine, TaskSplit.EXAM, candidate),
        opened=fmean(opened) if opened else None,
        rollouts=len(mine),
        tokens=sum(one.tokens for one in mine),
        dollars=sum(one.dollars for one in mine),
    )


def make_gate_rule(candidate: Candidate) -> GateRule:
    return GateRule(
        tasks=len(candidate.tasks),
        families=len(set(map(get_task_family, candidate.tasks))),
        number=candidate.number,
        claim=candidate.claim,
        rounds=candidate.rounds,
    )


def _compare_versions_on_split(
    rollouts: Sequence[Rollout], side: TaskSplit, candidate: Candidate
) -> VersionComparison | None:
    tasks = (
        candidate.tasks
        if side is TaskSplit.GATE
        else tuple(dict.fromkeys(one.task for one in rollouts if one.side is side))
    )
    pairs = pair_complete_rounds(rollouts, side, tasks)
    if not pairs:
        return None
    tally, rounds = RolloutPairCounts.from_pairs(pairs), len(pairs) // len(tasks)
    old, new = [pair.old for pair in pairs], [pair.new for pair in pairs]
    passed_old, passed_new = (fmean(one.is_ok for one in version) for version in (old, new))
    return VersionComparison(
        tasks=len(tasks),
        families=len(tally.gains),
        rounds=rounds,
        old=passed_old,
        new=passed_new,
        # Of each family alike, as the interval around it.
        difference=fmean(tally.mean_differences_by_family.tolist()),
        interval=compute_pass_rate_difference_interval(tally.mean_differences_by_family.tolist()),
        old_tokens=round(fmean(one.tokens for one in old)),
        new_tokens=round(fmean(one.tokens for one in new)),
        old_steps=fmean(one.steps for one in old),
        new_steps=fmean(one.steps for one in new),
        rows=tuple(
            TaskPassCounts(
                task=task,
                tries=rounds,
                old=_count_passed_rollouts_of_task(old, task),
                new=_count_passed_rollouts_of_task(new, task),
            )
            for task in tasks
        ),
    )


def _count_passed_rollouts_of_task(rollouts: Sequence[Rollout], task: str) -> int:
    return sum(one.is_ok for one in rollouts if one.task == task)


def format_candidate_report(report: CandidateReport) -> list[str]:
    """Return the table of a proposal, in lines."""
    gate, exam, solver = report.gate, report.exam, report.candidate.solver
    lines = [f"{describe_candidate_result(report.candidate)}{f', solved by {solver}' if solver else ''}"]
    if gate is not None:
        tokens = f"{gate.old_tokens:,} → {gate.new_tokens:,} tokens"
        lines.append(f"gate: {gate.summary_line}")
        lines.append(f"cost: {tokens}, {gate.old_steps:.1f} → {gate.new_steps:.1f} steps a task")
        lines += [
            f"task {row.task} passes less often: {row.old} → {row.new} of {row.tries}" for row in gate.regressions
        ]
    return [*lines, f"exam: {exam.summary_line}" if exam is not None else "exam: none, there are too few tasks"]


def describe_candidate_result(candidate: Candidate) -> str:
    """Return what was shown of a candidate, in words: nothing is claimed of one that was refused or not accepted."""
    shorter = candidate.claim is GateHypothesis.NOT_WORSE
    match candidate.state:
        case CandidateState.ACCEPTED if shorter:
            return "shorter, and at 95 % not worse by more than 3 points"
        case CandidateState.ACCEPTED:
            return "better at 95 % on the tasks of its gate, and better on those of its exam"
        case CandidateState.FAILED_EXAM:
            return candidate.reason
        case CandidateState.REFUSED:
            return f"not tried: {candidate.reason}"
        case CandidateState.OPEN:
            return "its gate is not finished"
        case CandidateState.NOT_SHOWN | CandidateState.STOPPED:
            shown = f"not shown to be {'as good' if shorter else 'better'}"
            return f"{shown}: {candidate.reason}" if candidate.reason else shown
        case never:
            assert_never(never)


def format_difference_in_points(found: VersionComparison) -> str:
    """Return a difference with its interval: `+15 points (+2 to +28)`."""
    low, value, high = map(_format_points, (found.interval.low, found.difference, found.interval.high))
    return f"{value} points ({low} to {high})"


def _format_points(share: float) -> str:
    points = round(100 * share)
    return f"−{-points}" if points < 0 else f"+{points}" if points else "0"
