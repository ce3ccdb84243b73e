"""Rollouts of a run: round by round, both versions by turns, each stored before anybody is paid for it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from habitus.events import OutcomeKind
from habitus.improve.store import ImproveStore
from habitus.improve.tasks import SkillWithTasks
from habitus.learning.budget import RunBudget
from habitus.tasks.leaks import list_answers_of_other_tasks_in_reply
from habitus.tasks.model import Task
from habitus.tasks.rollouts import Rollout, TaskSplit

MOST_REPEATED = 3  # attempts at one rollout that ended as infra


class TaskSolver(Protocol):
    """An agent that solves tasks with one version of a skill."""

    async def solve(self, task: Task, rollout: Rollout) -> Rollout:
        """Return the rollout judged."""
        ...


Solve = Callable[[Task, Rollout], Awaitable[Rollout]]
SolverFactory = Callable[[bool], Awaitable[TaskSolver]]  # of the new version, or of today's


def interleave_versions(tasks: Sequence[Task], number: int) -> Iterator[tuple[Task, bool]]:
    """Yield every task of a round once with each version; the version that was second last time is first."""
    for place, task in enumerate(tasks):
        for is_new in (False, True) if (number + place) % 2 else (True, False):
            yield task, is_new


async def run_and_store_rollout(store: ImproveStore, planned: Rollout, solve: Solve, task: Task) -> Rollout:
    """Make one attempt: stored as begun, solved, and stored as finished."""
    begun = replace(planned, id=secrets.token_hex(8))
    await asyncio.to_thread(store.store_begun_rollout, begun)
    done = await solve(task, begun)
    await asyncio.to_thread(store.store_finished_rollout, done)
    return done


@dataclass
class RolloutRunner:
    """Makes the rollouts of one run; `stopped` says why no more begin."""

    store: ImproveStore
    subject: SkillWithTasks
    run: str
    budget: RunBudget
    refuse_if_paused: Callable[[], None]
    parallel: int = 1
    stopped: str = ""

    def __post_init__(self) -> None:
        self._at_once = asyncio.Semaphore(max(1, self.parallel))
        self.store.mark_lost_rollouts(self.run)

    @property
    def rollouts(self) -> list[Rollout]:
        return self.store.list_rollouts(run=self.run)

    def stop_starting_rollouts(self, reason: str) -> None:
        self.stopped = self.stopped or reason

    async def run_round(
        self,
        side: TaskSplit,
        number: int,
        wanted: Iterable[tuple[Task, bool]],
        solver_of: SolverFactory,
        *,
        candidate: str,
    ) -> None:
        """Solve each task with its version, as many at once as may be."""
        like = Rollout(
            skill=self.subject.name,
            run=self.run,
            side=side,
            round=number,
            task="",
            is_new=False,
            version=self.subject.version,
            candidate=candidate,
        )
        try:
            async with asyncio.TaskGroup() as together:
                for task, is_new in wanted:
                    together.create_task(
                        self._repeat_rollout_until_counted(replace(like, task=task.id, is_new=is_new), task, solver_of)
                    )
        except ExceptionGroup as several:
            raise several.exceptions[0] from None

    async def _solve_task_rejecting_listed_answers(self, solver: TaskSolver, task: Task, rollout: Rollout) -> Rollout:
        """Solve a task; a reply that passes because it names every answer there is has failed."""
        done = await solver.solve(task, rollout)
        others = [other for tasks in self.subject.tasks.values() for other in tasks if other.id != task.id]
        named = list_answers_of_other_tasks_in_reply(done.reply, task, others) if done.is_ok else []
        if not named:
            return done
        reason = f"it names answers of other tasks too ({len(named)}), so it would pass any of them"
        return replace(done, outcome=OutcomeKind.FAILED.value, record=f"{reason}\n{done.solver_actions}")

    async def _repeat_rollout_until_counted(self, planned: Rollout, task: Task, solver_of: SolverFactory) -> None:
        """Repeat until it counts: an infrastructure failure says nothing about either version."""
        async with self._at_once:
            for _ in range(MOST_REPEATED):
                if self.stopped:
                    return
                self.refuse_if_paused()
                solver = await solver_of(planned.is_new)
                try:
                    done = await run_and_store_rollout(
                        self.store, planned, partial(self._solve_task_rejecting_listed_answers, solver), task
                    )
                except BaseException:
                    self.stop_starting_rollouts("it was cut off")  # nobody else begins meanwhile
                    raise
                if not done.is_infra:
                    return
                if self.budget.is_reached:
                    self.stop_starting_rollouts(f"its budget is spent: {self.budget.summary}")
            self.stop_starting_rollouts(
                f"'{task.id}' could not be tried {MOST_REPEATED} times: {done.reason.rstrip('.')}"
            )
