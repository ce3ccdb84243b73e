"""Climbs: draft the next stage of lessons and skills, put the draft to its trial, and propose it.

A lesson becomes a skill, repeated calls become a recipe, and a recipe or steps that were followed with code become
code. Only items that have earned it climb. A draft that fails its trial is not proposed, and the same version does not
try again.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from habitus.agent.history import unpack
from habitus.app.home import Home
from habitus.app.learning import coding
from habitus.app.learning.mining import Mining
from habitus.app.learning.studying import open_models
from habitus.app.learning.verdicts import Due
from habitus.app.library import saving
from habitus.app.library.content import near_duplicates
from habitus.errors import HabitusError, Invalid, Refused
from habitus.evidence.model import ItemKind
from habitus.files import Tree, file_of
from habitus.learning.budget import PATIENCE_S, Budget, BudgetedModel
from habitus.llm.agents import programs_here
from habitus.llm.model import Asked, Message, NoUsableAnswer, ProviderFault, Text
from habitus.memory.model import Engram, LessonState, Scope
from habitus.recipes.catalogue import RecipeStatus, SkillRecipe
from habitus.skills import names, trees
from habitus.skills.choosing import evals
from habitus.skills.choosing.evals import EvalCase, FailedClimbs
from habitus.skills.layers.layer import USER
from habitus.skills.layers.listing import Listed
from habitus.skills.lifecycle import Transition, above
from habitus.skills.model import Actor, Author, Skill, Source, Stage, State
from habitus.skills.review import Action, Change, Proposal, ProposalState
from habitus.tasks.judging import short
from habitus.tasks.model import Task
from habitus.tasks.schema import Json
from habitus.text import one_line
from habitus.tools.model import CouldNotTest, Grounds

# The key under which the details of a proposal name the item that climbed.
_CLIMB = "climb"
# These errors say nothing about the draft itself, so the same version may try again later.
_NOT_ITS_OWN = (CouldNotTest, NoUsableAnswer, ProviderFault, Refused, TimeoutError)
# In words.
_LONGEST_TITLE = 10
# Words that begin a new phrase: a title is cut in front of one, and never ends with one.
_PHRASE_BEGINS = re.compile(
    "after|and|as|at|because|before|but|by|for|from|if|in|into|of|on|or|since|so|that|the|then|to|until|when|where|"
    "which|while|with|without",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Climb:
    """A planned or attempted climb to a stage.

    `problem` says why it was not proposed; `proposal` is the number of its proposal.
    """

    # The id of a lesson, or the address of a skill.
    item: str
    version: int
    to: Stage
    # The skill that gets the stage; empty for a lesson until its skill is drafted.
    skill: str
    why: str
    # The material of the stage, or the text that would be written.
    text: str = ""
    problem: str = ""
    proposal: int | None = None
    # The tokens and cost spent on a model, in words.
    spent: str = ""

    @property
    def is_failed(self) -> bool:
        """Whether the climb was not proposed."""
        return bool(self.problem)


@asynccontextmanager
async def drafting(home: Home, name: str) -> AsyncIterator[BudgetedModel | None]:
    """Open the named model within the token budget of the day; None if no model is named."""
    if not name:
        yield None
        return
    models = open_models(home.settings, home.pause, name)
    try:
        yield Budget(day=home.spending).model(models.main)
    finally:
        await models.close()


class Climbing:
    """Plans climbs, either those due by use or those a person asks for, and runs them."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._failed = FailedClimbs(home.shared, home.clock)

    def due(self, found: Iterable[Due]) -> list[Climb]:
        """Return the climbs that items have earned, without those already proposed or failed at this version."""
        earned = [one for one in found if one.transition is Transition.CLIMB]
        climbs = {(climb.item, climb.to): climb for one in earned if (climb := self._of(one)) is not None}
        return [climb for climb in climbs.values() if not self._is_settled(climb.item, climb.to, climb.version)]

    def _is_settled(self, item: str, to: Stage, version: int) -> bool:
        return (item, to) in self._brought_up or (item, to, version) in self._refused_climbs

    @functools.cached_property
    def _refused_climbs(self) -> Collection[tuple[str, Stage, int]]:
        return self._failed.all().keys()

    @functools.cached_property
    def _proposals(self) -> Sequence[Proposal]:
        found = self._home.review.list(None, with_contents=False)
        return [one for one in found if one.state is not ProposalState.STALE]

    @functools.cached_property
    def _brought_up(self) -> set[tuple[str, str]]:
        told = (one.change.details[_CLIMB] for one in self._proposals if _CLIMB in one.change.details)
        return {(climb["item"], climb["to"]) for climb in told}

    def _of(self, due: Due) -> Climb | None:
        match due.item.kind:
            case ItemKind.LESSON:
                lesson = self._home.memory.get(due.item.name)
                is_private = lesson.scope is Scope.USER and self._home.settings.database is not None
                # A private lesson becomes visible to others only if its owner decides so.
                return None if is_private else _of_lesson(lesson, due.reason)
            case ItemKind.SKILL:
                skill = self._own(due.item.name)
                if skill is None or skill.summary is None or skill.summary.stages != {Stage.STEPS}:
                    # Once a skill has a recipe or code, that stage must earn the next one.
                    return None
                return self._of_skill(skill, due.reason)
            case ItemKind.RECIPE:
                recipe = self._home.recipes.get(due.item.name)
                skill = self._own(f"{recipe.skill}@{recipe.layer}")
                return None if skill is None else self._of_skill(skill, due.reason)
            case ItemKind.TOOL:
                return None

    def lesson(self, id: str) -> Climb:
        """Plan the climb of one active lesson to a skill; `Invalid` if it is archived or not a lesson."""
        lesson = self._home.memory.get(id)
        if not lesson.kind.is_lesson or lesson.state is not LessonState.ACTIVE:
            what = f"a {lesson.kind.value} entry" if not lesson.kind.is_lesson else lesson.state.value
            raise Invalid(f"'{lesson.id}' is {what}.", hint="Only a lesson that is in use becomes a skill.")
        return _of_lesson(lesson, "A person wants it as a skill.")

    def skill(self, name: str, to: Stage | None = None) -> Climb:
        """Plan the climb of one skill to the nearest possible stage; `Invalid` if there is no material for one."""
        item = self._home.skills.find(name)
        skill = self._own(f"{item.name}@{item.layer}")
        if skill is None or skill.summary is None:
            raise Invalid(
                f"'{item.name}' can't climb: it is not yours, or not in use.", hint="Write a copy of it first."
            )
        climb = self._of_skill(skill, "A person wants it.", to=to, is_asked=True)
        if climb is None:
            raise Invalid(
                f"There is nothing to make a higher stage of '{item.name}' of.",
                hint="A recipe takes the same calls in three turns that went well, in two sessions.",
            )
        return climb

    def _own(self, address: str) -> Listed | None:
        """Return a skill of the user's own that is active and writable; None otherwise."""
        item = self._home.skills.find(address)
        if item.summary is None or item.state is not State.OK or item.summary.source is Source.IMPORTED:
            return None
        return item if self._home.skills.layer(item.layer).can_write else None

    def _of_skill(self, skill: Listed, why: str, *, to: Stage | None = None, is_asked: bool = False) -> Climb | None:
        """Plan the climb to the nearest stage that has material; None if there is none or it is settled already."""
        assert skill.summary is not None
        item, version = f"{skill.name}@{skill.layer}", skill.summary.version
        for stage in above(skill.summary.stages):
            if to not in (None, stage):
                continue
            if not is_asked and (self._is_settled(item, stage, version) or self._waits(skill)):
                return None
            if made_of := self._material(skill, stage, is_asked=is_asked):
                return Climb(item=item, version=version, to=stage, skill=skill.name, why=why, text=made_of)
        return None

    def _waits(self, skill: Listed) -> bool:
        """Whether another change of the skill is pending: approving one would make the other stale."""
        where = (skill.name, skill.layer, ProposalState.WAITING)
        return any((one.change.name, one.change.layer, one.state) == where for one in self._proposals)

    def _material(self, skill: Listed, stage: Stage, *, is_asked: bool) -> str:
        """Describe the material for a stage; empty if there is none."""
        if stage is Stage.CHUNKS:
            return next((found.text for found in self._mining.recipes_of(skill.name)), "")
        uses = self._uses(skill, is_asked=is_asked)
        return "" if uses is None or (uses.problem and not is_asked) else uses.evidence

    @functools.cached_property
    def _mining(self) -> Mining:
        mining = Mining(self._home)
        mining.look()
        return mining

    def _uses(self, skill: Listed, *, is_asked: bool = False) -> coding.Uses | None:
        recipe = self._recipe_of(skill)
        if recipe is not None and (uses := coding.of_recipe(self._home, recipe)) is not None:
            return uses
        # Without recorded results nothing can tell a right draft from a wrong one, so a person has to ask for it.
        return coding.of_steps(self._home, skill) if is_asked else None

    def _recipe_of(self, skill: Listed) -> SkillRecipe | None:
        """Return the active recipe of a skill that succeeded most often; None if it has none."""
        mine = [
            one
            for one in self._home.recipes.all()
            if (one.skill, one.layer, one.status) == (skill.name, skill.layer, RecipeStatus.ACTIVE)
        ]
        return max(mine, key=lambda one: (one.counts.succeeded, one.name), default=None)

    async def carry_out(self, climb: Climb, model: BudgetedModel | None) -> Climb:
        """Draft the stage, put it to its trial and propose it. A recipe, or a skill from a lesson, needs no model."""
        author = Author(actor=Actor.JOB, name="climb", reason=climb.why)
        try:
            self._home.allow(author)
            match climb.to:
                case Stage.STEPS:
                    return await self._as_skill(climb, author, model)
                case Stage.CHUNKS:
                    made = self._mining.propose_for(climb.skill, author)
                    return replace(climb, text=made.text, proposal=made.proposal)
                case Stage.CODE:
                    return await self._as_code(climb, author, model)
        # Not the draft's fault, so nothing is noted and a later run tries again.
        except _NOT_ITS_OWN as fault:
            return replace(climb, problem=str(fault) or "the model took too long")
        except HabitusError as error:
            self._failed.note(climb.item, climb.to, climb.version, self._home.redact(str(error)))
            return replace(climb, problem=str(error))

    async def _as_skill(self, climb: Climb, author: Author, model: BudgetedModel | None) -> Climb:
        home, lesson = self._home, self._home.memory.get(climb.item)
        skill = _from_facts(lesson, self._is_taken) if model is None else await self._draft(lesson, model)
        skill = replace(skill, source=Source.AGENT, provenance={"lesson": lesson.id})
        tree = _with_case(trees.with_skill({}, skill), skill, lesson)
        if like := near_duplicates(home.finder, skill.name, tree):
            raise Invalid(f"There is such a skill: {like[0]}.", hint="Put the lesson into that one.")
        rests = f"lesson {lesson.id}, {lesson.source}: {lesson.text}"
        by = "from the facts alone" if model is None else f"by {model.name}"
        reasons = [climb.why, rests, f"drafted {by}", *home.scan(tree)]
        change = Change(action=Action.WRITE, name=skill.name, layer=USER, tree=tree, details=_details(climb))
        made = home.review.propose(change, author, reasons)
        return replace(climb, skill=skill.name, text=skill.body, proposal=made.id)

    async def _draft(self, lesson: Engram, model: BudgetedModel) -> Skill:
        """Draft a skill from the lesson and, if it is still stored, the turn that taught it."""
        facts = Asked(parts=(Text(text=_from_facts(lesson, lambda name: False).body),))
        return await saving.draft(self._home, model, [*self._taught(lesson), facts], lesson.text, patience_s=PATIENCE_S)

    def _taught(self, lesson: Engram) -> Sequence[Message]:
        turn = self._home.journal.brief(lesson.evidence.trace)
        kept = self._home.journal.turn(turn.id).messages if turn is not None else ()
        return [message for one in kept if (message := unpack(one)) is not None]

    def _is_taken(self, name: str) -> bool:
        waiting = {proposal.change.name for proposal in self._home.review.list(with_contents=False)}
        return name in waiting or self._home.skills.is_taken(name)

    async def _as_code(self, climb: Climb, author: Author, model: BudgetedModel | None) -> Climb:
        if model is None:
            name = next((agent.name for agent in programs_here(os.environ)), "provider:model")
            hint = f"Name one: habitus skills climb {climb.skill} --model {name}"
            return replace(climb, problem=f"A model has to draft its code. {hint}")
        uses = self._uses(self._home.skills.find(climb.item), is_asked=True)
        # A climb that a person asked for always has uses, even if they are empty.
        assert uses is not None
        async with self._home.tools:
            cases = await coding.trial_cases(self._home, uses)
            if problem := coding.too_few(cases) if cases else "":
                return replace(climb, problem=problem)
            grounds = Grounds(
                cases=cases,
                recorded=tuple(one.results[-1] for one in uses.recorded),
                reasons=(
                    climb.why,
                    uses.evidence,
                    f"drafted by {model.name}; {_describe_trial(cases, uses.parameters)}",
                ),
                details=_details(climb),
                is_compared=bool(cases),
            )
            made = await coding.draft_and_try(self._home, climb.skill, uses, model, author, grounds)
        return replace(climb, proposal=made.proposal)


