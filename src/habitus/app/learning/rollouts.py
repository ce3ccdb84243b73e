"""Rollouts: tasks tried round by round, each try in the ledger before anybody is paid for it.

And what a run of `skills improve` would be: the wish, the skill with its tasks by side, and what could be shown.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from habitus.agent.choosing import of_skill
from habitus.agent.session import new_id
from habitus.app.home import Home
from habitus.app.learning.solving import TRIAL, OwnAgent, Solved, Solver
from habitus.app.library.tasks import tasks_of
from habitus.errors import Invalid
from habitus.events import Outcome, OutcomeKind
from habitus.evidence.gate import FEWEST_TASKS, MOST_ROUNDS, Claim, Gate, error_left
from habitus.evidence.model import ItemKind
from habitus.files import Tree
from habitus.learning.budget import Budget, BudgetedModel
from habitus.learning.improve_candidates import Contrast, material
from habitus.learning.improve_ledger import CandidateState, ImproveLedger, KeptRollout, Side, split
from habitus.skills.layers.listing import Listed
from habitus.skills.model import Skill, State
from habitus.tasks.files import read_tasks, rows_of_json, task_of
from habitus.tasks.model import Task
from habitus.text import tokens

SolverOf = Callable[[bool], Awaitable[Solver]]  # of an arm
MOST_REPEATED = 3  # tries of one rollout that was nobody's failure


def by_turns(tasks: Sequence[Task], number: int) -> Iterator[tuple[Task, bool]]:
    """One round of two arms: every task once in each, and whichever was second last time is first."""
    for place, task in enumerate(tasks):
        for arm in (False, True) if (number + place) % 2 else (True, False):
            yield task, arm


async def record_rollout(ledger: ImproveLedger, begun: KeptRollout, solving: Callable[[], Awaitable[Solved]]) -> Solved:
    """One try: begun in the ledger, solved, and finished there with what it came to."""
    await asyncio.to_thread(ledger.begin, begun)
    solved = await solving()
    done = replace(
        begun,
        outcome=solved.outcome.kind.value,
        is_opened=solved.is_opened,
        is_followed=solved.is_followed,
        tokens=solved.usage.input_tokens + solved.usage.output_tokens,
        steps=solved.steps,
        dollars=solved.usage.cost or 0.0,
        record=solved.record,
    )
    await asyncio.to_thread(ledger.finish, done)
    return solved


class Rollouts:
    """The tries of one run with a version of a skill; `stopped` says why no more begin."""

    def __init__(self, home: Home, run: str, subject: Subject, budget: Budget, *, parallel: int = 1) -> None:
        self.ledger = open_ledger(home)
        self.ledger.lose_unfinished(run)
        self.budget = budget
        self.stopped = ""
        self._run = run
        self._subject = subject
        self._pause = home.pause
        self._at_once = asyncio.Semaphore(max(1, parallel))

    @property
    def tries(self) -> list[KeptRollout]:
        return self.ledger.rollouts(run=self._run)

    def stop(self, reason: str) -> None:
        self.stopped = self.stopped or reason

    async def make(
        self, side: Side, number: int, arms: Iterable[tuple[Task, bool]], solver_of: SolverOf, *, candidate: str
    ) -> None:
        """A round: each task by its arm, as many at a time as may be."""
        try:
            async with asyncio.TaskGroup() as together:
                for task, is_new in arms:
                    like = KeptRollout(
                        id="",
                        skill=self._subject.item.name,
                        run=self._run,
                        candidate=candidate,
                        side=side,
                        round=number,
                        task=task.id,
                        is_new=is_new,
                        version=self._subject.version,
                    )
                    together.create_task(self._try(like, task, solver_of))
        except ExceptionGroup as several:
            raise several.exceptions[0] from None

    async def _try(self, like: KeptRollout, task: Task, solver_of: SolverOf) -> None:
        """Until it counts: what was nobody's failure is tried again."""
        async with self._at_once:
            for _ in range(MOST_REPEATED):
                if self.stopped:
                    return
                self._pause.refuse_if_paused()
                outcome = await self._try_once(replace(like, id=secrets.token_hex(8)), task, solver_of)
                if outcome.kind is not OutcomeKind.INFRA:
                    return
                if self.budget.is_reached:
                    self.stop(f"its budget is spent: {self.budget.line}")
            self.stop(f"'{task.id}' could not be tried {MOST_REPEATED} times: {outcome.reason or outcome.kind.value}")

    async def _try_once(self, begun: KeptRollout, task: Task, solver_of: SolverOf) -> Outcome:
        solver = await solver_of(begun.is_new)
        try:
            return (await record_rollout(self.ledger, begun, lambda: solver.solve(task))).outcome
        except BaseException:
            self.stop("it was cut off")  # nobody else begins meanwhile
            raise


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """The skill as it is today, and its tasks by side."""

    item: Listed
    layer: str
    tree: Tree
    skill: Skill
    version: int
    tasks: dict[Side, tuple[Task, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """The runs of a trial, and their likely cost."""

    subject: Subject
    tasks: tuple[Task, ...]
    runs: int
    likely_tokens: int  # of all conversations together

    @property
    def conversations(self) -> int:
        return 2 * len(self.tasks) * self.runs


def read_cases(text: str, *, about: str) -> tuple[Task, ...]:
    """The tasks of a file of theirs, TOML as `evals/tasks.toml` has it or a JSON list of rows such as
    {request, expect}."""
    if not text.lstrip().startswith(("[[", "#")) and not about.endswith(".toml"):
        rows = rows_of_json(text, about=about)
        if not rows:
            raise Invalid(f"{about} has no tasks.", mend="Write some.")
        return tuple(task_of(row, f"case {number} of {about}") for number, row in enumerate(rows, 1))
    return read_tasks(text, about=about)


def prepare(home: Home, name: str, cases: Sequence[Task], runs: int) -> Trial:
    """The cost of a trial, of the skill's own tasks where no cases are given; no model is asked yet."""
    subject = open_subject(home, name)
    if subject.skill.manifest.disable_model_invocation:
        raise Invalid(f"'{name}' is offered to no model.", mend="Take disable-model-invocation away first.")
    tasks = tuple(cases) or tuple(task for side in Side for task in subject.tasks[side])
    if not tasks:
        mend = f"Add one with 'habitus tasks add {name}', or --cases FILE."
        raise Invalid(f"'{name}' has no tasks of its own.", mend=mend)
    each = likely_tokens(open_ledger(home), subject)
    return Trial(subject=subject, tasks=tasks, runs=runs, likely_tokens=2 * runs * len(tasks) * each)


async def run(home: Home, trial: Trial, model: BudgetedModel) -> AsyncIterator[Rollouts]:
    """Pair by pair, the arms in turn, while the budget of the model lasts; what was made so far after every pair."""
    home.refuse_if_read_only()
    name, summary = trial.subject.item.name, trial.subject.item.summary
    assert summary is not None, "it was opened"
    item, rollouts = of_skill(summary), Rollouts(home, new_id(), trial.subject, model.budget)
    recipes = [(ItemKind.RECIPE, recipe.name) for recipe in home.recipes.all() if recipe.skill == name]
    offered = [(item.kind, item.name), (ItemKind.TOOL, name), *recipes]

    async def arm(is_offered: bool) -> OwnAgent:
        return OwnAgent(home, name, model, dict.fromkeys(offered, is_offered))

    for number in range(trial.runs):
        for place, task in enumerate(trial.tasks):
            await rollouts.make(Side.GATE, number, by_turns([task], number + place), arm, candidate=TRIAL)
            yield rollouts
            if rollouts.stopped:
                return


PRACTICE_ROUNDS = 2
_SHOWN = 3  # records of each kind that a draft is made from, of one task
_TOKENS = 6_000  # of a rollout, before any was seen


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """A run as somebody wants it; a job is given it, so a run that was killed finds it again."""

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
class Outlook:
    """The plan of a run and its chance to show anything, before any model is asked."""

    skill: str
    version: int
    practice: int
    gate: int
    exam: int
    tried: int  # candidates so far
    error_left: float  # of what all candidates share
    smallest_effect: float  # that a run shows in about every second case
    missing: int  # gate tasks, until a run can show much
    tasks_missing: int  # of all sides
    most_rollouts: int
    likely_tokens: int

    @property
    def can_run(self) -> bool:
        return self.gate > 0

    @property
    def lines(self) -> list[str]:
        sides = f"{self.practice} to practise, {self.gate} for the gate, {self.exam} for the exam"
        said = [f"'{self.skill}' (version {self.version}) has {self.practice + self.gate + self.exam} tasks: {sides}."]
        if self.missing:
            best = f"a difference of {100 * self.smallest_effect:.0f} points" if self.gate else "nothing"
            said.append(
                f"With {self.gate} gate task{'s' if self.gate != 1 else ''} a run could show {best} at best; "
                f"{FEWEST_TASKS} are the fewest that tell much, {self.missing} are missing, so add about "
                f"{self.tasks_missing} tasks: 'habitus tasks add {self.skill}' or 'habitus tasks mine'."
            )
        else:
            said.append(f"It shows differences of {100 * self.smallest_effect:.0f} points in about every second run.")
        if self.tried:
            left = f"{100 * self.error_left:.0f} % of the risk of a false yes that all changes share is left"
            said.append(f"{self.tried} change{'s' if self.tried != 1 else ''} tried so far; {left}.")
        else:
            said.append("No change was tried yet.")
        return said

    @property
    def cost(self) -> str:
        return f"at most {self.most_rollouts:,} rollouts, about {self.likely_tokens:,} tokens if all were needed"


def open_ledger(home: Home) -> ImproveLedger:
    return ImproveLedger(home.shared, home.clock, home.redact)


def open_subject(home: Home, name: str) -> Subject:
    """Splits the tasks that have no side yet, once for all."""
    item = home.skills.find(name)
    if item.summary is None or item.state is not State.OK:
        raise Invalid(f"'{item.name}' can't be tried: it is {item.state}.", mend=f"{item.reason or 'Mend it'} first.")
    layer, tree, skill = home.skills.own_copy(item)
    tasks = tuple(task for task in tasks_of(home, item.name) if not task.is_for_tool)
    ledger = open_ledger(home)
    sides = ledger.sides(item.name)
    if added := split(tasks, sides, seed=item.name):
        if not home.is_stand_in:
            ledger.keep_sides(item.name, added)
        sides = {**added, **ledger.sides(item.name)}
    by_side = {side: tuple(task for task in tasks if sides[task.id] is side) for side in Side}
    version = item.summary.version
    return Subject(item=item, layer=layer, tree=tree, skill=skill, version=version, tasks=by_side)


def outlook(home: Home, wish: Wish) -> Outlook:
    subject, ledger = open_subject(home, wish.skill), open_ledger(home)
    name, tried = subject.item.name, ledger.candidates(subject.item.name)
    gated = max((one.number for one in tried), default=0)
    practice, gate, exam = (len(subject.tasks[side]) for side in Side)
    count = 1 if wish.is_given else wish.candidates
    rollouts = (0 if wish.is_given else PRACTICE_ROUNDS * practice) + 2 * wish.rounds * (count * gate + exam)
    rule = Gate(tasks=max(gate, 1), number=gated + 1, claim=wish.claim, rounds=wish.rounds)
    missing = max(0, FEWEST_TASKS - gate)
    return Outlook(
        skill=name,
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
        likely_tokens=rollouts * likely_tokens(ledger, subject),
    )


def likely_tokens(ledger: ImproveLedger, subject: Subject) -> int:
    """Tokens of one rollout, by those that were seen."""
    seen = [one.tokens for one in ledger.rollouts(skill=subject.item.name) if one.counts and one.tokens]
    return sum(seen) // len(seen) if seen else _TOKENS + tokens(subject.skill.body)


def skills_with_tasks(home: Home) -> list[str]:
    """The skills that have tasks enough for a gate that shows something."""
    names = [item.name for item in home.skills.listing() if item.summary is not None and item.state is State.OK]
    return [name for name in names if len(open_subject(home, name).tasks[Side.GATE]) >= FEWEST_TASKS]


def practice_rollouts(ledger: ImproveLedger, subject: Subject, solver: str = "") -> list[KeptRollout]:
    """Rollouts of practice with today's version by one solver, whoever's run they were."""
    kept = ledger.rollouts(skill=subject.item.name, side=Side.PRACTICE, candidates=[solver])
    return [one for one in kept if one.version == subject.version and one.counts]


def contrasts(subject: Subject, rollouts: Sequence[KeptRollout]) -> list[Contrast]:
    """Good and bad tries of each practice task, those that failed first."""
    is_never_opened = bool(rollouts) and not any(one.is_opened or one.is_followed for one in rollouts)
    found = []
    for task in subject.tasks[Side.PRACTICE]:
        mine = [one for one in rollouts if one.task == task.id]
        passed, failed = (tuple(one.record for one in mine if one.is_ok is is_ok)[:_SHOWN] for is_ok in (True, False))
        found.append(Contrast(request=task.request, passed=passed, failed=failed, never_opened=is_never_opened))
    return sorted(found, key=lambda one: (not one.failed, not one.passed))


def describe_practice(home: Home, name: str) -> str:
    """A skill for its drafter: its text, and how practice with it went."""
    if not name:
        raise Invalid("Which skill?", mend="Give its name.")
    subject, ledger = open_subject(home, name), open_ledger(home)
    seen = practice_rollouts(ledger, subject)
    tried = [one.why for one in ledger.candidates(subject.item.name) if one.state is not CandidateState.ACCEPTED]
    told = material(subject.skill, contrasts(subject, seen), tried[-_SHOWN:])
    if not seen:
        told += f"\n\nNobody has practised with it yet: 'habitus skills improve {subject.item.name}' does."
    return home.redact(told)
