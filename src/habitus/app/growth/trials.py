"""Trials: the same requests with a skill and without it, both arms kept as randomised exposures with their outcomes."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from habitus.agent.consent import nobody
from habitus.agent.conversation import new_id
from habitus.agent.offers import of_skill
from habitus.app.conversations.sessions import open_conversation, open_session
from habitus.app.growth.learning import open_learner
from habitus.errors import Invalid
from habitus.events import Outcome, OutcomeKind
from habitus.evidence.assignment import Fixed
from habitus.evidence.model import ItemKind
from habitus.learning.budget import BudgetedModel
from habitus.llm.model import Model, Usage
from habitus.skills import evals
from habitus.skills.library import Library
from habitus.skills.model import State, Summary
from habitus.skills.selection import Request
from habitus.text import tokens

if TYPE_CHECKING:
    from habitus.app.home import Home

TRIAL = "trial"  # the source of a trial's outcomes, and how its requests come
_FORM = 'Write [{"request": "…", "expect": "a part of a good answer"}].'


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialCase:
    """A request, and what its answer must say: all of `expect`, whatever the case of its letters, and the pattern."""

    request: str
    expect: tuple[str, ...] = ()
    matches: str = ""

    def is_met_by(self, reply: str) -> bool:
        said = " ".join(reply.casefold().split())
        has_all = all(" ".join(part.casefold().split()) in said for part in self.expect)
        return has_all and (not self.matches or re.search(self.matches, reply) is not None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """What is to be run, and what that takes at least."""

    skill: Summary
    cases: tuple[TrialCase, ...]
    runs: int
    model: str
    prompt_tokens: int  # of all conversations together, if each has one answer

    @property
    def conversations(self) -> int:
        return 2 * len(self.cases) * self.runs


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialRun:
    """One conversation of a trial. What was nobody's mistake counts for neither arm."""

    case: TrialCase
    is_offered: bool
    outcome: OutcomeKind
    session: str
    usage: Usage = field(default_factory=Usage)


def read_cases(text: str, *, about: str) -> tuple[TrialCase, ...]:
    """A list of {request, expect} or {request, matches}; `expect` is a text or a list of them, `matches` a pattern."""
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{about} is not JSON: {error}.", mend=_FORM) from None
    if not isinstance(rows, list) or not rows:
        raise Invalid(f"{about} has no list of cases.", mend=_FORM)
    return tuple(_case(row, f"case {number} of {about}") for number, row in enumerate(rows, 1))


def _case(row: Any, about: str) -> TrialCase:
    given = row if isinstance(row, dict) else {}
    request, expect, matches = (given.get(key) for key in ("request", "expect", "matches"))
    parts = [expect] if isinstance(expect, str) else expect or []
    if not isinstance(request, str) or not request.strip():
        raise Invalid(f"There is no 'request' in {about}.", mend=_FORM)
    if not isinstance(parts, list) or not all(isinstance(part, str) and part.strip() for part in parts):
        raise Invalid(f"'expect' of {about} is no text and no list of texts.", mend=_FORM)
    if not parts and not (isinstance(matches, str) and matches):
        raise Invalid(f"Nobody could say how {about} went: it has no 'expect' and no 'matches'.", mend=_FORM)
    try:
        re.compile(str(matches or ""))
    except re.error as error:
        raise Invalid(f"'matches' of {about} is no pattern: {error}.", mend="Correct it, or use 'expect'.") from None
    return TrialCase(request=request, expect=tuple(parts), matches=str(matches or ""))


async def prepare(home: Home, name: str, cases: Sequence[TrialCase], runs: int, model: Model) -> Trial:
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


def own_cases(skills: Library, name: str) -> tuple[TrialCase, ...]:
    """The cases that a skill carries beside it, of those that say what is expected."""
    file = skills.tree(name).get(evals.FILE)
    if file is None or file.content is None:
        raise Invalid(f"'{name}' has no cases of its own.", mend="Give some with --cases FILE.")
    try:
        rows = json.loads(file.content)
    except (ValueError, RecursionError):
        rows = None
    told = [row for row in rows if isinstance(row, dict) and (row.get("expect") or row.get("matches"))] if rows else []
    if not told:
        raise Invalid(f"No case of '{name}' says what is expected.", mend="Give some with --cases FILE.")
    named = [{"request": row.get("query") or row.get("prompt"), **row} for row in told]
    return read_cases(json.dumps(named), about=f"{evals.FILE} of '{name}'")


async def run(home: Home, trial: Trial, model: BudgetedModel) -> AsyncIterator[TrialRun]:
    """One conversation after another, pair by pair, the arms in turn, while the budget of the model lasts; each is
    judged and kept at once."""
    home.refuse_if_read_only()
    for number, (_, case) in enumerate(itertools.product(range(trial.runs), trial.cases)):
        for is_offered in (True, False) if number % 2 else (False, True):
            yield await _converse(home, trial.skill, case, is_offered, model)
            if model.budget.is_reached:
                return


async def _converse(home: Home, skill: Summary, case: TrialCase, is_offered: bool, model: Model) -> TrialRun:
    user = home.user()
    keeper = home.open_memory(user=user.name)
    item = of_skill(skill)
    recipes = [(ItemKind.RECIPE, recipe.name) for recipe in home.recipes.all() if recipe.skill == skill.name]
    fixed: Fixed = dict.fromkeys([(item.kind, item.name), (ItemKind.TOOL, skill.name), *recipes], is_offered)
    session = open_session(
        home,
        model,
        id=None,
        resume=False,
        user=user,
        source_type=TRIAL,
        ask=nobody,
        observers=(),
        cheap=None,
        learner=open_learner(home, keeper, None, learns=False),
        read=(),
        fixed=fixed,
    )
    async with session:
        done = await session.turn(case.request)
        went = _went(done.outcome, case.is_met_by(done.reply))
        session.judge(went, turn=done.turn, source=TRIAL)
    return TrialRun(case=case, is_offered=is_offered, outcome=went, session=session.id, usage=done.usage)


def _went(outcome: Outcome, is_met: bool) -> OutcomeKind:
    if outcome.kind is OutcomeKind.INFRA:
        return OutcomeKind.INFRA
    return OutcomeKind.OK if is_met else OutcomeKind.FAILED
