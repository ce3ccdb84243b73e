"""Solving a task with one version of a skill, in a throw-away home: our own agent, or a person's program."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from habitus.agent.session import new_id
from habitus.app.conversations.sessions import open_session
from habitus.app.home import Clock, Home
from habitus.app.home_directory import PADS
from habitus.app.learning import mining
from habitus.app.learning.tasks import ABOUT_PLACE, follow, laid_out, programs
from habitus.app.wiring import open_home
from habitus.errors import Invalid
from habitus.events import Outcome, failure, infra
from habitus.evidence.model import Fixed, left_trace
from habitus.files import Tree, without_examination
from habitus.journal.model import Place
from habitus.learning.budget import Budget, BudgetedModel, judge_rubric
from habitus.learning.detectors.monitor import Mode
from habitus.learning.observer import Learner
from habitus.learning.post_mortem import Cerebellum
from habitus.learning.transcripts.study import Studied, describe_event, study
from habitus.llm.agents.program import Call as PreparedCall
from habitus.llm.agents.program import Question
from habitus.llm.agents.running import Said, SolverProgram, solver_named, start, throw_away_room
from habitus.llm.model import Ask, Asked, Model, ProviderFault, Text, Usage
from habitus.sandbox.inside import folders
from habitus.settings import AccMode, EvidenceSettings, MemoryMode
from habitus.skills import names
from habitus.skills.layers.layer import USER
from habitus.skills.sources.trust import APPROVED
from habitus.tasks.judging import judge
from habitus.tasks.model import Call, Rollout, Task

TRIAL = "trial"  # how a rollout's request comes, and the source of its outcome
LONGEST_S = 600.0  # of one try
_IN_VIEW = (Place.EAGER, Place.STICKY, Place.LOADED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Solved:
    """One try at a task, judged. `infra` is nobody's failure."""

    outcome: Outcome
    record: str = ""  # what was done and what came of it
    usage: Usage = field(default_factory=Usage)
    steps: int = 0
    is_opened: bool = False  # the skill was in view
    is_followed: bool = False  # and left a trace
    session: str = ""
    turn: str = ""


class Solver(Protocol):
    """Somebody who solves tasks with one version of a skill."""

    async def solve(self, task: Task) -> Solved: ...


class OwnAgent:
    """Our own agent in a home that has this version of the skill, see `throw_away_home`, or where it is offered or
    withheld as `fixed` says."""

    def __init__(self, home: Home, skill: str, model: BudgetedModel, fixed: Fixed | None = None) -> None:
        self._home = home
        self._skill = skill
        self._model = model
        self._fixed = fixed

    async def solve(self, task: Task) -> Solved:
        return await solve(self._home, task, self._model, source_type=TRIAL, skill=self._skill, fixed=self._fixed)


@asynccontextmanager
async def throw_away_home(home: Home, name: str, tree: Tree, *, folder: Path | None = None) -> AsyncIterator[Home]:
    """A home of its own with the bundled skills and this one, as these files have it: nothing that happens there is
    known here, and nothing is known there of tasks, memory and secrets. One that a killed process left goes with old
    scratchpads."""
    folder = folder or home.place / PADS / f"rollouts-{new_id()}"
    person = folder / "person"
    await asyncio.to_thread(person.mkdir, mode=0o700, parents=True)
    settings = home.settings.model_copy(
        update={
            "home": folder,
            "cwd": person,
            "user_home": person,
            "database": None,
            "operator_skills": None,
            "layers": (),
            "disabled_skills": (),
            "users": {},
            "evidence": EvidenceSettings(),
            "memory": MemoryMode.OFF,
            "acc_mode": AccMode.OFF,
            "notify_url": "",
            "durable": False,
        }
    )
    shown = without_examination(tree)
    try:
        opened = await asyncio.to_thread(open_home, settings, clock=home.clock, has_pages=False)
        try:
            await asyncio.to_thread(opened.skills.write_tree, USER, name, shown, opened.person())
            await asyncio.to_thread(_approve_as_here, home, opened, name)
            yield opened
        finally:
            await asyncio.to_thread(opened.close)
    finally:
        await asyncio.to_thread(folders.remove, str(folder))


