"""Solve a task with one version of a skill in a temporary home, by our own agent or by another agent's program."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from habitus.agent.session import generate_turn_or_session_id
from habitus.agent.stream import ToolFinished, ToolStarted, TurnEvent, TurnResult
from habitus.app.conversations.sessions import open_session
from habitus.app.home import Clock, Home
from habitus.app.home_directory import SESSION_PADS_DIR, get_parent_dir_of_solver_folders
from habitus.app.learning import mining, solver_box
from habitus.app.tasks.workspaces import ABOUT_WORKSPACE, list_readable_program_folders, open_task_workspace
from habitus.app.wiring import open_home
from habitus.errors import Invalid
from habitus.events import (
    EventKind,
    Outcome,
    OutcomeKind,
    build_failed_outcome,
    build_infrastructure_failure_outcome,
    get_text_detail,
)
from habitus.evidence.model import FixedAssignments, has_left_trace_of_steps
from habitus.files import Tree, drop_eval_files
from habitus.improve.trials import TRIAL
from habitus.journal.model import ExposureAssignment, JudgementSourceKind, SkillPlacementKind, Turn
from habitus.learning.budget import BudgetedModel, RunBudget, judge_by_rubric
from habitus.learning.detectors.monitor import MonitorMode
from habitus.learning.observer import SessionErrorLearner
from habitus.learning.transcripts.firings import describe_event
from habitus.learning.transcripts.study import StudiedTurn, visit_studied_turns_of_file
from habitus.llm.agents import sign_ins
from habitus.llm.agents.program import AgentProgramCommand as PreparedCall
from habitus.llm.agents.program import AgentProgramPrompt
from habitus.llm.agents.running import ProgramAnswer, run_program_and_parse_answer, temporary_workspace
from habitus.llm.agents.solvers import SolverProgram, find_solver_program
from habitus.llm.agents.unsupported_sign_ins import refuse_unsupported_sign_in
from habitus.llm.model import CompletionRequest, PersonMessage, ProviderError, TextContent
from habitus.sandbox.inside import folders
from habitus.settings import DetectorActivityMode, EvidenceSettings, MemoryLearningMode
from habitus.skills import names
from habitus.skills.layers.layer import USER_LAYER
from habitus.skills.library import Library
from habitus.skills.model import Author, SkillState
from habitus.skills.sources.trust import APPROVED_ROOT
from habitus.tasks.judging import judge_submission
from habitus.tasks.model import Submission, Task, ToolCallOfAttempt, parse_submitted_call
from habitus.tasks.rollouts import SAID, Rollout

# Seconds for one rollout.
ROLLOUT_TIMEOUT_S = 600.0
_MENU_SAMPLE = 10  # of the person's other skills that a rollout is made among
_NEAREST = 5  # of them, those whose description is most like the skill's
_MAX_TRANSCRIPT_BYTES = 256 << 20  # of a rollout
_MAX_RESULT_CHARS = 1_000  # of each tool result in a rollout's record
_VISIBLE_PLACES = (SkillPlacementKind.EAGER, SkillPlacementKind.STICKY, SkillPlacementKind.LOADED)
_WORKSPACE_HINT = "What the task speaks of lies in this folder, and what you write here counts. Nobody is there to ask."


@dataclass(frozen=True, slots=True)
class OwnAgentSolver:
    """Solves tasks with our own agent; `fixed` decides for each item whether it is offered or withheld."""

    home: Home
    model: BudgetedModel
    fixed: FixedAssignments | None = None

    async def solve(self, task: Task, rollout: Rollout) -> Rollout:
        """Return the rollout with its outcome."""
        return await run_own_agent_rollout(self.home, task, rollout, self.model, source_type=TRIAL, fixed=self.fixed)


@asynccontextmanager
async def open_own_agent_in_temporary_home(
    home: Home, skill: str, tree: Tree, model: BudgetedModel | None
) -> AsyncIterator[OwnAgentSolver]:
    """Open our own agent in a temporary home that has only this version of the skill."""
    if model is None:
        raise Invalid("No model to solve the tasks.", hint="Add --model.")
    async with open_temporary_home_with_skill(home, skill, tree) as apart:
        yield OwnAgentSolver(apart, model)


@asynccontextmanager
async def open_temporary_home_with_skill(
    home: Home, name: str, tree: Tree, *, folder: Path | None = None, is_held: bool = True
) -> AsyncIterator[Home]:
    """Open a temporary home with this version of one skill, among the bundled skills and a sample of the person's.

    Skills that nobody has reviewed are in the sample only if the solver `is_held`. The home shares no tasks, memory or
    secrets with the real one. If a process is killed, its folder is removed with old scratchpads.
    """
    folder = folder or home.writable_dir / SESSION_PADS_DIR / f"rollouts-{generate_turn_or_session_id()}"
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
            "memory": MemoryLearningMode.OFF,
            "acc_mode": DetectorActivityMode.OFF,
            "notify_url": "",
            "durable": False,
        }
    )
    # The skill's own eval cases would tell the solver what is checked.
    shown = drop_eval_files(tree)
    try:
        opened = await asyncio.to_thread(open_home, settings, clock=home.clock, has_pages=False)
        try:
            await asyncio.to_thread(opened.skills.write_tree, USER_LAYER, name, shown, opened.build_author())
            await asyncio.to_thread(
                _copy_sample_of_other_skills, home, opened.skills, name, opened.build_author(), is_held
            )
            await asyncio.to_thread(_copy_code_approval, home, opened, name)
            yield opened
        finally:
            await asyncio.to_thread(opened.close)
    finally:
        await asyncio.to_thread(folders.remove_folder, str(folder))


def _copy_sample_of_other_skills(home: Home, apart: Library, name: str, author: Author, is_held: bool) -> None:
    """Copy a sample of the person's other skills, the same for both versions, so that an edited description competes.

    Half of it are those that today's version competes with most, the rest is drawn. Their code is not approved in the
    temporary home, and their eval files stay behind.
    """
    skills, there = home.skills, {item.name for item in apart.list_skills()}
    others = [
        item
        for item in skills.list_skills()
        if item.name not in there and item.state is SkillState.OK and item.summary is not None
        if is_held or not skills.describe_unreviewed_origin(item)
    ]
    cue = skills.load(name).when_to_use or skills.load(name).description
    nearest = [hit.id for hit in home.finder.search(cue, k=_NEAREST + 1).hits if hit.id != name][:_NEAREST]
    drawn = sorted(others, key=lambda item: hashlib.sha256(f"{name}\0{item.name}".encode()).digest())
    for item in sorted(drawn, key=lambda item: item.name not in nearest)[:_MENU_SAMPLE]:
        tree = drop_eval_files(skills.read_tree(f"{item.name}@{item.layer}"))
        apart.write_tree(USER_LAYER, item.name, tree, author)


def _copy_code_approval(home: Home, apart: Home, name: str) -> None:
    """Approve the skill's code in the temporary home only if the same code is approved here."""
    if any(tool.name == name for tool in home.tools.active()):
        apart.approvals.trust(APPROVED_ROOT, {name: home.skills.read_tree(name)}, apart.build_author().name)


