"""Trials: the same requests with a skill and without it, both arms kept as randomised exposures with their outcomes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from habitus.agent.conversation import new_id
from habitus.agent.offers import of_skill
from habitus.app.conversations.sessions import open_conversation
from habitus.app.growth.learning import open_learner
from habitus.app.growth.solving import by_turns, solve
from habitus.app.library.tasks import tasks_of
from habitus.errors import Invalid
from habitus.events import OutcomeKind
from habitus.evidence.assignment import Fixed
from habitus.evidence.model import ItemKind
from habitus.learning.budget import BudgetedModel
from habitus.llm.model import Model, Usage
from habitus.skills.model import State, Summary
from habitus.skills.selection import Request
from habitus.tasks.files import read_tasks, rows_of_json, task_of
from habitus.tasks.model import Task
from habitus.text import tokens

if TYPE_CHECKING:
    from habitus.app.home import Home

TRIAL = "trial"  # the source of a trial's outcomes, and how its requests come


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """What is to be run, and what that takes at least."""

    skill: Summary
    cases: tuple[Task, ...]
    runs: int
    model: str
    prompt_tokens: int  # of all conversations together, if each has one answer

    @property
    def conversations(self) -> int:
        return 2 * len(self.cases) * self.runs


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialRun:
    """One conversation of a trial. What was nobody's mistake counts for neither arm."""

    task: Task
    is_offered: bool
    outcome: OutcomeKind
    session: str
    usage: Usage = field(default_factory=Usage)


def read_cases(text: str, *, about: str) -> tuple[Task, ...]:
    """The tasks of a file of theirs, TOML as `evals/tasks.toml` has it or a JSON list of rows such as
    {request, expect}."""
    if not text.lstrip().startswith(("[[", "#")) and not about.endswith(".toml"):
        rows = rows_of_json(text, about=about)
        if not rows:
            raise Invalid(f"{about} has no tasks.", mend="Write some.")
        return tuple(task_of(row, f"case {number} of {about}") for number, row in enumerate(rows, 1))
    return read_tasks(text, about=about)


def own_tasks(home: Home, name: str) -> tuple[Task, ...]:
    """The tasks of a skill that an agent can be asked."""
    if found := tuple(task for task in tasks_of(home, name) if not task.is_for_tool):
        return found
    raise Invalid(
        f"'{name}' has no tasks of its own.", mend=f"Add one with 'habitus tasks add {name}', or --cases FILE."
    )


async def prepare(home: Home, name: str, cases: Sequence[Task], runs: int, model: Model) -> Trial:
    """What a trial would take; no model is asked yet."""
    item = home.skills.find(name)
    if item.summary is None or item.state is not State.OK:
        raise Invalid(f"'{item.name}' can't be tried: it is {item.state}.", mend=f"{item.reason or 'Mend it'} first.")
    if item.summary.manifest.disable_model_invocation:
        raise Invalid(f"'{item.name}' is offered to no model.", mend="Take disable-model-invocation away first.")
    asked = await _prompt_tokens(home) * len(cases) + sum(tokens(case.request) for case in cases)
    return Trial(skill=item.summary, cases=tuple(cases), runs=runs, model=model.name, prompt_tokens=2 * runs * asked)


async def _prompt_tokens(home: Home) -> int:
    """What every conversation begins with: the system prompt and the tools."""
    user, learner = home.user(), open_learner(home, home.memory, None, learns=False)
    conversation = open_conversation(home, home.tools, id=new_id(), user=user, source_type=TRIAL, learner=learner)
    specs = conversation.parts.tools.registry(Request(text="", user=user)).specs()
    told = sum(section.tokens for section in conversation.sections())
    await conversation.close()
    return told + sum(spec.tokens for spec in specs)


async def run(home: Home, trial: Trial, model: BudgetedModel) -> AsyncIterator[TrialRun]:
    """One conversation after another, pair by pair, the arms in turn, while the budget of the model lasts; each is
    judged and kept at once."""
    home.refuse_if_read_only()
    for number in range(trial.runs):
        for task, is_offered in by_turns(trial.cases, number + 1):
            yield await _converse(home, trial.skill, task, is_offered, model)
            if model.budget.is_reached:
                return


async def _converse(home: Home, skill: Summary, task: Task, is_offered: bool, model: BudgetedModel) -> TrialRun:
    item = of_skill(skill)
    recipes = [(ItemKind.RECIPE, recipe.name) for recipe in home.recipes.all() if recipe.skill == skill.name]
    fixed: Fixed = dict.fromkeys([(item.kind, item.name), (ItemKind.TOOL, skill.name), *recipes], is_offered)
    solved = await solve(home, task, model, source_type=TRIAL, fixed=fixed, is_kept=True)
    return TrialRun(
        task=task,
        is_offered=is_offered,
        outcome=solved.outcome.kind,
        session=solved.session,
        usage=solved.usage,
    )
