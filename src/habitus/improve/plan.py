"""What a run is asked for, and what it would do, cost and could show, before any model is asked."""

from __future__ import annotations

from dataclasses import dataclass

from habitus.improve.gate import FEWEST_TASKS, MOST_ROUNDS, Claim, Gate, error_left
from habitus.improve.store import ImproveStore
from habitus.improve.tasks import SkillUnderTest
from habitus.tasks.rollouts import Rollout, TaskSplit
from habitus.text import estimate_token_count

PRACTICE_ROUNDS = 2
_TOKENS = 6_000  # of a rollout, before any was seen


@dataclass(frozen=True, kw_only=True, slots=True)
class ImproveRequest:
    """What a run is asked for; a job stores it, so a run that was killed finds it again."""

    skill: str
    candidates: int = 3  # that a model drafts at most
    rounds: int = MOST_ROUNDS
    shorter: bool = False
    text: str = ""  # of a person's candidate: its whole SKILL.md
    proposal: int | None = None
    model: str = ""
    solver: str = ""  # a program of the person's that solves; else our own agent
    tokens: int | None = None
    dollars: float | None = None
    minutes: float | None = None
    parallel: int = 1

    @property
    def claim(self) -> Claim:
        return Claim.NOT_WORSE if self.shorter else Claim.BETTER

    @property
    def is_given(self) -> bool:
        """Whether nobody has to draft a candidate."""
        return bool(self.text) or self.proposal is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPlan:
    """What a run would do and could show, before any model is asked."""

    skill: str
    version: int
    practice: int
    gate: int
    exam: int
    tried: int  # candidates so far
    error_left: float  # of what all candidates share
    smallest_effect: float  # that a run shows in about every second case
    missing: int  # gate tasks, until a run can show much
    tasks_missing: int  # of all splits
    most_rollouts: int
    likely_tokens: int

    @property
    def can_run(self) -> bool:
        return self.gate > 0

    @property
    def lines(self) -> list[str]:
        splits = f"{self.practice} to practise, {self.gate} for the gate, {self.exam} for the exam"
        lines = [
            f"'{self.skill}' (version {self.version}) has {self.practice + self.gate + self.exam} tasks: {splits}."
        ]
        if self.missing:
            best = f"a difference of {100 * self.smallest_effect:.0f} points" if self.gate else "nothing"
            lines.append(
                f"With {self.gate} gate task{'s' if self.gate != 1 else ''} a run could show {best} at best; "
                f"{FEWEST_TASKS} are the fewest that tell much, {self.missing} are missing, so add about "
                f"{self.tasks_missing} tasks: 'habitus tasks add {self.skill}' or 'habitus tasks mine'."
            )
        else:
            lines.append(f"It shows differences of {100 * self.smallest_effect:.0f} points in about every second run.")
        if not self.tried:
            return [*lines, "No change was tried yet."]
        left = f"{100 * self.error_left:.0f} % of the risk of a false yes that all changes share is left"
        return [*lines, f"{self.tried} change{'s' if self.tried != 1 else ''} tried so far; {left}."]

    @property
    def cost(self) -> str:
        return f"at most {self.most_rollouts:,} rollouts, about {self.likely_tokens:,} tokens if all were needed"


def plan_run(store: ImproveStore, subject: SkillUnderTest, request: ImproveRequest) -> RunPlan:
    tried = store.candidates(subject.name)
    gated = max((one.number for one in tried), default=0)
    practice, gate, exam = (len(subject.tasks[split]) for split in TaskSplit)
    count = 1 if request.is_given else request.candidates
    rollouts = (0 if request.is_given else PRACTICE_ROUNDS * practice) + 2 * request.rounds * (count * gate + exam)
    rule = Gate(tasks=max(gate, 1), number=gated + 1, claim=request.claim, rounds=request.rounds)
    missing = max(0, FEWEST_TASKS - gate)
    return RunPlan(
        skill=subject.name,
        version=subject.version,
        practice=practice,
        gate=gate,
        exam=exam,
        tried=len(tried),
        error_left=error_left(gated),
        smallest_effect=rule.smallest_effect,
        missing=missing,
        tasks_missing=2 * missing,
        most_rollouts=rollouts,
        likely_tokens=rollouts * estimate_tokens(store, subject),
    )


def estimate_tokens(store: ImproveStore, subject: SkillUnderTest) -> int:
    """Return the mean tokens of the skill's rollouts so far, or a guess."""
    seen = [one.tokens for one in store.rollouts(skill=subject.name) if one.counts and one.tokens]
    return sum(seen) // len(seen) if seen else _TOKENS + estimate_token_count(subject.skill.body)


def practice_rollouts(store: ImproveStore, subject: SkillUnderTest, solver: str = "") -> list[Rollout]:
    """Return the practice of all runs with today's version by one solver."""
    made = store.rollouts(skill=subject.name, side=TaskSplit.PRACTICE, candidate=solver)
    return [one for one in made if one.version == subject.version and one.counts]
