"""Trials: rollouts with a skill and without it, both arms kept as randomised exposures with their outcomes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from habitus.agent.conversation import new_id
from habitus.agent.offers import of_skill
from habitus.app.growth.improvable import Subject, likely_tokens, open_ledger, open_subject
from habitus.app.growth.rollouts import Rollouts, by_turns
from habitus.app.growth.solving import TRIAL, OwnAgent
from habitus.app.home import Home
from habitus.errors import Invalid
from habitus.evidence.model import ItemKind
from habitus.learning.budget import BudgetedModel
from habitus.learning.improve.split import Side
from habitus.tasks.files import read_tasks, rows_of_json, task_of
from habitus.tasks.model import Task


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
