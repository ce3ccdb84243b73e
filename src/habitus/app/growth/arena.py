"""Arenas: a folder in the sandbox with what a task lays out, where it is solved and judged; and whether a task can
tell right from wrong."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from habitus.agent.session import new_id
from habitus.agent.stream import Done, ToolFinished, ToolStarted, TurnEvent
from habitus.app.conversations.running_code import open_scratchpads, readable
from habitus.app.home import Home
from habitus.app.home_directory import PADS
from habitus.events import OK, Outcome, OutcomeKind, failed, infra
from habitus.sandbox.inside import folders
from habitus.sandbox.model import Cell
from habitus.settings import Settings
from habitus.tasks.judging import Judgement, judge
from habitus.tasks.model import Call, Place, Rollout, Solution, Task, call_of

PAD = "challenge"
ABOUT_PLACE = (
    f"Work in the scratchpad '{PAD}': what the task speaks of lies in its folder, and what you write there counts. "
    "Nobody is there to ask; do it, and say so when it is done."
)
_RESULT_CHARS = 1_000  # of a call's result that is told
_MOST_BYTES = 1_000_000  # of a file that is looked into
_LAY_OUT = """
import json, pathlib
for path, text in json.loads({files!r}).items():
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(path).write_text(text, "utf-8")
"""
_READ = """
import base64, pathlib
path = pathlib.Path({path!r})
print(base64.b64encode(path.read_bytes()[:{most}]).decode() if path.is_file() else "-")
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Arena:
    """The place of one try; `laid` says whether laying it out went well."""

    home: Home
    task: Task
    session: str  # whose scratchpads can work there
    laid: Outcome = OK

    @property
    def folder(self) -> Path:
        """Where it lies, if cells run on this machine."""
        return self.home.place / PADS / self.session / PAD / "files"

    async def run(self, code: str) -> Outcome:
        return _outcome(await self._exec(code))

    async def read(self, path: str) -> bytes | None:
        cell = await self._exec(_READ.format(path=path, most=_MOST_BYTES))
        said = cell.stdout.strip()
        return base64.b64decode(said) if cell.error is None and said != "-" else None

    async def _exec(self, code: str) -> Cell:
        """In a process of its own, which is gone when somebody else wants the folder."""
        read = programs(self.home.settings, self.task)
        pads = open_scratchpads(self.home, f"{PADS}/{self.session}", read=read)
        try:
            return await pads.exec(PAD, code)
        finally:
            await pads.close()


@asynccontextmanager
async def laid_out(home: Home, task: Task) -> AsyncIterator[Arena]:
    arena = Arena(home=home, task=task, session=f"task-{new_id()}")
    files = _LAY_OUT.format(files=json.dumps(dict(task.files))) if task.files else ""
    try:
        laid = await arena.run(f"{files}\n{task.setup}")
        yield arena if laid.is_ok else replace(arena, laid=infra(f"its setup failed: {laid.reason}"))
    finally:
        await asyncio.to_thread(folders.remove, str(home.place / PADS / arena.session))


@dataclass(frozen=True, kw_only=True, slots=True)
class Followed:
    """A turn that was watched to its end: the rollout, and what was done, in words."""

    rollout: Rollout
    record: str
    done: Done


async def follow(turn: AsyncIterator[TurnEvent]) -> Followed:
    """What a solver does in a turn; that it did badly is for the checks to say."""
    said: list[str] = []
    calls: list[Call] = []
    end: Done | None = None
    async for seen in turn:
        match seen:
            case ToolStarted(tool=tool, arguments=arguments):
                said.append(f"{tool} {arguments}")
                calls.append(call_of(tool, arguments))
            case ToolFinished(content=content, outcome=outcome):
                said.append(f"came to ({outcome.kind.value}): {content[-_RESULT_CHARS:]}")
            case Done() as end:
                said.append(f"said: {end.reply[-_RESULT_CHARS:]}")
    assert end is not None, "a turn ends"
    outcome = end.outcome if end.outcome.kind is OutcomeKind.INFRA else OK
    rollout = Rollout(reply=end.reply, calls=tuple(calls), outcome=outcome)
    return Followed(rollout=rollout, record="\n".join(said), done=end)


def programs(settings: Settings, task: Task) -> tuple[Path, ...]:
    """What a shell needs is not in the sandbox unless somebody says so."""
    is_for_shell = task.domain == "bash" and settings.sandbox.runtime == "local"
    return readable(settings, [Path("/usr")]) if is_for_shell else ()


def _outcome(cell: Cell) -> Outcome:
    return cell.outcome if cell.error is None else failed(cell.error.strip().rpartition("\n")[2].strip()[:500])


@dataclass(frozen=True, kw_only=True, slots=True)
class Soundness:
    """Whether a task tells right from wrong; `reason` says why not."""

    task: str
    is_sound: bool
    reason: str = ""
    skill: str = ""


async def check_task(home: Home, task: Task) -> Soundness:
    """Judge the right solution, a wrong one if there is one, and none: only the first may pass."""
    right = task.implied_reference
    if right is None:
        return _unsound(task, "nothing shows that it can be passed: it has no reference")
    wrong = [(task.wrong, False, "its wrong solution")] if task.wrong is not None else []
    for solution, should_pass, what in (
        (right, True, "its reference solution"),
        *wrong,
        (Solution(), False, "doing nothing"),
    ):
        judged = (await _judge_solution(home, task, solution)).outcome
        if judged.kind is OutcomeKind.INFRA:
            return _unsound(task, judged.reason)
        if judged.is_ok != should_pass:
            return _unsound(task, f"{what} {'passes' if judged.is_ok else f'does not pass: {judged.reason}'}")
    return Soundness(task=task.id, is_sound=True)


def _unsound(task: Task, reason: str) -> Soundness:
    return Soundness(task=task.id, is_sound=False, reason=reason)


async def _judge_solution(home: Home, task: Task, solution: Solution) -> Judgement:
    if not task.needs_place and not solution.code:
        return await judge(task, _rollout(solution, None))
    async with laid_out(home, task) as arena:
        if not arena.laid.is_ok:
            return Judgement(outcome=arena.laid, score=0.0)
        if solution.code:
            await arena.run(solution.code)
        return await judge(task, _rollout(solution, arena))


def _rollout(solution: Solution, place: Place | None) -> Rollout:
    calls = tuple(Call(tool=call.split()[0], command=call) for call in solution.calls)
    return Rollout(reply=solution.reply, calls=calls, place=place)
