"""Wire improvement runs and trials (`habitus.improve`) to a home: its skills, tasks, store and solvers."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

from habitus.agent.choosing.exposures import make_skill_evidence_item
from habitus.agent.session import generate_turn_or_session_id
from habitus.app.conversations import models
from habitus.app.home import Home, refuse_if_read_only
from habitus.app.learning.improve_store import open_improve_store
from habitus.app.learning.solving import OwnAgentSolver, open_own_agent_in_temporary_home, open_program_solver
from habitus.app.tasks.reviewing import list_unreviewed_foreign_tasks, refuse_unreviewed_foreign_tasks
from habitus.app.tasks.storing import load_tasks
from habitus.errors import Invalid
from habitus.evidence.model import ItemKind
from habitus.files import Tree
from habitus.improve import candidates, trials
from habitus.improve.candidates import CandidateState
from habitus.improve.gate import FEWEST_TASKS, MOST_ROUNDS
from habitus.improve.plan import (
    ImproveRequest,
    ImproveRunForecast,
    estimate_rollout_cost,
    forecast_improve_run,
    list_practice_rollouts,
)
from habitus.improve.prioritizing import (
    SkillProspect,
    estimate_rollouts_per_candidate,
    is_candidate_worth_its_price,
    rank_prospects,
)
from habitus.improve.rollouts import RolloutRunner, TaskSolver
from habitus.improve.run import ImproveResult, ImproveRun, OpenSolver
from habitus.improve.store import SCHEDULED_MARK
from habitus.improve.tasks import SkillWithTasks, choose_splits_for_new_tasks, get_main_text, pick_practice_tasks
from habitus.improve.trials import TrialPlan
from habitus.learning.budget import BudgetedModel, RunBudget, RunLimits
from habitus.learning.detectors.error_signatures import describe_error_signature
from habitus.llm.model import SessionModels
from habitus.memory.model import LessonScope, LessonState
from habitus.skills import trees
from habitus.skills.layers.listing import ListedSkill
from habitus.skills.library import Library
from habitus.skills.model import Skill, SkillState
from habitus.tasks.model import Task, get_task_family
from habitus.tasks.rollouts import TaskSplit

# Rejected candidates that a drafter is told about.
_MAX_TOLD_CANDIDATES = 3
# Remedies that are tried as a step of their skill.
_MAX_REMEDIES = 2
# Versions that are looked at for the last edit of the text.
_MAX_VERSIONS = 10
# How far back uses count for the choice of a skill, and how many rollouts its rate of success is taken from.
_USAGE_DAYS, _RECENT_ROLLOUTS = 30, 200


def load_skill_and_assign_task_splits(home: Home, name: str) -> SkillWithTasks:
    """Read a skill with its tasks; tasks without a split are assigned one permanently."""
    item = home.skills.find(name)
    if item.summary is None or item.state is not SkillState.OK:
        raise Invalid(f"'{item.name}' can't be tried: it is {item.state}.", hint=f"{item.reason or 'Fix it'} first.")
    # Splits must not change between runs, or tasks that a draft has practised with could end up in its gate.
    layer, tree, skill = home.skills.prepare_editable_copy(item)
    waiting = list_unreviewed_foreign_tasks(home, item.name)
    tasks = tuple(task for task in load_tasks(home, item.name) if not task.is_for_tool and task not in waiting)
    store = open_improve_store(home)
    splits = store.load_task_splits(item.name)
    if added := choose_splits_for_new_tasks(tasks, splits, seed=item.name):
        if not home.is_offline:
            store.add_task_splits(item.name, added)
        splits = {**added, **store.load_task_splits(item.name)}
    worn = candidates.find_task_families_at_candidate_limit(store.list_candidates(item.name))
    fresh = [task for task in tasks if get_task_family(task.id) not in worn]
    by_split = {split: tuple(task for task in fresh if splits[task.id] is split) for split in TaskSplit}
    by_split[TaskSplit.PRACTICE] = pick_practice_tasks(by_split[TaskSplit.PRACTICE])
    version = item.summary.version
    return SkillWithTasks(
        item=item,
        layer=layer,
        tree=tree,
        skill=skill,
        version=version,
        tasks=by_split,
        worn_tasks=len(tasks) - len(fresh),
        main_text=get_main_text(tree),
        previous=_read_skill_before_last_text_edit(home.skills, item, tree),
        remedies=_list_remedies_learned_with_skill(home, item),
    )


def _read_skill_before_last_text_edit(skills: Library, item: ListedSkill, tree: Tree) -> tuple[Skill, str] | None:
    """Return the skill before the last edit of its text, with its main file's text; None if there was none."""
    store, now = skills.get_layer(item.layer).store, get_main_text(tree)
    # Tasks that were added made versions, too.
    for version in store.list_versions(item.name, check_disk=False)[-2 : -_MAX_VERSIONS - 2 : -1]:
        before = store.read_tree(item.name, version.number, check_disk=False) or {}
        if (text := get_main_text(before)) != now:
            skill = trees.parse_skill_tree(item.name, before).skill
            return None if skill is None else (skill, text)
    return None