def _approve_as_here(home: Home, apart: Home, name: str) -> None:
    """Code that may run here may run there, too; other code that a candidate brings may not."""
    if any(tool.name == name for tool in home.tools.active()):
        apart.approvals.trust(APPROVED, {name: home.skills.tree(name)}, apart.person().name)


async def solve(
    home: Home,
    task: Task,
    model: Model,
    *,
    source_type: str,
    request: str = "",
    skill: str = "",
    fixed: Fixed | None = None,
    longest_s: float = LONGEST_S,
) -> Solved:
    """One try by our own agent in a session that teaches nobody anything; `request` stands for the task's own words,
    and where offers are `fixed` the journal has the outcome."""
    async with AsyncExitStack() as staying:
        arena = await staying.enter_async_context(laid_out(home, task)) if task.needs_place else None
        if arena is not None and not arena.laid.is_ok:
            return Solved(outcome=arena.laid)
        session = open_session(
            home,
            model,
            id=arena.session if arena is not None else None,
            source_type=source_type,
            learner=_quiet_learner(home),
            read=programs(home.settings, task),
            fixed=fixed,
        )
        asked = "\n\n".join([request or task.request, *([ABOUT_PLACE] if arena is not None else [])])
        try:
            async with asyncio.timeout(longest_s), session:
                followed = await follow(session.turn_stream(asked))
        except ProviderFault as fault:
            return Solved(outcome=infra(str(fault)), usage=session.usage, session=session.id)
        except TimeoutError:
            late = failure(f"it was not done after {longest_s:.0f} s")
            return Solved(outcome=late, usage=session.usage, session=session.id)
        payer = model if isinstance(model, BudgetedModel) else Budget().model(model)
        ask = partial(judge_rubric, model=payer, redactor=home.redactor)
        judged = (await judge(task, replace(followed.rollout, place=arena), ask=ask)).outcome
        if fixed is not None:
            session.judge(judged.kind, turn=followed.done.turn, source=source_type)
        is_opened, is_followed = await asyncio.to_thread(_use_of, home, session.id, skill)
    return Solved(
        outcome=judged,
        record=f"{followed.record}\n\nJudged: {judged.reason or 'passed'}",
        usage=session.usage,
        steps=followed.done.rounds,
        is_opened=is_opened,
        is_followed=is_followed,
        session=session.id,
        turn=followed.done.turn,
    )


def _quiet_learner(home: Home) -> Learner:
    quiet = Cerebellum(None, home.memory.encode, spending=home.spending, redactor=home.redactor)
    return Learner(home.memory, quiet, mode=Mode.OFF, redactor=home.redactor)


def _use_of(home: Home, session: str, skill: str) -> tuple[bool, bool]:
    """Whether a skill came into view in a session, and whether it left a trace there."""
    if not skill:
        return False, False
    turns = home.journal.turns_of(session, user=home.settings.user)
    used = [one for turn in turns for one in turn.exposures if one.item == skill and one.is_used]
    in_view = any(one.name == skill and one.place in _IN_VIEW for turn in turns for one in turn.selected)
    return in_view or bool(used), any(not one.is_ignored for one in used)


_ABOUT_FOLDER = "What the task speaks of lies in this folder, and what you write here counts. Nobody is there to ask."


def describe_powers(name: str) -> str:
    """The powers of a solver on this machine, for a person to agree to before it starts."""
    solver = solver_named(name)
    trial = " This is experimental." if solver.is_experimental else ""
    return (
        f"{solver.program.title} solves the tasks itself, on this machine and as you, signed in as you are: each in "
        f"a new folder and home with this skill alone. It reads there; where a task lays out files or looks for some, "
        f"it also writes and runs commands, and {solver.powers}.{trial}"
    )


@asynccontextmanager
async def open_program_solver(
    home: Home, skill: str, tree: Tree, name: str, budget: Budget, model: BudgetedModel | None
) -> AsyncIterator[ProgramSolver]:
    """The program of this name with one version of a skill; `model` judges rubrics. What it works on lies far from the
    home, whose tasks it must not meet."""
    solver = solver_named(name)
    if home.settings.sandbox.runtime != "local":
        raise Invalid("Cells run on another machine, where no program of yours is.", mend="Leave --solver out.")
    async with throw_away_room() as room, throw_away_home(home, skill, tree, folder=room / "home") as apart:
        yield ProgramSolver(apart, skill, solver, name.partition(":")[2], budget, model)