async def run_own_agent_rollout(
    home: Home,
    task: Task,
    rollout: Rollout,
    model: BudgetedModel,
    *,
    source_type: str,
    request: str = "",
    fixed: FixedAssignments | None = None,
) -> Rollout:
    """Make a rollout with our own agent in a session that stores no lessons.

    `request` replaces the task's own request; if offers are `fixed`, the outcome is also recorded in the journal.
    """
    async with AsyncExitStack() as exits:
        workspace = await exits.enter_async_context(open_task_workspace(home, task)) if task.needs_workspace else None
        if workspace is not None and not workspace.setup.is_ok:
            return rollout.with_outcome(workspace.setup)
        session = open_session(
            home,
            model,
            id=workspace.session if workspace is not None else None,
            source_type=source_type,
            learner=_make_silent_learner(home),
            read=list_readable_program_folders(home.settings, task),
            fixed=fixed,
        )
        asked = "\n\n".join([request or task.request, *([ABOUT_WORKSPACE] if workspace is not None else [])])
        try:
            async with asyncio.timeout(ROLLOUT_TIMEOUT_S), session:
                events = [event async for event in session.turn_stream(asked)]
        except (ProviderError, TimeoutError) as fault:
            return rollout.with_outcome(_make_fault_outcome(fault), usage=session.usage)
        done = next(event for event in reversed(events) if isinstance(event, TurnResult))
        outcome, judge = done.outcome, model.copy_with_own_usage()
        # Whether the turn succeeded is for the task's checks to decide, not for the agent.
        if outcome.kind is not OutcomeKind.INFRA:
            calls = tuple(
                parse_submitted_call(event.tool, event.arguments) for event in events if isinstance(event, ToolStarted)
            )
            submission = Submission(reply=done.reply, calls=calls, workspace=workspace)
            ask = partial(judge_by_rubric, model=judge, redactor=home.redactor)
            outcome = (await judge_submission(task, submission, ask=ask)).outcome
        if fixed is not None:
            session.judge(outcome.kind, turn=done.turn, source=source_type, source_kind=JudgementSourceKind.VALIDATOR)
        turns = await asyncio.to_thread(home.journal.list_session_turns, session.id, user=home.settings.user)
    return rollout.with_outcome(
        outcome,
        _format_turn_events(events),
        usage=session.usage + judge.usage,
        steps=done.rounds,
        is_opened=any(map(partial(_is_skill_opened, rollout.skill), turns)),
        is_followed=any(
            not one.is_ignored for turn in turns for one in _list_used_exposures_of_skill(rollout.skill, turn)
        ),
    )


