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

from habitus.agent.history import decode_journal_message
from habitus.app.home import Home, refuse_change_if_unwritable_or_paused
from habitus.app.learning import code_drafting
from habitus.app.learning.due_transitions import DueLifecycleTransition
from habitus.app.learning.mining import RepeatedProcedureFinder
from habitus.app.learning.studying import open_named_model_for_learning
from habitus.app.library import saving
from habitus.app.library.content import describe_near_duplicates
from habitus.errors import HabitusError, Invalid, Refused
from habitus.evidence.model import ItemKind
from habitus.files import Tree, build_tree_file
from habitus.learning.budget import DEFAULT_PATIENCE_S, BudgetedModel, RunBudget
from habitus.llm.agents import list_installed_programs
from habitus.llm.model import ChatMessage, PersonMessage, ProviderError, TextContent, UnusableAnswerError
from habitus.memory.model import Engram, LessonScope, LessonState
from habitus.recipes.catalogue import RecipeStatus, SkillRecipe
from habitus.skills import names, trees
from habitus.skills.choosing import evals
from habitus.skills.choosing.evals import FailedStageTrialStore, TriggerEvalCase
from habitus.skills.layers.layer import USER_LAYER
from habitus.skills.layers.listing import ListedSkill
from habitus.skills.lifecycle import LifecycleTransitionKind, list_higher_stages
from habitus.skills.model import ActorKind, Author, Skill, SkillSource, SkillState, Stage
from habitus.skills.review import Proposal, ProposalAction, ProposalState, SkillChange
from habitus.tasks.judging import shorten_value
from habitus.tasks.model import Task
from habitus.tasks.schema import Json
from habitus.text import clean_to_one_line
from habitus.tools.model import ToolNotTestableError, ToolProposalEvidence