def _describe_trial(cases: Sequence[Task], parameters: Json) -> str:
    """Describe the trial of a draft and the results that could not be compared."""
    if not cases:
        return "it was compared with nothing: no use is recorded that it could be held against"
    apart = sorted({path for case in cases if case.expected_result for path in case.expected_result.apart})
    by_shape = sum(case.expected_result is None for case in cases)
    return (
        f"it gave the same results as {len(cases) - by_shape} recorded cases in the sandbox"
        + (f"; not compared: {', '.join(apart)}" if apart else "")
        + (f"; of {by_shape} more only the shape could be compared" if by_shape else "")
        + "".join(f"; {remark}" for remark in _name_untried(cases, parameters))
    )


def _name_untried(cases: Sequence[Task], parameters: Json) -> list[str]:
    """Return remarks on parameters that had one value in all cases: a draft may ignore them and still pass."""
    required = parameters.get("required", ()) if isinstance(parameters, dict) else ()
    found = []
    for name in required:
        values = {short(case.payload[name], 80) for case in cases if name in case.payload}
        if len(values) == 1:
            found.append(f"{name} was always {values.pop()}, so whether it is used was not tried")
    return found


def _details(climb: Climb) -> dict[str, dict[str, str]]:
    return {_CLIMB: {"item": climb.item, "to": climb.to.value}}


