"""Improving skills: start a run, list its candidates with the results of gate and exam, climb to the next stage."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from habitus.access import Access
from habitus.app.conversations.models import require_model_program
from habitus.app.home import Home
from habitus.app.learning.climbing import ClimbRunner, StageClimb, open_drafter
from habitus.app.learning.improving import open_improve_store, preview_run
from habitus.app.operating import job_kinds, jobs
from habitus.app.use_cases.declaration import MAX_TEXT_CHARS, argument, attempt_id_field, option, use_case
from habitus.app.use_cases.skills import skill_name_argument
from habitus.errors import ConflictingOptions, Invalid
from habitus.improve.gate import MOST_ROUNDS
from habitus.improve.plan import ImproveRequest, RunPlan
from habitus.improve.report import CandidateReport, build_report
from habitus.improve.run import HOW_TO_RUN
from habitus.jobs.model import Job
from habitus.learning.budget import RunLimits
from habitus.llm.agents.solvers import find_solver
from habitus.skills.model import Stage

MAX_CANDIDATES = 20


@dataclass(frozen=True, kw_only=True)
class StartImprovementRequest:
    name: str = skill_name_argument()
    text: str = option(
        "Your own candidate: the complete SKILL.md (on the command line, its file).",
        "--candidate",
        default="",
        longest=MAX_TEXT_CHARS,
    )
    proposal: int | None = option("Test this pending proposal.", least=1)
    shorter: bool = option("Look for a shorter version that is not worse.", default=False)
    candidates: int = option(
        "Maximum number of candidates the model drafts.", "-n", default=3, least=1, most=MAX_CANDIDATES
    )
    rounds: int = option("Maximum rollouts per task and version.", default=MOST_ROUNDS, least=1, most=100)
    budget: str = option("Limit in tokens (500k), dollars ($5) or minutes (30m).", default="")
    model: str = option(
        "The model that drafts and solves, as provider:model; default is the model in the settings.", "-m", default=""
    )
    solver: str = option(
        "A program that solves the tasks, such as claude-code; default is the built-in agent.", default=""
    )
    parallel: int = option("Concurrent rollouts.", default=1, least=1, most=32)
    id: str = attempt_id_field()

    @property
    def run_request(self) -> ImproveRequest:
        """Return the run's request with its parsed budget. Raises `Misused` if it has two candidates."""
        if self.text and self.proposal is not None:
            raise ConflictingOptions("Give a candidate or a proposal, not both.")
        limits = RunLimits.parse(self.budget)
        same = ("text", "proposal", "shorter", "candidates", "rounds", "model", "solver", "parallel")
        return ImproveRequest(skill=self.name, **asdict(limits), **{field: getattr(self, field) for field in same})


@use_case(
    "",
    route="POST /skills/{name}/improvements",
    access=Access.ADMIN,
    example=StartImprovementRequest(name="csv-summary", budget="$5"),
    undo="jobs cancel",
    status=201,
    accepts_idempotency_key=True,
)
def start_improvement(home: Home, request: StartImprovementRequest) -> Job:
    """Queue a run for a worker: small changes to a skill, gated against today's version on its tasks."""
    run_request = request.run_request
    if run_request.solver:
        find_solver(run_request.solver)
        home.host.programs.require(run_request.solver)
    require_model_program(home.host, run_request.model)
    # An impossible run should fail here, while the caller is watching, not in the worker.
    if problem := preview_run(home, run_request).problem:
        raise Invalid(f"{problem[0].upper()}{problem[1:]}.", hint=HOW_TO_RUN.format(name=run_request.skill))
    queue = jobs.open_queue(home)
    return queue.get(job_kinds.add_job(home.settings, queue, "improve", asdict(run_request), id=request.id))


@dataclass(frozen=True, kw_only=True)
class ListImprovementsRequest:
    name: str = skill_name_argument()


@dataclass(frozen=True, kw_only=True)
class ListImprovementsResult:
    plan: RunPlan
    candidates: Sequence[CandidateReport]


@use_case(
    "skills improvements",
    route="GET /skills/{name}/improvements",
    access=Access.OPEN_READING,
    example=ListImprovementsRequest(name="csv-summary"),
)
def list_improvements(home: Home, request: ListImprovementsRequest) -> ListImprovementsResult:
    """List the candidates tried for a skill with the results of gate and exam, and what a run could show."""
    store, plan = open_improve_store(home), preview_run(home, ImproveRequest(skill=request.name))
    rollouts = store.rollouts(skill=plan.skill)
    return ListImprovementsResult(
        plan=plan, candidates=[build_report(one, rollouts) for one in store.candidates(plan.skill)]
    )


class ClimbTarget(StrEnum):
    RECIPE = "recipe"
    CODE = "code"


_DRAFTER = "Let provider:model draft it."
_DRY_RUN = "Only show what it would be made of."


@dataclass(frozen=True, kw_only=True)
class ClimbSkillRequest:
    name: str = skill_name_argument()
    to: ClimbTarget | None = option("Target stage; default is the next possible one.")
    model: str = option(_DRAFTER, default="")
    dry_run: bool = option(_DRY_RUN, default=False)


@use_case(
    "skills climb",
    access=Access.ADMIN,
    example=ClimbSkillRequest(name="csv-summary", to=ClimbTarget.CODE, model="openai:gpt-5-mini"),
)
def climb_skill(home: Home, request: ClimbSkillRequest) -> StageClimb:
    """Take a skill to its next stage: a recipe from its past uses, or code that passes its trial."""
    climbing = ClimbRunner(home)
    stages = {None: None, ClimbTarget.RECIPE: Stage.CHUNKS, ClimbTarget.CODE: Stage.CODE}
    return _apply_climb(home, climbing, climbing.plan_skill_climb(request.name, stages[request.to]), request)


@dataclass(frozen=True, kw_only=True)
class PromoteLessonRequest:
    id: str = argument("A lesson.", completes="lessons")
    model: str = option(_DRAFTER, default="")
    dry_run: bool = option(_DRY_RUN, default=False)


@use_case("lessons promote", access=Access.ADMIN, example=PromoteLessonRequest(id="k3fa9c1d"))
def promote_lesson(home: Home, request: PromoteLessonRequest) -> StageClimb:
    """Turn a lesson into a skill, drafted by a model or, without one, from the facts."""
    climbing = ClimbRunner(home)
    return _apply_climb(home, climbing, climbing.plan_lesson_climb(request.id), request)


def _apply_climb(
    home: Home, climbing: ClimbRunner, found: StageClimb, request: ClimbSkillRequest | PromoteLessonRequest
) -> StageClimb:
    async def carry_out() -> StageClimb:
        async with open_drafter(home, request.model) as drafter:
            done = await climbing.run_climb(found, drafter)
        return replace(done, spent=drafter.budget.summary) if drafter is not None else done

    return found if request.dry_run else asyncio.run(carry_out())