def _list_remedies_learned_with_skill(home: Home, item: ListedSkill) -> tuple[str, ...]:
    """Return what failures in conversations with this skill taught, each as a step with its condition."""
    key = home.skills.get_layer(item.layer).store.key
    turns = {one.use.turn for one in home.journal.load_judged_uses_of_skill(item.name, key)}
    if not turns:
        return ()
    # A private lesson becomes visible to others only if its owner decides so.
    is_shared = home.settings.database is not None
    return tuple(
        f"If it says “{describe_error_signature(lesson.evidence.error_signature)}”: {lesson.text}"
        for lesson in home.memory.list_lessons_taught_by(turns)
        if lesson.state is LessonState.ACTIVE
        and lesson.evidence.error_signature
        and not (is_shared and lesson.scope is LessonScope.USER)
    )[:_MAX_REMEDIES]


def forecast_requested_improvement(home: Home, request: ImproveRequest) -> ImproveRunForecast:
    """Return the plan of an improvement run without starting it."""
    model = request.model or models.resolve_main_and_cheap_model_names(home.settings, os.environ)[0]
    return forecast_improve_run(
        open_improve_store(home), load_skill_and_assign_task_splits(home, request.skill), request, model=model
    )


def list_skills_with_enough_tasks(home: Home) -> list[str]:
    """Return the names of the skills that have enough tasks for a meaningful gate."""
    return [one.name for one in _iterate_improvable_skills(home)]


def _iterate_improvable_skills(home: Home) -> Iterator[SkillWithTasks]:
    for item in home.skills.list_skills():
        if item.summary is not None and item.state is SkillState.OK:
            subject = load_skill_and_assign_task_splits(home, item.name)
            if len(subject.tasks[TaskSplit.GATE]) >= FEWEST_TASKS:
                yield subject


def rank_skills_to_improve(home: Home, draw: random.Random | None = None) -> list[SkillProspect]:
    """Rank the skills by what one more candidate is expected to gain for its rollouts; `draw` samples the unknown.

    Skills whose gate can accept nothing any more are left out.
    """
    store, found = open_improve_store(home), []
    model = models.resolve_main_and_cheap_model_names(home.settings, os.environ)[0]
    since = home.clock() - timedelta(days=_USAGE_DAYS)
    for subject in _iterate_improvable_skills(home):
        plan = forecast_improve_run(store, subject, ImproveRequest(skill=subject.name, candidates=1))
        if not plan.can_run:
            continue
        made = store.list_rollouts(skill=subject.name)
        recent = [one for one in made if one.version == subject.version and not one.is_new and one.is_counted]
        passed = sum(one.is_ok for one in recent[-_RECENT_ROLLOUTS:])
        settled = [one for one in store.list_candidates(subject.name) if one.number]
        uses = home.journal.list_skill_use_times(
            since, (subject.name, home.skills.get_layer(subject.item.layer).store.key)
        )
        each, rollouts = (
            estimate_rollout_cost(store, subject, model=model),
            estimate_rollouts_per_candidate(plan.gate, plan.exam, MOST_ROUNDS),
        )
        found.append(
            SkillProspect(
                skill=subject.name,
                uses_a_day=len(uses) / _USAGE_DAYS,
                passed=passed,
                failed=len(recent[-_RECENT_ROLLOUTS:]) - passed,
                tried=len(settled),
                accepted=sum(one.state is CandidateState.ACCEPTED for one in settled),
                smallest_effect=plan.smallest_effect,
                rollouts=rollouts,
                cents=100 * rollouts * each.dollars,
            )
        )
    return rank_prospects(found, draw)