def _make_fault_outcome(fault: ProviderError | TimeoutError) -> Outcome:
    return (
        build_infrastructure_failure_outcome(str(fault))
        if isinstance(fault, ProviderError)
        else build_failed_outcome(f"it was not done after {ROLLOUT_TIMEOUT_S:.0f} s")
    )


def _format_turn_events(events: Sequence[TurnEvent]) -> str:
    lines: list[str] = []
    for event in events:
        match event:
            case ToolStarted(tool=tool, arguments=arguments):
                lines.append(f"{tool} {arguments}")
            case ToolFinished(content=content, outcome=outcome):
                lines.append(f"came to ({outcome.kind.value}): {content[-_MAX_RESULT_CHARS:]}")
            case TurnResult(reply=reply):
                lines.append(f"{SAID}{reply[-_MAX_RESULT_CHARS:]}")
    return "\n".join(lines)


def _make_silent_learner(home: Home) -> SessionErrorLearner:
    return SessionErrorLearner(None, spending=home.spending, mode=MonitorMode.OFF, redactor=home.redactor)


def _is_skill_opened(skill: str, turn: Turn) -> bool:
    is_in_view = any(one.name == skill and one.place in _VISIBLE_PLACES for one in turn.selected)
    return is_in_view or bool(_list_used_exposures_of_skill(skill, turn))


def _list_used_exposures_of_skill(skill: str, turn: Turn) -> list[ExposureAssignment]:
    return [one for one in turn.exposures if one.item == skill and one.is_used]


def describe_solver_access(name: str) -> str:
    """Describe what a solver program may do on this machine, for the user to confirm before it starts."""
    solver = find_solver_program(name)
    question = _build_agent_program_prompt(name.partition(":")[2], Path(), "")
    refuse_unsupported_sign_in(solver, question)
    return (
        f"{solver.program.title} solves the tasks itself, on this machine and as you, signed in as you are: each in "
        f"a new folder and home with this skill and some of your others, where it reads, writes and runs commands. "
        f"{solver_box.describe_what_solver_can_reach(solver, question)}."
    )


@asynccontextmanager
async def open_program_solver(
    home: Home, skill: str, tree: Tree, name: str, budget: RunBudget, model: BudgetedModel | None
) -> AsyncIterator[AgentProgramSolver]:
    """Open the named program with one version of a skill; `model` judges rubrics.

    It works in a folder far from the home, whose tasks it must not read.
    """
    solver = find_solver_program(name)
    if home.settings.sandbox.runtime != "local":
        raise Invalid("Cells run on another machine, where no program of yours is.", hint="Leave --solver out.")
    await asyncio.to_thread(solver_box.refuse_foreign_skill_without_box, home.skills, skill, solver)
    # Not below the temporary folder, where Codex refuses to start its own helper.
    parent = get_parent_dir_of_solver_folders(home.settings)
    is_held = await asyncio.to_thread(solver_box.is_solver_box_available)
    async with (
        temporary_workspace(parent, folders.remove_folder) as room,
        temporary_workspace(parent, folders.remove_folder) as trial,
        open_temporary_home_with_skill(home, skill, tree, folder=room / "home", is_held=is_held) as apart,
    ):
        model_name = name.partition(":")[2]
        lasts = timedelta(seconds=max(ROLLOUT_TIMEOUT_S, budget.seconds_left_or_zero_without_limit))
        question = _build_agent_program_prompt(model_name, trial, "")
        await asyncio.to_thread(_refuse_unusable_sign_in, solver, question, home.clock() + lasts)
        yield AgentProgramSolver(apart, skill, solver, model_name, budget, model, parent)