def _of_lesson(lesson: Engram, why: str) -> Climb:
    return Climb(item=lesson.id, version=lesson.version, to=Stage.STEPS, skill="", why=why, text=lesson.text)


def _from_facts(lesson: Engram, is_taken: Callable[[str], bool]) -> Skill:
    """Write the lesson as a skill without a model, in the lesson's own words."""
    body = lesson.body
    when, do, instead_of = (
        (body.trigger, body.correct_pattern, body.anti_pattern) if body is not None else ("", lesson.text, "")
    )
    steps = [f"1. {_sentence(do)}", *([f"2. Do not do this instead: {_sentence(instead_of)}"] if instead_of else [])]
    title = _heading(when or do)
    return Skill(
        name=names.unique_name(title, is_taken),
        title=title,
        description=_sentence(lesson.text),
        when_to_use=_sentence(when or lesson.text),
        tags=body.domains if body is not None else (),
        body="\n".join([*([f"{_sentence(when).rstrip('.')}:", ""] if when else []), *steps, ""]),
    )


def _heading(text: str) -> str:
    """Return the first phrase of a text, cut in front of another phrase if it is too long for a title."""
    words = re.split(r"[.,;:!?](?=\s|$)", one_line(text).strip(), maxsplit=1)[0].split()
    if len(words) <= _LONGEST_TITLE:
        return " ".join(words)
    ends = [end for end in range(3, _LONGEST_TITLE + 1) if _PHRASE_BEGINS.fullmatch(words[end])]
    end = ends[-1] if ends else _LONGEST_TITLE
    # A title must not end in "and" or "with".
    while end > 3 and _PHRASE_BEGINS.fullmatch(words[end - 1]):
        end -= 1
    return " ".join(words[:end])


def _sentence(text: str) -> str:
    """Return the text as a sentence with a capital and a full stop; text that may be code keeps its first letter."""
    line = one_line(text).strip()
    line = line if re.search(r"[`_=/\\$(){}<>|]|--", line) else line[:1].upper() + line[1:]
    return line if line.endswith((".", "!", "?")) else f"{line}."


def _with_case(tree: Tree, skill: Skill, lesson: Engram) -> Tree:
    """Return the skill's files with an eval case that the skill must be chosen for.

    `curate` and `skills eval` run it.
    """
    query = lesson.body.trigger if lesson.body is not None else lesson.text
    case = EvalCase(query=query, should_trigger=True)
    return {**tree, evals.FILE: file_of(evals.with_case(tree, skill.name, case))}
