"""The request of a run, and its plan: what it would do, cost and could show, before any model is asked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean

from habitus.errors import Invalid
from habitus.improve.candidates import count_gated_candidates
from habitus.improve.gate import FEWEST_TASKS, MOST_ROUNDS, GateHypothesis, GateRule, compute_remaining_error_share
from habitus.improve.store import ImproveStore
from habitus.improve.tasks import SkillWithTasks
from habitus.learning.budget import RunLimits, compute_usage_price
from habitus.llm.model import TokenUsage
from habitus.tasks.model import get_task_family
from habitus.tasks.rollouts import Rollout, TaskSplit
from habitus.text import estimate_tokens, format_quantity

PRACTICE_ROUNDS = 2
_OWN_TOKENS = 800  # of a rollout by our own agent beyond the skill's text, before any was measured
_PROGRAM_TOKENS = 21_000  # of one by a program such as Claude Code, whose own prompt is long
_PROGRAM_DOLLARS = 0.02  # that one costs at least, at the price of a small model
_OWN_MINUTES, _PROGRAM_MINUTES = 0.02, 0.25  # that one lasts at least


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
    def claim(self) -> GateHypothesis:
        return GateHypothesis.NOT_WORSE if self.shorter else GateHypothesis.BETTER

    @property
    def has_given_candidate(self) -> bool:
        """Whether nobody has to draft a candidate."""
        return bool(self.text) or self.proposal is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class MeanRolloutCost:
    """The mean cost of one rollout; `measured` is the number of rollouts behind it, 0 for a guess."""

    tokens: int
    dollars: float = 0.0
    minutes: float = 0.0  # from one to the next
    measured: int = 0

    def find_budget_problem(self, limits: RunLimits) -> str:
        """Return why a budget can't pay one rollout; empty if it can."""
        for limit, cost, form in (
            (limits.tokens, self.tokens, "{:,} tokens"),
            (limits.dollars, self.dollars, "${:.3f}"),
            (limits.minutes, self.minutes, "{:.2g} minutes"),
        ):
            if limit is not None and limit < cost:
                return f"a budget of {form.format(limit)} can't pay one rollout, which takes about {form.format(cost)}"
        return ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImproveRunForecast:
    """What a run would do and could show, before any model is asked; `problem` says why it can't begin."""

    skill: str
    version: int
    practice: int
    gate: int
    gate_families: int  # that the gate's tasks belong to: variants of one task count once
    exam: int
    tried: int  # candidates so far
    error_left: float  # of what all candidates on these tasks share
    smallest_effect: float  # that a run shows in about every second case
    fewest_gained: int  # tasks that must gain, if a solver always answers alike
    missing: int  # gate tasks, until a run can show much
    tasks_missing: int  # of all splits
    tasks_to_shorten: int  # gate tasks, to show that a shorter version is not worse
    most_rollouts: int
    likely_tokens: int
    measured: int = 0  # rollouts of this solver behind the estimate; 0 for a guess
    problem: str = ""
    hint: str = ""  # what to do about the problem

    @property
    def can_run(self) -> bool:
        return not self.problem

    def raise_if_run_cannot_start(self) -> None:
        if self.problem:
            raise Invalid(f"{self.problem[0].upper()}{self.problem[1:]}.", hint=self.hint)

    @property
    def lines(self) -> list[str]:
        splits = f"{self.practice} to practise, {self.gate} for the gate, {self.exam} for the exam"
        lines = [
            f"'{self.skill}' (version {self.version}) has {self.practice + self.gate + self.exam} tasks: {splits}."
        ]
        if self.missing:
            is_possible = self.can_run and self.gate_families >= self.fewest_gained
            best = f"a difference of {100 * self.smallest_effect:.0f} points" if is_possible else "nothing"
            lines.append(
                f"With {format_quantity(self.gate_families, 'gate task')}{self._gate_variants_text} a run "
                f"could show {best} at "
                f"best; {self.gate_families + self.missing} are the fewest that tell much, {self.missing} are missing, "
                f"so add about {self.tasks_missing} tasks: 'habitus tasks mine', or 'habitus tasks draft {self.skill}' "
                "if nobody asked for it yet."
            )
        else:
            lines.append(
                f"It shows differences of {100 * self.smallest_effect:.0f} points in about every second run; of a "
                f"solver that always answers alike, {self.fewest_gained} tasks must gain."
            )
        if self.tasks_to_shorten > self.gate_families:
            lines.append(
                "That it is not worse without the sentences that no accepted run used takes "
                f"{self.tasks_to_shorten} gate tasks; below, none is taken away by rule."
            )
        if not self.tried:
            return [*lines, "No change was tried yet."]
        left = f"{100 * self.error_left:.0f} % of the risk of a false yes that all changes share is left"
        return [*lines, f"{format_quantity(self.tried, 'change')} tried so far; {left}."]

    @property
    def _gate_variants_text(self) -> str:
        varied = self.gate - self.gate_families
        return f" and {format_quantity(varied, 'variant')} of them" if varied else ""

    @property
    def cost_text(self) -> str:
        basis = (
            f"by {format_quantity(self.measured, 'measured rollout')}"
            if self.measured
            else "a guess, none was measured"
        )
        most = f"at most {self.most_rollouts:,} rollouts"
        return f"{most}, about {self.likely_tokens:,} tokens if all were needed ({basis})"


