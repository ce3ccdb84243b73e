"""Trials: the same tasks with a skill and without it; how both went is evidence."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from habitus.errors import Invalid
from habitus.improve.rollouts import RolloutRunner, SolverFactory, interleave_versions
from habitus.improve.tasks import SkillWithTasks
from habitus.tasks.files import parse_json_rows, parse_task, parse_tasks_toml
from habitus.tasks.model import Task
from habitus.tasks.rollouts import TaskSplit

TRIAL = "trial"  # the origin of a rollout's conversation, and the source of its outcome


def build_trial_candidate_name(model: str) -> str:
    """Return the candidate of a trial's rollouts on the skill's own tasks: cards count those of one model."""
    return f"{TRIAL}: {model}"


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialPlan:
    """The conversations of a trial, and their likely cost."""

    subject: SkillWithTasks
    tasks: tuple[Task, ...]
    runs: int
    likely_tokens: int  # of all conversations together

    @property
    def conversations(self) -> int:
        return 2 * len(self.tasks) * self.runs


def parse_trial_tasks(text: str, *, about: str) -> tuple[Task, ...]:
    """Read tasks from a file: TOML as in `evals/tasks.toml`, or a JSON list of rows such as {request, expect}."""
    if about.endswith(".toml") or text.lstrip().startswith(("[[", "#")):
        return parse_tasks_toml(text, about=about)
    rows = parse_json_rows(text, about=about)
    if not rows:
        raise Invalid(f"{about} has no tasks.", hint="Write some.")
    return tuple(parse_task(row, f"case {number} of {about}") for number, row in enumerate(rows, 1))


async def run_trial_pair_by_pair(
    plan: TrialPlan, runner: RolloutRunner, solver_of: SolverFactory, *, model: str
) -> AsyncIterator[RolloutRunner]:
    """Yield the runner after every pair, while its budget lasts."""
    own = {task.id: task for tasks in plan.subject.tasks.values() for task in tasks}
    for number in range(plan.runs):
        for place, task in enumerate(plan.tasks):
            pair = interleave_versions([task], number + place)
            # A case of the person's may have the id of a task that it is not.
            candidate = build_trial_candidate_name(model) if own.get(task.id) == task else TRIAL
            await runner.run_round(TaskSplit.GATE, number, pair, solver_of, candidate=candidate)
            yield runner
            if runner.stopped:
                return