def _build_agent_program_prompt(model: str, room: Path, prompt: str) -> AgentProgramPrompt:
    return AgentProgramPrompt(
        system="",
        prompt=prompt,
        model=model,
        workspace=room,
        environ=os.environ,
        is_boxed=solver_box.is_solver_box_available(),
    )


def _refuse_unusable_sign_in(solver: SolverProgram, question: AgentProgramPrompt, until: datetime) -> None:
    """Raise `Refused` before the first rollout where each would fail for its sign-in or its provider."""
    refuse_unsupported_sign_in(solver, question)
    solver.build_call(question)
    sign_ins.refuse_expiring_sign_in(solver, question, until)
    solver_box.open_solver_box(solver, question, question.workspace)


@dataclass(frozen=True, slots=True)
class AgentProgramSolver:
    """Solves tasks with another agent's program and reads its transcripts afterwards."""

    # A temporary one.
    home: Home
    skill: str
    solver: SolverProgram
    model: str
    budget: RunBudget
    judge_model: BudgetedModel | None
    # Where the folders of its runs are made.
    parent: Path

    async def solve(self, task: Task, rollout: Rollout) -> Rollout:
        """Run the program on the task and return the rollout with its outcome."""
        async with AsyncExitStack() as exits:
            room = await exits.enter_async_context(temporary_workspace(self.parent, folders.remove_folder))
            workspace = (
                await exits.enter_async_context(open_task_workspace(self.home, task)) if task.needs_workspace else None
            )
            if workspace is not None and not workspace.setup.is_ok:
                return rollout.with_outcome(workspace.setup)
            work = workspace.folder if workspace is not None else room / "work"
            try:
                said = await self._run_program_within_budget(task, room, work)
            except (ProviderError, TimeoutError) as fault:
                return rollout.with_outcome(_make_fault_outcome(fault))
            turns = await asyncio.to_thread(self._read_transcripts, room)
            if problem := _find_program_failure(said.text, turns):
                return rollout.with_outcome(build_infrastructure_failure_outcome(problem), usage=said.usage)
            calls = tuple(call for turn in turns for call in _list_submitted_calls(self.home.clock, turn))
            judge = self.judge_model.copy_with_own_usage() if self.judge_model is not None else None
            ask = partial(judge_by_rubric, model=judge, redactor=self.home.redactor) if judge is not None else None
            submission = Submission(reply=said.text, calls=calls, workspace=workspace)
            outcome = (await judge_submission(task, submission, ask=ask)).outcome
        events = [event for turn in turns for event in turn.turn.events]
        is_opened = self._is_skill_opened(turns, calls)
        return rollout.with_outcome(
            outcome,
            "\n".join([*map(describe_event, events), f"{SAID}{said.text}"]),
            usage=said.usage + judge.usage if judge is not None else said.usage,
            steps=max((event.round_idx for event in events), default=0),
            is_opened=is_opened,
            is_followed=is_opened and self._is_skill_followed(task, calls, said.text),
        )

    async def _run_program_within_budget(self, task: Task, room: Path, work: Path) -> ProgramAnswer:
        """Run the program once, paid from the budget; its usage is known only at the end."""
        prompt = "\n\n".join([task.request, *([_WORKSPACE_HINT] if task.needs_workspace else [])])
        name = f"{self.solver.program.name}:{self.model}"
        question = self.solver.remove_keys_of_other_providers(_build_agent_program_prompt(self.model, room, prompt))
        ask = CompletionRequest(system="", messages=(PersonMessage(parts=(TextContent(text=prompt),)),))
        # The most that the run may use is reserved and kept if it fails, because its real usage is unknown then.
        aside = await asyncio.to_thread(self.budget.reserve, ask, name)
        used = aside.max_usage
        try:
            call = await asyncio.to_thread(self._copy_skills_and_prepare_program_call, question, work)
            lasts = timedelta(seconds=ROLLOUT_TIMEOUT_S)
            sign_ins.copy_sign_in_without_refresh_token(self.solver, question, self.home.clock(), lasts)
            box = solver_box.open_solver_box(self.solver, question, work)
            async with asyncio.timeout(ROLLOUT_TIMEOUT_S):
                said = await run_program_and_parse_answer(
                    self.solver.program, question, call, work, 2 * ROLLOUT_TIMEOUT_S, box=box
                )
            used = said.usage
            return said
        finally:
            await asyncio.to_thread(self.budget.settle, aside, used, name)

    def _copy_skills_and_prepare_program_call(self, question: AgentProgramPrompt, work: Path) -> PreparedCall:
        work.mkdir(parents=True, exist_ok=True)
        call = self.solver.build_call(question)
        for item in self.home.skills.list_skills():
            if item.layer == USER_LAYER:
                lies = self.home.skills.find_directory(f"{item.name}@{USER_LAYER}")
                assert lies is not None, "a home on disk has folders"
                shutil.copytree(lies, question.workspace / self.solver.skills / item.name)
        return call

    def _read_transcripts(self, room: Path) -> list[StudiedTurn]:
        turns: list[StudiedTurn] = []
        most = _MAX_TRANSCRIPT_BYTES
        for path in sorted(room.glob(self.solver.transcripts)):
            # What a program without a box left may be a link to a file of this machine, or a pipe.
            if not (path.is_file() and path.resolve().is_relative_to(room.resolve())) or path.suffix == ".zst":
                continue
            if (most := most - path.stat().st_size) >= 0:
                visit_studied_turns_of_file(path, self.home.redactor, turns.append)
        return turns

    def _is_skill_opened(self, turns: Sequence[StudiedTurn], calls: Sequence[ToolCallOfAttempt]) -> bool:
        used = {names.canonicalize_name(use.skill) for turn in turns for use in turn.skill_uses}
        return self.skill in used or any(f"{self.skill}/SKILL.md" in call.arguments for call in calls)

    def _is_skill_followed(self, task: Task, calls: Sequence[ToolCallOfAttempt], reply: str) -> bool:
        done = "\n".join([*(call.arguments for call in calls), reply])
        return has_left_trace_of_steps(self.home.skills.load(self.skill).body, (), request=task.request, done=done)