def forecast_improve_run(
    store: ImproveStore, subject: SkillWithTasks, request: ImproveRequest, *, model: str = ""
) -> ImproveRunForecast:
    """Plan a run; `model` is what our own agent solves with, whose price is known before a rollout is."""
    candidates = store.list_candidates(subject.name)
    gated = count_gated_candidates(candidates, [task.id for task in subject.tasks[TaskSplit.GATE]])
    practice, gate, exam = (len(subject.tasks[split]) for split in TaskSplit)
    count = 1 if request.has_given_candidate else request.candidates
    rollouts = (0 if request.has_given_candidate else PRACTICE_ROUNDS * practice) + 2 * request.rounds * (
        count * gate + exam
    )
    families = len({get_task_family(task.id) for task in subject.tasks[TaskSplit.GATE]})
    rule = GateRule(tasks=max(gate, 1), families=families, number=gated + 1, claim=request.claim, rounds=request.rounds)
    missing = max(0, max(FEWEST_TASKS, rule.fewest_tasks) - families)
    each = estimate_rollout_cost(store, subject, request.solver, model=model)
    problem, hint = _find_reason_not_to_run(subject, request, rule, each)
    return ImproveRunForecast(
        skill=subject.name,
        version=subject.version,
        practice=practice,
        gate=gate,
        gate_families=families,
        exam=exam,
        tried=len(candidates),
        error_left=compute_remaining_error_share(gated),
        smallest_effect=rule.smallest_effect,
        fewest_gained=rule.fewest_tasks,
        missing=missing,
        tasks_missing=2 * missing,
        tasks_to_shorten=replace(rule, claim=GateHypothesis.NOT_WORSE).fewest_tasks,
        most_rollouts=rollouts,
        likely_tokens=rollouts * each.tokens,
        measured=each.measured,
        problem=problem,
        hint=hint,
    )


def _find_reason_not_to_run(
    subject: SkillWithTasks, request: ImproveRequest, rule: GateRule, each: MeanRolloutCost
) -> tuple[str, str]:
    """Return why a run must not begin, because nothing could come of it, and what to do; both empty if it may."""
    get_tasks = f"'habitus tasks mine', or 'habitus tasks draft {subject.name}' if nobody asked for it yet."
    if not subject.tasks[TaskSplit.GATE]:
        if subject.worn_tasks:
            problem = f"'{subject.name}' has no task for a gate that has not judged its last candidate"
            return problem, f"Add tasks that no candidate was tried on: {get_tasks}"
        return f"'{subject.name}' has no task for a gate", f"Get tasks: {get_tasks}"
    # With too few tasks to show that a change is better, a person may still want to see one round.
    if rule.problem and (rule.claim is GateHypothesis.NOT_WORSE or not rule.allowed_error):
        return f"'{subject.name}' can't be improved with these tasks: {rule.problem}", f"Add new tasks: {get_tasks}"
    limits = RunLimits(tokens=request.tokens, dollars=request.dollars, minutes=request.minutes)
    problem = each.find_budget_problem(limits)
    return problem, "Raise the --budget." if problem else ""


def estimate_rollout_cost(
    store: ImproveStore, subject: SkillWithTasks, solver: str = "", *, model: str = ""
) -> MeanRolloutCost:
    """Return the mean cost of this solver's rollouts, of this skill if it has any, else of all; or a guess."""
    for skill in (subject.name, ""):
        if made := store.list_rollouts_with_known_usage(solver, skill=skill):
            mean = round(fmean(one.tokens for one in made))
            paid = fmean(one.dollars for one in made) or _compute_dollars_for_tokens(mean, model)
            minutes = store.measure_minutes_between_rollouts({one.run for one in made})
            return MeanRolloutCost(tokens=mean, dollars=paid, minutes=minutes, measured=len(made))
    if solver:
        return MeanRolloutCost(tokens=_PROGRAM_TOKENS, dollars=_PROGRAM_DOLLARS, minutes=_PROGRAM_MINUTES)
    guess = _OWN_TOKENS + estimate_tokens(subject.skill.body)
    return MeanRolloutCost(tokens=guess, dollars=_compute_dollars_for_tokens(guess, model), minutes=_OWN_MINUTES)


def _compute_dollars_for_tokens(tokens: int, model: str) -> float:
    return (compute_usage_price(TokenUsage(input_tokens=tokens), model) or 0.0) if model else 0.0


def list_practice_rollouts(store: ImproveStore, subject: SkillWithTasks, solver: str = "") -> list[Rollout]:
    """Return the practice of all runs with today's version by one solver."""
    made = store.list_rollouts(skill=subject.name, side=TaskSplit.PRACTICE, candidate=solver)
    return [one for one in made if one.version == subject.version and one.is_counted]