def list_skills_for_scheduled_improvement(home: Home) -> list[str]:
    """Return the skills that a scheduled run tries, in order: those expected to gain most for their rollouts."""
    ranked = rank_skills_to_improve(home, random.Random())
    return [one.skill for one in ranked if is_candidate_worth_its_price(one, home.settings.success_cents)]


def build_drafter_prompt_from_practice(home: Home, name: str) -> str:
    """Return a skill's text and the results of practice with it, as a prompt for a drafter."""
    if not name:
        raise Invalid("Which skill?", hint="Give its name.")
    subject, store = load_skill_and_assign_task_splits(home, name), open_improve_store(home)
    made = list_practice_rollouts(store, subject)
    tried = [one.why for one in store.list_candidates(subject.name) if one.state is not CandidateState.ACCEPTED]
    tasks = subject.tasks[TaskSplit.PRACTICE]
    told = candidates.describe_practice_for_drafter(subject.skill, tasks, made, tried[-_MAX_TOLD_CANDIDATES:])
    if not made:
        told += f"\n\nNo practice yet. Start with 'habitus skills improve {subject.name}'."
    return home.redact(told)


def list_skills_not_worth_improving(home: Home) -> list[str]:
    """Return the skills whose next candidate is expected to gain less than it costs."""
    ranked = rank_skills_to_improve(home) if home.settings.success_cents else []
    return [one.skill for one in ranked if not is_candidate_worth_its_price(one, home.settings.success_cents)]


async def run_or_resume_skill_improvement(
    home: Home, request: ImproveRequest, *, run: str, is_scheduled: bool = False
) -> ImproveResult:
    """Run an improvement to its end, or continue one that was killed.

    A scheduled run stays within the token budget of the day, and tries nothing that is not worth its price by now.
    """
    refuse_if_read_only(home)
    home.pause.refuse_if_paused()
    await asyncio.to_thread(refuse_unreviewed_foreign_tasks, home, request.skill)
    run = f"{run}{SCHEDULED_MARK}" if is_scheduled else run
    # A continued run must not spend its limits twice, so finished rollouts are deducted.
    paid = await asyncio.to_thread(open_improve_store(home).list_rollouts, run=run)
    # The night's earlier rollouts may have told what this skill's are worth.
    if is_scheduled and not paid and request.skill in await asyncio.to_thread(list_skills_not_worth_improving, home):
        return ImproveResult(skill=request.skill, run=run, stopped="its next candidate costs more than it would gain")
    limits = RunLimits(
        tokens=None if request.tokens is None else max(request.tokens - sum(one.tokens for one in paid), 0),
        dollars=None if request.dollars is None else max(request.dollars - sum(one.dollars for one in paid), 0.0),
        minutes=request.minutes,
    )
    budget = RunBudget(limits, day=home.spending if is_scheduled else None)
    if (drafters := open_drafting_models(home, request)) is None:
        return await open_improve_run(home, request, run, None, budget=budget).execute()
    try:
        return await open_improve_run(home, request, run, budget.wrap_model(drafters.main)).execute()
    finally:
        await drafters.close()