# The key under which the details of a proposal name the item that climbed.
_CLIMB = "climb"
# These errors say nothing about the draft itself, so the same version may try again later.
_TRANSIENT_ERRORS = (ToolNotTestableError, UnusableAnswerError, ProviderError, Refused, TimeoutError)
# In words.
_MAX_TITLE_WORDS = 10
# Words that begin a new phrase: a title is cut in front of one, and never ends with one.
_PHRASE_STARTERS = re.compile(
    "after|and|as|at|because|before|but|by|for|from|if|in|into|of|on|or|since|so|that|the|then|to|until|when|where|"
    "which|while|with|without",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class StageClimbPlanOrResult:
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
async def open_budgeted_climb_model(home: Home, model_name: str) -> AsyncIterator[BudgetedModel | None]:
    """Open the named model within the token budget of the day; None if no model is named."""
    if not model_name:
        yield None
        return
    models = open_named_model_for_learning(home.settings, home.pause, model_name)
    try:
        yield RunBudget(day=home.spending).wrap_model(models.main)
    finally:
        await models.close()


class ClimbPlannerAndRunner:
    """Plans climbs, either those due by use or those a person asks for, and runs them."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._failed = FailedStageTrialStore(home.shared, home.clock)

    def plan_due_climbs(self, transitions: Iterable[DueLifecycleTransition]) -> list[StageClimbPlanOrResult]:
        """Return the climbs that items have earned, without those already proposed or failed at this version."""
        earned = [one for one in transitions if one.transition is LifecycleTransitionKind.CLIMB]
        climbs = {
            (climb.item, climb.to): climb
            for one in earned
            if (climb := self._plan_climb_for_transition(one)) is not None
        }
        return [
            climb
            for climb in climbs.values()
            if not self._is_climb_proposed_or_failed(climb.item, climb.to, climb.version)
        ]

    def _is_climb_proposed_or_failed(self, item: str, to: Stage, version: int) -> bool:
        return (item, to) in self._proposed_climb_keys or (item, to, version) in self._failed_climb_keys

    @functools.cached_property
    def _failed_climb_keys(self) -> Collection[tuple[str, Stage, int]]:
        return self._failed.list_all_failure_reasons().keys()

    @functools.cached_property
    def _proposals_that_are_not_stale(self) -> Sequence[Proposal]:
        found = self._home.review.list_proposals_by_state(None, with_contents=False)
        return [one for one in found if one.state is not ProposalState.STALE]

    @functools.cached_property
    def _proposed_climb_keys(self) -> set[tuple[str, str]]:
        told = (
            one.change.details[_CLIMB] for one in self._proposals_that_are_not_stale if _CLIMB in one.change.details
        )
        return {(climb["item"], climb["to"]) for climb in told}

    def _plan_climb_for_transition(self, due: DueLifecycleTransition) -> StageClimbPlanOrResult | None:
        match due.item.kind:
            case ItemKind.LESSON:
                lesson = self._home.memory.get(due.item.name)
                is_private = lesson.scope is LessonScope.USER and self._home.settings.database is not None
                # A private lesson becomes visible to others only if its owner decides so.
                return None if is_private else _build_lesson_climb_plan(lesson, due.reason)
            case ItemKind.SKILL:
                skill = self._find_own_writable_skill(due.item.name)
                if skill is None or skill.summary is None or skill.summary.stages != {Stage.STEPS}:
                    # Once a skill has a recipe or code, that stage must earn the next one.
                    return None
                return self._plan_climb_to_nearest_stage(skill, due.reason)
            case ItemKind.RECIPE:
                recipe = self._home.recipes.get(due.item.name)
                skill = self._find_own_writable_skill(f"{recipe.skill}@{recipe.layer}")
                return None if skill is None else self._plan_climb_to_nearest_stage(skill, due.reason)
            case ItemKind.TOOL | ItemKind.CHANGE:
                return None

    def plan_climb_of_lesson_to_skill(self, id: str) -> StageClimbPlanOrResult:
        """Plan the climb of one active lesson to a skill; `Invalid` if it is archived or not a lesson."""
        lesson = self._home.memory.get(id)
        if not lesson.kind.is_lesson or lesson.state is not LessonState.ACTIVE:
            what = f"a {lesson.kind.value} entry" if not lesson.kind.is_lesson else lesson.state.value
            raise Invalid(f"'{lesson.id}' is {what}.", hint="Only a lesson that is in use becomes a skill.")
        return _build_lesson_climb_plan(lesson, "A person wants it as a skill.")

    def plan_skill_climb(self, name: str, to: Stage | None = None) -> StageClimbPlanOrResult:
        """Plan the climb of one skill to the nearest possible stage; `Invalid` if there is no material for one."""
        item = self._home.skills.find(name)
        skill = self._find_own_writable_skill(f"{item.name}@{item.layer}")
        if skill is None or skill.summary is None:
            raise Invalid(
                f"'{item.name}' can't climb: it is not yours, or not in use.", hint="Write a copy of it first."
            )
        climb = self._plan_climb_to_nearest_stage(skill, "A person wants it.", to=to, is_asked=True)
        if climb is None:
            raise Invalid(
                f"There is nothing to make a higher stage of '{item.name}' of.",
                hint="A recipe requires the same calls in three successful turns of two sessions.",
            )
        return climb

    def _find_own_writable_skill(self, address: str) -> ListedSkill | None:
        """Return a skill of the user's own that is active and writable; None otherwise."""
        item = self._home.skills.find(address)
        if item.summary is None or item.state is not SkillState.OK or item.summary.source is SkillSource.IMPORTED:
            return None
        return item if self._home.skills.get_layer(item.layer).can_write else None

    def _plan_climb_to_nearest_stage(
        self, skill: ListedSkill, why: str, *, to: Stage | None = None, is_asked: bool = False
    ) -> StageClimbPlanOrResult | None:
        """Plan the climb to the nearest stage that has material; None if there is none or it is settled already."""
        assert skill.summary is not None
        item, version = f"{skill.name}@{skill.layer}", skill.summary.version
        for stage in list_higher_stages(skill.summary.stages):
            if to not in (None, stage):
                continue
            if not is_asked and (
                self._is_climb_proposed_or_failed(item, stage, version) or self._has_skill_pending_change(skill)
            ):
                return None
            if made_of := self._describe_stage_material(skill, stage, is_asked=is_asked):
                return StageClimbPlanOrResult(
                    item=item, version=version, to=stage, skill=skill.name, why=why, text=made_of
                )
        return None

    def _has_skill_pending_change(self, skill: ListedSkill) -> bool:
        """Whether another change of the skill is pending: approving one would make the other stale."""
        where = (skill.name, skill.layer, ProposalState.PENDING)
        return any(
            (one.change.name, one.change.layer, one.state) == where for one in self._proposals_that_are_not_stale
        )

    def _describe_stage_material(self, skill: ListedSkill, stage: Stage, *, is_asked: bool) -> str:
        """Describe the material for a stage; empty if there is none."""
        if stage is Stage.CHUNKS:
            return next(
                (found.text for found in self._procedure_finder.list_recipe_suggestions_for_skill(skill.name)), ""
            )
        uses = self._collect_coding_material(skill, is_asked=is_asked)
        return "" if uses is None or (uses.insufficiency_reason and not is_asked) else uses.evidence

    @functools.cached_property
    def _procedure_finder(self) -> RepeatedProcedureFinder:
        mining = RepeatedProcedureFinder(self._home)
        mining.collect_suggestion_drafts()
        return mining

    def _collect_coding_material(
        self, skill: ListedSkill, *, is_asked: bool = False
    ) -> code_drafting.CodeDraftMaterial | None:
        recipe = self._find_most_successful_recipe(skill)
        if recipe is not None and (uses := code_drafting.collect_material_from_recipe(self._home, recipe)) is not None:
            return uses
        # Without recorded results nothing can tell a right draft from a wrong one, so a person has to ask for it.
        return code_drafting.collect_material_from_steps(self._home, skill) if is_asked else None

    def _find_most_successful_recipe(self, skill: ListedSkill) -> SkillRecipe | None:
        """Return the active recipe of a skill that succeeded most often; None if it has none."""
        mine = [
            one
            for one in self._home.recipes.list_recipes()
            if (one.skill, one.layer, one.status) == (skill.name, skill.layer, RecipeStatus.ACTIVE)
        ]
        return max(mine, key=lambda one: (one.counts.succeeded, one.name), default=None)

    async def draft_and_propose_climb(
        self, climb: StageClimbPlanOrResult, model: BudgetedModel | None
    ) -> StageClimbPlanOrResult:
        """Draft the stage, put it to its trial and propose it. A recipe, or a skill from a lesson, needs no model."""
        author = Author(actor=ActorKind.JOB, name="climb", reason=climb.why)
        try:
            refuse_change_if_unwritable_or_paused(self._home, author)
            match climb.to:
                case Stage.STEPS:
                    return await self._propose_skill_from_lesson(climb, author, model)
                case Stage.CHUNKS:
                    made = self._procedure_finder.propose_first_recipe_for_skill(climb.skill, author)
                    return replace(climb, text=made.text, proposal=made.proposal)
                case Stage.CODE:
                    return await self._propose_code_for_skill(climb, author, model)
        # Not the draft's fault, so nothing is noted and a later run tries again.
        except _TRANSIENT_ERRORS as fault:
            return replace(climb, problem=str(fault) or "the model took too long")
        except HabitusError as error:
            self._failed.record_failure(climb.item, climb.to, climb.version, self._home.redact(str(error)))
            return replace(climb, problem=str(error))

    async def _propose_skill_from_lesson(
        self, climb: StageClimbPlanOrResult, author: Author, model: BudgetedModel | None
    ) -> StageClimbPlanOrResult:
        home, lesson = self._home, self._home.memory.get(climb.item)
        skill = (
            _build_skill_from_lesson(lesson, self._is_skill_name_used_or_pending)
            if model is None
            else await self._draft_skill_from_lesson(lesson, model)
        )
        skill = replace(skill, source=SkillSource.AGENT, provenance={"lesson": lesson.id})
        tree = _add_trigger_eval_case(trees.update_main_file({}, skill), skill, lesson)
        if like := describe_near_duplicates(home.finder, skill.name, tree):
            raise Invalid(f"A similar skill exists: {like[0]}.", hint="Add the lesson to it.")
        rests = f"lesson {lesson.id}, {lesson.source}: {lesson.text}"
        by = "from the facts alone" if model is None else f"by {model.name}"
        reasons = [climb.why, rests, f"drafted {by}", *home.scan_tree(tree)]
        change = SkillChange(
            action=ProposalAction.WRITE,
            name=skill.name,
            layer=USER_LAYER,
            tree=tree,
            details=_make_climb_proposal_details(climb),
        )
        made = home.review.propose(change, author, reasons)
        return replace(climb, skill=skill.name, text=skill.body, proposal=made.id)

    async def _draft_skill_from_lesson(self, lesson: Engram, model: BudgetedModel) -> Skill:
        """Draft a skill from the lesson and, if it is still stored, the turn that taught it."""
        facts = PersonMessage(parts=(TextContent(text=_build_skill_from_lesson(lesson, lambda name: False).body),))
        return await saving.draft_skill_from_messages(
            self._home,
            model,
            [*self._read_messages_that_taught_lesson(lesson), facts],
            lesson.text,
            timeout_s=DEFAULT_PATIENCE_S,
        )

    def _read_messages_that_taught_lesson(self, lesson: Engram) -> Sequence[ChatMessage]:
        turn = self._home.journal.find_brief_turn(lesson.evidence.trace)
        kept = self._home.journal.get_turn(turn.id).messages if turn is not None else ()
        return [message for one in kept if (message := decode_journal_message(one)) is not None]

    def _is_skill_name_used_or_pending(self, name: str) -> bool:
        waiting = {proposal.change.name for proposal in self._home.review.list_proposals_by_state(with_contents=False)}
        return name in waiting or self._home.skills.is_name_taken(name)

    async def _propose_code_for_skill(
        self, climb: StageClimbPlanOrResult, author: Author, model: BudgetedModel | None
    ) -> StageClimbPlanOrResult:
        if model is None:
            name = next((agent.name for agent in list_installed_programs(os.environ)), "provider:model")
            hint = f"Name one: habitus skills climb {climb.skill} --model {name}"
            return replace(climb, problem=f"A model has to draft its code. {hint}")
        uses = self._collect_coding_material(self._home.skills.find(climb.item), is_asked=True)
        # A climb that a person asked for always has uses, even if they are empty.
        assert uses is not None
        async with self._home.tools:
            cases = await code_drafting.make_trial_cases_from_recorded_inputs(self._home, uses)
            if problem := code_drafting.explain_too_few_trial_cases(cases) if cases else "":
                return replace(climb, problem=problem)
            grounds = ToolProposalEvidence(
                cases=cases,
                recorded=tuple(one.results[-1] for one in uses.recorded),
                reasons=(
                    climb.why,
                    uses.evidence,
                    f"drafted by {model.name}; {_describe_code_draft_trial(cases, uses.parameters)}",
                ),
                details=_make_climb_proposal_details(climb),
                is_compared=bool(cases),
            )
            made = await code_drafting.draft_and_propose_code(self._home, climb.skill, uses, model, author, grounds)
        return replace(climb, proposal=made.proposal)


def _describe_code_draft_trial(cases: Sequence[Task], parameters: Json) -> str:
    """Describe the trial of a draft and the results that could not be compared."""
    if not cases:
        return "it was not compared: there is no recorded use to compare it with"
    apart = sorted({path for case in cases if case.expected_result for path in case.expected_result.apart})
    by_shape = sum(case.expected_result is None for case in cases)
    return (
        f"it gave the same results as {len(cases) - by_shape} recorded cases in the sandbox"
        + (f"; not compared: {', '.join(apart)}" if apart else "")
        + (f"; of {by_shape} more only the shape could be compared" if by_shape else "")
        + "".join(f"; {remark}" for remark in _list_remarks_on_constant_parameters(cases, parameters))
    )


def _list_remarks_on_constant_parameters(cases: Sequence[Task], parameters: Json) -> list[str]:
    """Return remarks on parameters that had one value in all cases: a draft may ignore them and still pass."""
    required = parameters.get("required", ()) if isinstance(parameters, dict) else ()
    found = []
    for name in required:
        values = {shorten_value(case.payload[name], 80) for case in cases if name in case.payload}
        if len(values) == 1:
            found.append(f"{name} was always {values.pop()}, so whether it is used was not tried")
    return found


def _make_climb_proposal_details(climb: StageClimbPlanOrResult) -> dict[str, dict[str, str]]:
    return {_CLIMB: {"item": climb.item, "to": climb.to.value}}


def _build_lesson_climb_plan(lesson: Engram, why: str) -> StageClimbPlanOrResult:
    return StageClimbPlanOrResult(
        item=lesson.id, version=lesson.version, to=Stage.STEPS, skill="", why=why, text=lesson.text
    )


def _build_skill_from_lesson(lesson: Engram, is_taken: Callable[[str], bool]) -> Skill:
    """Write the lesson as a skill without a model, in the lesson's own words."""
    body = lesson.body
    when, do, instead_of = (
        (body.trigger, body.correct_pattern, body.anti_pattern) if body is not None else ("", lesson.text, "")
    )
    steps = [
        f"1. {_format_as_sentence(do)}",
        *([f"2. Do not do this instead: {_format_as_sentence(instead_of)}"] if instead_of else []),
    ]
    title = _shorten_text_to_skill_title(when or do)
    return Skill(
        name=names.make_unique_name(title, is_taken),
        title=title,
        description=_format_as_sentence(lesson.text),
        when_to_use=_format_as_sentence(when or lesson.text),
        tags=body.domains if body is not None else (),
        body="\n".join([*([f"{_format_as_sentence(when).rstrip('.')}:", ""] if when else []), *steps, ""]),
    )


def _shorten_text_to_skill_title(text: str) -> str:
    """Return the first phrase of a text, cut in front of another phrase if it is too long for a title."""
    words = re.split(r"[.,;:!?](?=\s|$)", clean_to_one_line(text).strip(), maxsplit=1)[0].split()
    if len(words) <= _MAX_TITLE_WORDS:
        return " ".join(words)
    ends = [end for end in range(3, _MAX_TITLE_WORDS + 1) if _PHRASE_STARTERS.fullmatch(words[end])]
    end = ends[-1] if ends else _MAX_TITLE_WORDS
    # A title must not end in "and" or "with".
    while end > 3 and _PHRASE_STARTERS.fullmatch(words[end - 1]):
        end -= 1
    return " ".join(words[:end])


def _format_as_sentence(text: str) -> str:
    """Return the text as a sentence with a capital and a full stop; text that may be code keeps its first letter."""
    line = clean_to_one_line(text).strip()
    line = line if re.search(r"[`_=/\\$(){}<>|]|--", line) else line[:1].upper() + line[1:]
    return line if line.endswith((".", "!", "?")) else f"{line}."


def _add_trigger_eval_case(tree: Tree, skill: Skill, lesson: Engram) -> Tree:
    """Return the skill's files with an eval case that the skill must be chosen for.

    `curate` and `skills eval` run it.
    """
    query = lesson.body.trigger if lesson.body is not None else lesson.text
    case = TriggerEvalCase(query=query, should_trigger=True)
    return {**tree, evals.EVALS_FILE: build_tree_file(evals.render_eval_file_with_case(tree, skill.name, case))}
