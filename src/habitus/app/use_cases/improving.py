"""Improving skills: start a run, list its candidates with the results of gate and exam, climb to the next stage."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Annotated

from habitus.access import Access
from habitus.app.conversations.models import require_model_program_access
from habitus.app.home import Home
from habitus.app.learning.climbing import ClimbPlannerAndRunner, StageClimbPlanOrResult, open_budgeted_climb_model
from habitus.app.learning.comparing import (
    DEFAULT_SHARE,
    ComparisonReport,
    list_comparison_reports,
    start_requested_comparison,
    stop_comparison,
)
from habitus.app.learning.improve_store import open_improve_store
from habitus.app.learning.improving import (
    forecast_requested_improvement,
    list_skills_not_worth_improving,
    rank_skills_to_improve,
)
from habitus.app.operating import job_kinds, jobs
from habitus.app.tasks.reviewing import refuse_unreviewed_foreign_tasks
from habitus.app.use_cases.declaration import MAX_TEXT_CHARS, AttemptId, SkillName, argument, option, use_case
from habitus.errors import InvalidOptions
from habitus.evidence.versions import LiveComparison
from habitus.improve.gate import MOST_ROUNDS
from habitus.improve.plan import ImproveRequest, ImproveRunForecast
from habitus.improve.prioritizing import SkillProspect
from habitus.improve.report import CandidateReport, build_candidate_report
from habitus.jobs.model import Job
from habitus.learning.budget import RunLimits
from habitus.llm.agents.solvers import find_solver_program
from habitus.skills.model import Stage

MAX_CANDIDATES = 20


@dataclass(frozen=True, kw_only=True)
class StartImprovementRequest:
    name: SkillName
    text: Annotated[
        str,
        option(
            "Your own candidate: the complete SKILL.md (on the command line, its file).",
            "--candidate",
            longest=MAX_TEXT_CHARS,
        ),
    ] = ""
    proposal: Annotated[int | None, option("Test this pending proposal.", least=1)] = None
    shorter: Annotated[bool, option("Look for a shorter version that is not worse.")] = False
    candidates: Annotated[
        int, option("Maximum number of candidates the model drafts.", "-n", least=1, most=MAX_CANDIDATES)
    ] = 3
    rounds: Annotated[int, option("Maximum rollouts per task and version.", least=1, most=100)] = MOST_ROUNDS
    budget: Annotated[str, option("Limit in tokens (500k), dollars ($5) or minutes (30m).")] = ""
    model: Annotated[
        str, option("The model that drafts and solves, as provider:model; default is the model in the settings.", "-m")
    ] = ""
    solver: Annotated[
        str, option("A program that solves the tasks, such as claude-code; default is the built-in agent.")
    ] = ""
    parallel: Annotated[int, option("Concurrent rollouts.", least=1, most=32)] = 1
    id: AttemptId = ""

    @property
    def improve_request(self) -> ImproveRequest:
        """Return the run's request with its parsed budget. Raises `InvalidOptions` if it has two candidates."""
        if self.text and self.proposal is not None:
            raise InvalidOptions("Give a candidate or a proposal, not both.")
        limits = RunLimits.parse(self.budget)
        same = ("text", "proposal", "shorter", "candidates", "rounds", "model", "solver", "parallel")
        return ImproveRequest(skill=self.name, **asdict(limits), **{field: getattr(self, field) for field in same})


@use_case(
    "",
    route="POST /skills/{name}/improvements",
    access=Access.ADMIN,
    example={"name": "csv-summary", "budget": "$5"},
    undo="jobs cancel",
    status=201,
    accepts_idempotency_key=True,
)
def start_improvement(home: Home, request: StartImprovementRequest) -> Job:
    """Queue a run for a worker: small changes to a skill, gated against today's version on its tasks."""
    improve_request = request.improve_request
    if improve_request.solver:
        find_solver_program(improve_request.solver)
        home.host.programs.require_access(improve_request.solver)
    require_model_program_access(home.host, improve_request.model)
    refuse_unreviewed_foreign_tasks(home, request.name)
    # An impossible run should fail here, while the caller is watching, not in the worker.
    forecast_requested_improvement(home, improve_request).raise_if_run_cannot_start()
    queue = jobs.open_job_queue(home)
    return queue.get(job_kinds.add_job(home.settings, queue, "improve", asdict(improve_request), id=request.id))


@dataclass(frozen=True, kw_only=True)
class ListImprovementsResult:
    plan: ImproveRunForecast
    candidates: Sequence[CandidateReport]


@use_case(
    "skills improvements",
    route="GET /skills/{name}/improvements",
    access=Access.OPEN_READING,
    example={"name": "csv-summary"},
)
def list_improvements(home: Home, name: SkillName) -> ListImprovementsResult:
    """List the candidates tried for a skill with the results of gate and exam, and what a run could show."""
    store, plan = open_improve_store(home), forecast_requested_improvement(home, ImproveRequest(skill=name))
    rollouts = store.list_rollouts(skill=plan.skill)
    return ListImprovementsResult(
        plan=plan, candidates=[build_candidate_report(one, rollouts) for one in store.list_candidates(plan.skill)]
    )