def open_drafting_models(home: Home, request: ImproveRequest) -> SessionModels | None:
    """Return the models that draft, which our own agent also solves with.

    None if a given candidate is solved by a program. A program that solves also drafts if no model is configured.
    """
    if request.model:
        return models.open_session_models_for_name(home.settings, request.model)
    if request.solver and request.has_given_candidate:
        return None
    if request.solver and not models.resolve_main_and_cheap_model_names(home.settings, os.environ)[0]:
        return models.open_session_models_for_name(home.settings, request.solver)
    return home.models


def open_improve_run(
    home: Home,
    request: ImproveRequest,
    run: str,
    model: BudgetedModel | None,
    open_solver: OpenSolver | None = None,
    *,
    budget: RunBudget | None = None,
) -> ImproveRun:
    """Build an improvement run; `model` drafts, and our own agent solves with it."""
    subject = load_skill_and_assign_task_splits(home, request.skill)
    paying = model.budget if model is not None else budget or RunBudget()
    runner = _open_rollout_runner(home, subject, run, paying, parallel=request.parallel)

    def open_default(tree: Tree) -> AbstractAsyncContextManager[TaskSolver]:
        if request.solver:
            return open_program_solver(home, subject.name, tree, request.solver, paying, model)
        return open_own_agent_in_temporary_home(home, subject.name, tree, model)

    return ImproveRun(
        request=request,
        runner=runner,
        review=home.review,
        open_solver=open_solver or open_default,
        drafter=model,
        redactor=home.redactor,
        user=home.settings.author_name,
    )


def _open_rollout_runner(
    home: Home, subject: SkillWithTasks, run: str, budget: RunBudget, *, parallel: int = 1
) -> RolloutRunner:
    return RolloutRunner(open_improve_store(home), subject, run, budget, home.pause.refuse_if_paused, parallel)


def plan_skill_trial(
    home: Home, name: str, cases: Sequence[Task], runs: int, limits: RunLimits | None = None
) -> TrialPlan:
    """Plan a trial of these cases, or of the skill's own tasks, without asking a model.

    Raises `Invalid` if the limits can't pay one conversation.
    """
    if not cases:
        refuse_unreviewed_foreign_tasks(home, name)
    subject = load_skill_and_assign_task_splits(home, name)
    if subject.skill.manifest.disable_model_invocation:
        raise Invalid(f"'{name}' is offered to no model.", hint="Remove disable-model-invocation first.")
    tasks = tuple(cases) or tuple(task for split in TaskSplit for task in subject.tasks[split])
    if not tasks:
        hint = f"Add one with 'habitus tasks add {name}', or --cases FILE."
        raise Invalid(f"'{name}' has no tasks of its own.", hint=hint)
    model = models.resolve_main_and_cheap_model_names(home.settings, os.environ)[0]
    each = estimate_rollout_cost(open_improve_store(home), subject, model=model)
    if problem := each.find_budget_problem(limits or RunLimits()):
        raise Invalid(f"{problem[0].upper()}{problem[1:]}.", hint="Raise the --budget.")
    return TrialPlan(subject=subject, tasks=tasks, runs=runs, likely_tokens=2 * runs * len(tasks) * each.tokens)


def run_planned_skill_trial(home: Home, plan: TrialPlan, model: BudgetedModel) -> AsyncIterator[RolloutRunner]:
    """Run a trial in this home; its outcomes count as evidence."""
    refuse_if_read_only(home)
    name, summary = plan.subject.name, plan.subject.item.summary
    assert summary is not None, "it was opened"
    item = make_skill_evidence_item(summary)
    recipes = [(ItemKind.RECIPE, recipe.name) for recipe in home.recipes.list_recipes() if recipe.skill == name]
    offered = [(item.kind, item.name), (ItemKind.TOOL, name), *recipes]

    async def solver_of(is_offered: bool) -> OwnAgentSolver:
        return OwnAgentSolver(home, model, dict.fromkeys(offered, is_offered))

    runner = _open_rollout_runner(home, plan.subject, generate_turn_or_session_id(), model.budget)
    return trials.run_trial_pair_by_pair(plan, runner, solver_of, model=model.name)
