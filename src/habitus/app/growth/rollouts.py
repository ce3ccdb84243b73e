"""Rollouts: tasks tried round by round, each try in the ledger before anybody is paid for it. A run of
`skills improve` and one of `skills trial` differ in their arms alone."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from habitus.agent.offers import of_skill
from habitus.agent.session import new_id
from habitus.app.growth.improvable import Subject, likely_tokens, open_ledger, open_subject
from habitus.app.growth.solving import TRIAL, OwnAgent, Solved, Solver
from habitus.app.home import Home
from habitus.errors import Invalid
from habitus.events import Outcome, OutcomeKind
from habitus.evidence.model import ItemKind
from habitus.learning.budget import Budget, BudgetedModel
from habitus.learning.improve_ledger import ImproveLedger, KeptRollout, Side
from habitus.tasks.files import read_tasks, rows_of_json, task_of
from habitus.tasks.model import Task

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
    def kept(self) -> list[KeptRollout]:
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
class Trial:
    """What is to be run, and what that likely takes."""

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
    """What a trial would take, of the skill's own tasks where no cases are given; no model is asked yet."""
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
