"""Solving a task by a program of the person's, such as Claude Code: in a throw-away folder and home, with one version
of a skill; its transcript is read back as the rollout."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from habitus.app.growth import observing
from habitus.app.growth.arena import laid_out
from habitus.app.growth.solving import LONGEST_S, Solved, throw_away_home
from habitus.app.home import Home
from habitus.errors import Invalid
from habitus.events import failed, infra
from habitus.evidence.traces import left_trace
from habitus.files import Tree
from habitus.learning.asking import judge_rubric
from habitus.learning.budget import Budget, BudgetedModel
from habitus.learning.transcripts.study import Studied, describe_event, study
from habitus.llm.agents.program import Call as PreparedCall
from habitus.llm.agents.program import Question
from habitus.llm.agents.running import Said, start, throw_away_room
from habitus.llm.agents.solvers import SolverProgram, solver_named
from habitus.llm.model import Ask, Asked, ProviderFault, Text
from habitus.skills import names
from habitus.skills.layers import USER
from habitus.tasks.judging import judge
from habitus.tasks.model import Call, Rollout, Task

_ABOUT_FOLDER = "What the task speaks of lies in this folder, and what you write here counts. Nobody is there to ask."


def describe_powers(name: str) -> str:
    """What a solver may do on this machine, for a person to agree to before it starts."""
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
                return Solved(outcome=failed(f"it was not done after {LONGEST_S:.0f} s"))
            turns = await asyncio.to_thread(self._read_back, room)
            calls = [call for turn in turns for call in _calls(self._home, turn)]
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


def _calls(home: Home, turn: Studied) -> list[Call]:
    _, done = observing.observed_elsewhere(turn, home.clock())
    return [
        Call(tool=one.name, arguments=json.dumps(one.arguments), command=str(one.arguments.get("command", "")))
        for one in done.calls
    ]
