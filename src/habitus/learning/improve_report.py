"""A candidate by the ledger: both versions side by side on the gate's tasks, and the result of the exam."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from habitus.evidence.gate import Claim, Gate, Interval, Tally, exam_interval
from habitus.learning.improve_ledger import Candidate, KeptRollout, Side, pairs

_REGRESSION = 0.3  # a task that passes less often by so much is named


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskRow:
    """How often one task passed with today's version and with the candidate, of so many tries each."""

    task: str
    tries: int
    old: int
    new: int

    @property
    def is_regression(self) -> bool:
        return self.new - self.old <= -_REGRESSION * self.tries and self.tries > 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """Whole rounds on one side: pass rates, their difference with its interval, and what a try took on average."""

    tasks: int
    rounds: int
    old: float
    new: float
    difference: float
    interval: Interval
    old_tokens: int
    new_tokens: int
    old_steps: float
    new_steps: float
    rows: tuple[TaskRow, ...]

    @property
    def regressions(self) -> tuple[TaskRow, ...]:
        return tuple(row for row in self.rows if row.is_regression)

    @property
    def line(self) -> str:
        return (
            f"{_points(self.old)} → {_points(self.new)} of 100 on {self.tasks} task{'s' if self.tasks != 1 else ''}, "
            f"{self.rounds} tries each: {_points_with_sign(self.difference)} points "
            f"({_points_with_sign(self.interval.low)} to {_points_with_sign(self.interval.high)})"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class CandidateReport:
    candidate: Candidate
    gate: Compared | None = None  # none before the first whole round
    exam: Compared | None = None
    opened: float | None = None  # the share of its gate's rollouts with the candidate that opened the skill
    rollouts: int = 0
    tokens: int = 0
    dollars: float = 0.0


def gate_of(candidate: Candidate) -> Gate:
    return Gate(tasks=len(candidate.tasks), number=candidate.number, claim=candidate.claim, rounds=candidate.rounds)


def report_on(candidate: Candidate, rollouts: Sequence[KeptRollout]) -> CandidateReport:
    mine = [one for one in rollouts if one.candidate == candidate.id]
    opened = [one.is_opened for one in mine if one.counts and one.is_new]
    gate, exam = _compare_side(mine, Side.GATE, candidate), _compare_side(mine, Side.EXAM, candidate)
    return CandidateReport(
        candidate=candidate,
        gate=gate,
        exam=exam,
        opened=fmean(opened) if opened else None,
        rollouts=len(mine),
        tokens=sum(one.tokens for one in mine),
        dollars=sum(one.dollars for one in mine),
    )


def tally_of(rollouts: Sequence[KeptRollout], side: Side, tasks: Sequence[str]) -> Tally:
    return Tally.of(pair for one in pairs(rollouts, side, tasks) for pair in one)


def _compare_side(rollouts: Sequence[KeptRollout], side: Side, candidate: Candidate) -> Compared | None:
    tasks = candidate.tasks if side is Side.GATE else tuple({one.task: None for one in rollouts if one.side is side})
    rounds = pairs(rollouts, side, tasks)
    if not rounds:
        return None
    tally = Tally.of(pair for one in rounds for pair in one)
    arms = {
        is_new: [one for one in rollouts if one.side is side and one.counts and one.is_new is is_new]
        for is_new in (False, True)
    }
    passed = Counter[tuple[str, bool]]()
    for one in rounds:
        for task, (old, new) in zip(tasks, one, strict=True):
            passed[task, False] += old
            passed[task, True] += new
    old, new = (sum(passed[task, is_new] for task in tasks) / tally.pairs for is_new in (False, True))
    return Compared(
        tasks=len(tasks),
        rounds=len(rounds),
        old=old,
        new=new,
        difference=new - old,
        interval=gate_of(candidate).interval(tally) if side is Side.GATE else exam_interval(tally),
        old_tokens=round(fmean(one.tokens for one in arms[False])),
        new_tokens=round(fmean(one.tokens for one in arms[True])),
        old_steps=fmean(one.steps for one in arms[False]),
        new_steps=fmean(one.steps for one in arms[True]),
        rows=tuple(
            TaskRow(task=task, tries=len(rounds), old=passed[task, False], new=passed[task, True]) for task in tasks
        ),
    )


def table_of(report: CandidateReport) -> list[str]:
    """The table of a proposal, in lines."""
    solver = report.candidate.solver
    found = [f"{summary_of(report)}{f', solved by {solver}' if solver else ''}"]
    if report.gate is not None:
        found.append(f"gate: {report.gate.line}")
        found.append(
            f"cost: {report.gate.old_tokens:,} → {report.gate.new_tokens:,} tokens, "
            f"{report.gate.old_steps:.1f} → {report.gate.new_steps:.1f} steps a task"
        )
        found += [
            f"task {row.task} passes less often: {row.old} → {row.new} of {row.tries}"
            for row in report.gate.regressions
        ]
    found.append(f"exam: {report.exam.line}" if report.exam is not None else "exam: none, there are too few tasks")
    return found


def summary_of(report: CandidateReport) -> str:
    match report.candidate.claim:
        case Claim.BETTER:
            return "better at 95 % on the tasks of its gate"
        case Claim.NOT_WORSE:
            return "shorter, and at 95 % not worse by more than 3 points on the tasks of its gate"


def _points(share: float) -> str:
    return f"{100 * share:.0f}"


def _points_with_sign(share: float) -> str:
    points = round(100 * share)
    return f"−{-points}" if points < 0 else f"+{points}" if points else "0"
