"""Improving skills: start a run, and see what was tried for a skill and what the gate and the exam said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from habitus.app.home import Home
from habitus.app.learning.rollouts import Outlook, Wish, open_ledger, outlook
from habitus.app.operating import job_kinds, jobs
from habitus.app.use_cases.access import Access
from habitus.app.use_cases.declaration import TEXT, attempt_id, option, use_case
from habitus.app.use_cases.skills import skill_name
from habitus.errors import Misused, Refused
from habitus.evidence.gate import MOST_ROUNDS
from habitus.jobs.model import Job
from habitus.learning.budget import Limits
from habitus.learning.improve_report import CandidateReport, report_on
from habitus.llm.agents.running import solver_named

MOST_CANDIDATES = 20


@dataclass(frozen=True, kw_only=True)
class Improvement:
    name: str = skill_name()
    text: str = option(
        "A candidate of your own, its whole SKILL.md; on a command line the file of it.",
        "--candidate",
        default="",
        longest=TEXT,
    )
    proposal: int | None = option("Try this waiting proposal.", least=1)
    shorter: bool = option("Look for a shorter version that is not worse.", default=False)
    candidates: int = option("How many the model may draft.", "-n", default=3, least=1, most=MOST_CANDIDATES)
    rounds: int = option("Tries of each task with each version, at most.", default=MOST_ROUNDS, least=1, most=100)
    budget: str = option("Stop after so many tokens (500k), dollars ($5) or minutes (30m).", default="")
    model: str = option("Who drafts and solves, as provider:model; else the settings' model.", "-m", default="")
    solver: str = option(
        "A program of the owner's that solves the tasks itself, such as claude-code; else our own agent.", default=""
    )
    parallel: int = option("Tries at a time.", default=1, least=1, most=32)
    id: str = attempt_id()

    @property
    def wish(self) -> Wish:
        if self.text and self.proposal is not None:
            raise Misused("Give a candidate or a proposal, not both.")
        limits = Limits.parse(self.budget)
        same = ("text", "proposal", "shorter", "candidates", "rounds", "model", "solver", "parallel")
        return Wish(skill=self.name, **asdict(limits), **{field: getattr(self, field) for field in same})


@use_case(
    "",
    route="POST /skills/{name}/improvements",
    access=Access.ADMIN,
    example=Improvement(name="csv-summary", budget="$5"),
    undo="jobs cancel",
    status=201,
    is_once=True,
)
def improve(home: Home, wanted: Improvement) -> Job:
    """Leave a run to a worker: small changes of a skill, gated against today's version on its tasks."""
    wish = wanted.wish
    if wish.solver:
        solver_named(wish.solver)
        if home.settings.is_guest:
            raise Refused("Only the owner starts programs of this machine.", mend="Leave the solver out.")
    outlook(home, wish)
    queue = jobs.open_queue(home)
    return queue.get(job_kinds.add(home.settings, queue, "improve", asdict(wish), id=wanted.id))


@dataclass(frozen=True, kw_only=True)
class OneSkill:
    name: str = skill_name()


@dataclass(frozen=True, kw_only=True)
class Improvements:
    outlook: Outlook
    candidates: Sequence[CandidateReport]


@use_case(
    "skills improvements",
    route="GET /skills/{name}/improvements",
    access=Access.OPEN_READING,
    example=OneSkill(name="csv-summary"),
)
def improvements(home: Home, wanted: OneSkill) -> Improvements:
    """Candidates that were tried for a skill, what the gate and the exam said of them, and what a run could show."""
    ledger, seen = open_ledger(home), outlook(home, Wish(skill=wanted.name))
    kept = ledger.rollouts(skill=seen.skill)
    return Improvements(outlook=seen, candidates=[report_on(one, kept) for one in ledger.candidates(seen.skill)])