# Messages of the program itself, which it gives as an answer and with exit code 0.
_OWN_MESSAGE = re.compile(
    r"(?:(?:error: )?(?:not logged in|invalid api key|please run /login|credit balance is too low|api error: ?\d{3})"
    r"|you'?(?:ve| have) (?:hit|reached) your .{0,40}limit|.{0,40}(?:usage|rate) limit (?:reached|exceeded)"
    r"|bwrap: execvp)",
    re.IGNORECASE,
)
_NO_HELPER = re.compile(
    r"(?:bwrap|bubblewrap|sandbox-exec|landlock|seccomp|codex-linux-sandbox|ripgrep|\brg\b)\b.{0,80}"
    r"(?:not found|no such file|not permitted|not available|failed to (?:start|spawn)|missing)",
    re.IGNORECASE | re.DOTALL,
)


def _find_program_failure(reply: str, turns: Sequence[StudiedTurn]) -> str:
    """Return why the program could not work at all: no sign-in, a limit, or no helper to run commands with."""
    first = reply.strip().partition("\n")[0]
    if _OWN_MESSAGE.match(first):
        return f"the program says: {first[:200]}"
    results = [event for turn in turns for event in turn.turn.events if event.kind is EventKind.TOOL_RESULT]
    errors = [get_text_detail(event, "error") for event in results]
    is_helpless = bool(errors) and all(_NO_HELPER.search(error) for error in errors)
    return f"the program has no helper to run commands: {errors[0][:200]}" if is_helpless else ""


def _list_submitted_calls(clock: Clock, turn: StudiedTurn) -> list[ToolCallOfAttempt]:
    _, done = mining.convert_transcript_turn_to_observed(turn, clock())
    return [
        ToolCallOfAttempt(
            tool=one.name, arguments=json.dumps(one.arguments), command=str(one.arguments.get("command", ""))
        )
        for one in done.calls
    ]