class ProgramSolver:
    def __init__(
        self,
        home: Home,
        skill: str,
        solver: SolverProgram,
        model: str,
        budget: Budget,
        judge_model: BudgetedModel | None,
    ) -> None:
        self._home = home  # thrown away
        self._skill = skill
        self._solver = solver
        self._model = model
        self._budget = budget
        self._judge_model = judge_model

    async def solve(self, task: Task) -> Solved:
        async with AsyncExitStack() as staying:
            room = await staying.enter_async_context(throw_away_room())
            arena = await staying.enter_async_context(laid_out(self._home, task)) if task.needs_place else None
            if arena is not None and not arena.laid.is_ok:
                return Solved(outcome=arena.laid)
            work = arena.folder if arena is not None else room / "work"
            try:
                said = await self._run_program(task, room, work)
            except ProviderFault as fault:
                return Solved(outcome=infra(str(fault)))
            except TimeoutError:
                return Solved(outcome=failure(f"it was not done after {LONGEST_S:.0f} s"))
            turns = await asyncio.to_thread(self._read_back, room)
            calls = [call for turn in turns for call in _calls(self._home.clock, turn)]
            payer = self._judge_model
            ask = partial(judge_rubric, model=payer, redactor=self._home.redactor) if payer is not None else None
            rollout = Rollout(reply=said.text, calls=tuple(calls), place=arena)
            judged = (await judge(task, rollout, ask=ask)).outcome
        is_opened = self._is_opened(turns, calls)
        events = [event for turn in turns for event in turn.turn.events]
        return Solved(
            outcome=judged,
            record="\n".join(
                [*map(describe_event, events), f"said: {said.text}", f"\nJudged: {judged.reason or 'passed'}"]
            ),
            usage=said.usage,
            steps=max((event.round_idx for event in events), default=0),
            is_opened=is_opened,
            is_followed=is_opened and self._is_followed(task, calls, said.text),
        )

    async def _run_program(self, task: Task, room: Path, work: Path) -> Said:
        """One run of the program, paid from the budget: what it takes is known when it is over."""
        prompt = "\n\n".join([task.request, *([_ABOUT_FOLDER] if task.needs_place else [])])
        name = f"{self._solver.program.name}:{self._model}"
        question = Question(system="", prompt=prompt, model=self._model, room=room, environ=os.environ)
        ask = Ask(system="", messages=(Asked(parts=(Text(text=prompt),)),))
        aside = await asyncio.to_thread(self._budget.reserve, ask, name)
        used = aside.most
        try:
            call = await asyncio.to_thread(self._prepare_call, question, work, task.needs_place)
            async with asyncio.timeout(LONGEST_S):
                said = await start(self._solver.program, question, call, work, 2 * LONGEST_S)
            used = said.usage
            return said
        finally:
            await asyncio.to_thread(self._budget.settle, aside, used, name)

    def _prepare_call(self, question: Question, work: Path, may_act: bool) -> PreparedCall:
        work.mkdir(parents=True, exist_ok=True)
        call = self._solver.ask(question, may_act)
        lies = self._home.skills.directory(f"{self._skill}@{USER}")
        assert lies is not None, "a home on disk has folders"
        shutil.copytree(lies, question.room / self._solver.skills / self._skill)
        return call

    def _read_back(self, room: Path) -> list[Studied]:
        turns: list[Studied] = []
        for path in sorted(room.glob(self._solver.transcripts)):
            study(path, self._home.redactor, turns.append)
        return turns

    def _is_opened(self, turns: Sequence[Studied], calls: Sequence[Call]) -> bool:
        used = {names.canonical(use.skill) for turn in turns for use in turn.skill_uses}
        return self._skill in used or any(f"{self._skill}/SKILL.md" in call.arguments for call in calls)

    def _is_followed(self, task: Task, calls: Sequence[Call], reply: str) -> bool:
        done = "\n".join([*(call.arguments for call in calls), reply])
        return left_trace(self._home.skills.load(self._skill).body, (), request=task.request, done=done)


def _calls(clock: Clock, turn: Studied) -> list[Call]:
    _, done = mining.observed_elsewhere(turn, clock())
    return [
        Call(tool=one.name, arguments=json.dumps(one.arguments), command=str(one.arguments.get("command", "")))
        for one in done.calls
    ]