@use_case(
    "skills compare",
    route="POST /skills/{name}/comparison",
    access=Access.ADMIN,
    example={"name": "csv-summary", "share": 0.2},
    undo="skills compare --stop",
)
def compare_versions(
    home: Home,
    name: SkillName,
    share: Annotated[
        float, option("The share of conversations that get the version before.", least=0.01, most=0.5)
    ] = DEFAULT_SHARE,
    stop: Annotated[bool, option("End the running comparison.")] = False,
) -> LiveComparison:
    """Compare a skill's current version in use with the one before; an approved improvement is compared by itself."""
    return stop_comparison(home, name) if stop else start_requested_comparison(home, name, share)


@dataclass(frozen=True, kw_only=True)
class ListComparisonsResult:
    # The share for approved improvements; 0 is off.
    share: float
    comparisons: Sequence[ComparisonReport]


@use_case("skills comparisons", route="GET /comparisons", access=Access.OPEN_READING)
def list_comparisons(
    home: Home, name: Annotated[str | None, argument("One skill; all by default.", completes="skills")] = None
) -> ListComparisonsResult:
    """List the changes that are, or were, compared in use with the version before them, and what that shows."""
    skill = home.skills.find(name).name if name is not None else ""
    return ListComparisonsResult(
        share=home.settings.evidence.compare_versions, comparisons=list_comparison_reports(home, skill)
    )


@dataclass(frozen=True, kw_only=True)
class PlanImprovementsResult:
    # Cents that one more success is worth; 0 spends the daily tokens.
    success_cents: float
    ranking: Sequence[SkillProspect]
    # Those that a scheduled run leaves out, because they are expected to gain less than they cost.
    left_out: Sequence[str]


@use_case("", route="GET /improvements/plan", access=Access.OPEN_READING)
def plan_improvements(home: Home) -> PlanImprovementsResult:
    """Rank the skills that have enough tasks by what one more candidate is expected to gain, and say why.

    A scheduled run tries them in about this order: what is not known is drawn at random, so that a skill of which
    little is known gets its turn.
    """
    return PlanImprovementsResult(
        success_cents=home.settings.success_cents,
        ranking=rank_skills_to_improve(home),
        left_out=list_skills_not_worth_improving(home),
    )


class ClimbTargetStage(StrEnum):
    RECIPE = "recipe"
    CODE = "code"


DraftingModel = Annotated[str, option("Let provider:model draft it.")]
ClimbDryRun = Annotated[bool, option("Only show what it would be made of.")]


@use_case(
    "skills climb",
    access=Access.ADMIN,
    example={"name": "csv-summary", "to": ClimbTargetStage.CODE, "model": "openai:gpt-5-mini"},
)
def climb_skill(
    home: Home,
    name: SkillName,
    to: Annotated[ClimbTargetStage | None, option("Target stage; default is the next possible one.")] = None,
    model: DraftingModel = "",
    dry_run: ClimbDryRun = False,
) -> StageClimbPlanOrResult:
    """Take a skill to its next stage: a recipe from its past uses, or code that passes its trial."""
    climbing = ClimbPlannerAndRunner(home)
    stages = {None: None, ClimbTargetStage.RECIPE: Stage.CHUNKS, ClimbTargetStage.CODE: Stage.CODE}
    return _run_climb_unless_dry_run(home, climbing, climbing.plan_skill_climb(name, stages[to]), model, dry_run)


@use_case("lessons promote", access=Access.ADMIN, example={"id": "k3fa9c1d"})
def promote_lesson(
    home: Home,
    id: Annotated[str, argument("A lesson.", completes="lessons")],
    model: DraftingModel = "",
    dry_run: ClimbDryRun = False,
) -> StageClimbPlanOrResult:
    """Turn a lesson into a skill, drafted by a model or, without one, from the facts."""
    climbing = ClimbPlannerAndRunner(home)
    return _run_climb_unless_dry_run(home, climbing, climbing.plan_climb_of_lesson_to_skill(id), model, dry_run)


def _run_climb_unless_dry_run(
    home: Home, climbing: ClimbPlannerAndRunner, found: StageClimbPlanOrResult, model: str, dry_run: bool
) -> StageClimbPlanOrResult:
    async def carry_out() -> StageClimbPlanOrResult:
        async with open_budgeted_climb_model(home, model) as drafter:
            done = await climbing.draft_and_propose_climb(found, drafter)
        return replace(done, spent=drafter.budget.summary) if drafter is not None else done

    return found if dry_run else asyncio.run(carry_out())
