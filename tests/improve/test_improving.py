"""`skills improve` through the product: our agent solves, candidates are gated and examined, and one is proposed."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from habitus.app import Habitus, read_settings
from habitus.app.home_directory import SESSION_PADS_DIR
from habitus.app.learning.improve_store import open_improve_store
from habitus.app.learning.improving import (
    forecast_requested_improvement,
    load_skill_and_assign_task_splits,
    open_improve_run,
    run_or_resume_skill_improvement,
)
from habitus.app.tasks.storing import replace_editable_tasks
from habitus.app.tasks.workspaces import PAD
from habitus.app.use_cases.improving import list_improvements
from habitus.app.use_cases.tasks import remove_task
from habitus.errors import HabitusError
from habitus.events import OK, Outcome, build_failed_outcome, build_infrastructure_failure_outcome
from habitus.files import Tree, build_tree_file
from habitus.improve.candidates import Candidate, CandidateState
from habitus.improve.gate import compute_remaining_error_share
from habitus.improve.plan import ImproveRequest
from habitus.improve.report import describe_candidate_result
from habitus.improve.run import ImproveResult, OpenSolver
from habitus.improve.tasks import choose_splits_for_new_tasks
from habitus.learning.budget import RunBudget, RunLimits
from habitus.llm.model import CompletionRequest, PersonMessage, TokenUsage
from habitus.llm.scripted import ScriptedModel, ScriptStep, calls, says
from habitus.skills.trees import TASKS_FILE
from habitus.tasks.checks import PythonValidatorCheck, ReplyContainsCheck, ReplyMatchesPatternCheck, ToolCalledCheck
from habitus.tasks.files import serialize_tasks
from habitus.tasks.model import Task
from habitus.tasks.rollouts import LOST, Rollout, TaskSplit

NAME = "name-a-town"
SKILL = """---
name: name-a-town
description: Names a town.
always_include: true
---
1. Think of the town.
2. Say its name.
"""
BETTER = SKILL + "3. Write it in capitals.\n"


def _tasks(count: int) -> list[Task]:
    return [
        Task(
            id=f"t{number}",
            request=f"Which town has the number {number:03}?",
            checks=(ReplyMatchesPatternCheck(pattern="^[A-Z]+$"),),
        )
        for number in range(count)
    ]


def furnish(habitus: Habitus, count: int, *more: Task, text: str = SKILL) -> None:
    tree = {
        "SKILL.md": build_tree_file(text.encode()),
        TASKS_FILE: build_tree_file(serialize_tasks([*_tasks(count), *more]).encode()),
    }
    habitus.skills.write_tree("user", NAME, tree, habitus.build_author())


class QuickSolver:
    """Solves as an agent with this text would, and a try costs as much as its text is long."""

    def __init__(self, text: str, outcomes: Callable[[bool], Outcome]) -> None:
        self._text = text
        self._outcomes = outcomes

    async def solve(self, task: Task, rollout: Rollout) -> Rollout:
        outcome = self._outcomes("in capitals" in self._text)
        usage = TokenUsage(input_tokens=len(self._text), output_tokens=10)
        return rollout.with_outcome(outcome, usage=usage, steps=1, is_opened="always_include" in self._text)


def passes(is_right: bool) -> Outcome:
    return OK if is_right else build_failed_outcome("it is no capital letter")


def quick(outcomes: Callable[[bool], Outcome] = passes) -> OpenSolver:
    @asynccontextmanager
    async def opened(tree: Tree) -> AsyncIterator[QuickSolver]:
        content = tree["SKILL.md"].content
        assert content is not None
        yield QuickSolver(content.decode(), outcomes)

    return opened


def _in_view(ask: CompletionRequest) -> str:
    return f"{ask.system}\n{ask.messages}"


def _solver(ask: CompletionRequest) -> ScriptStep:
    return says("ALTBERG" if "in capitals" in _in_view(ask) else "Altberg")


def _draft(text: str, why: str = "It is about the letters.") -> str:
    return json.dumps({"why": why, "edits": [{"operation": "append", "content": text}]})


def playing(drafts: list[str], solve: Callable[[CompletionRequest], ScriptStep] = _solver) -> ScriptedModel:
    """One model that drafts when a shape is asked for, and solves otherwise."""
    left = iter(drafts)

    def step(ask: CompletionRequest) -> ScriptStep:
        return says(next(left)) if "You improve a skill" in ask.system or "You shorten" in ask.system else solve(ask)

    return ScriptedModel(step)


async def run(
    habitus: Habitus,
    request: ImproveRequest,
    drafts: Sequence[str] = (),
    *,
    id: str = "r1",
    outcomes: Callable[[bool], Outcome] = passes,
) -> ImproveResult:
    model = RunBudget().wrap_model(playing(list(drafts)))
    return await open_improve_run(habitus, request, id, model, quick(outcomes)).execute()


@pytest.mark.req("IM-03", "IM-04")
async def test_an_edit_that_helps_is_gated_examined_and_proposed_with_its_table(home: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 24)
        done = await run(
            habitus, ImproveRequest(skill=NAME, rounds=3), [_draft("3. Be brief."), _draft("3. Write it in capitals.")]
        )
        first, second = done.reports
        assert (first.candidate.state, second.candidate.state) == (CandidateState.STOPPED, CandidateState.ACCEPTED)
        assert [first.candidate.number, second.candidate.number] == [1, 2]
        assert second.gate is not None
        assert (second.gate.old, second.gate.new, second.gate.tasks) == (0, 1, 12)
        assert second.gate.interval.low > 0
        assert second.exam is not None
        assert (second.exam.tasks, second.exam.difference, second.opened) == (6, 1, 1)
        assert done.proposal is not None
        reasons = habitus.review.get(done.proposal).reasons
        assert reasons[0] == "better at 95 % on the tasks of its gate, and better on those of its exam"
        assert any("exam: 0 → 100 of 100 on 6 tasks, 2 rounds" in line for line in reasons)
        habitus.review.approve(done.proposal, habitus.build_author())
        assert "in capitals" in habitus.skills.load(NAME).body
        assert list_improvements(habitus, name=NAME).plan.error_left == pytest.approx(compute_remaining_error_share(2))


@pytest.mark.req("IM-04")
async def test_our_own_agent_solves_in_a_home_that_knows_nothing_of_this_one(home: Path) -> None:
    """Two tasks on the gate: one asked in words, one with a file and a program that judges it."""
    task = Task(
        id="write",
        request="Write the town into town.txt.",
        files={"hint.txt": "Altberg"},
        checks=(PythonValidatorCheck(code="assert open('town.txt').read().isupper()"),),
    )
    code = "open('town.txt', 'w').write({}(open('hint.txt').read()))"

    def solve(ask: CompletionRequest) -> ScriptStep:
        how = "str.upper" if "in capitals" in _in_view(ask) else "str"
        if "town.txt" not in _in_view(ask):
            return _solver(ask)
        if isinstance(ask.messages[-1], PersonMessage):
            return calls("scratchpad", {"action": "exec", "name": PAD, "code": code.format(how)})
        return says("Done.")

    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 1, task)
        open_improve_store(habitus).add_task_splits(NAME, {"t0": TaskSplit.GATE, "write": TaskSplit.GATE})
        model = RunBudget().wrap_model(ScriptedModel(solve))
        done = await open_improve_run(habitus, ImproveRequest(skill=NAME, text=BETTER, rounds=1), "r1", model).execute()
        (report,) = done.reports
        assert report.gate is not None
        assert (report.gate.old, report.gate.new, report.candidate.state) == (0, 1, CandidateState.NOT_SHOWN)
        kept = open_improve_store(habitus).list_rollouts(run="r1")
        assert all(one.is_opened and one.tokens for one in kept)
        assert {one.steps for one in kept if one.task == "write"} == {1}
        assert not habitus.journal.list_session_ids()
        assert not list((habitus.writable_dir / SESSION_PADS_DIR).glob("*"))


@pytest.mark.req("IM-04")
async def test_our_own_agent_solves_among_the_nearest_of_the_persons_skills_and_some_others(home: Path) -> None:
    near = [f"find-a-{what}" for what in ("city", "capital", "village", "place", "borough")]
    views = list[str]()

    def solve(ask: CompletionRequest) -> ScriptStep:
        views.append(_in_view(ask))
        return _solver(ask)

    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 2)
        open_improve_store(habitus).add_task_splits(NAME, dict.fromkeys(("t0", "t1"), TaskSplit.GATE))
        for number in range(30):
            text = f"---\nname: cook-{number}\ndescription: Cooks dish {number} with rice.\n---\n1. Cook it.\n"
            habitus.skills.write_tree(
                "user", f"cook-{number}", {"SKILL.md": build_tree_file(text.encode())}, habitus.build_author()
            )
        for name in near:
            text = f"---\nname: {name}\ndescription: Names a town, as {name}.\n---\n1. Say it.\n"
            habitus.skills.write_tree(
                "user", name, {"SKILL.md": build_tree_file(text.encode())}, habitus.build_author()
            )
        model = RunBudget().wrap_model(ScriptedModel(solve))
        await open_improve_run(habitus, ImproveRequest(skill=NAME, text=BETTER, rounds=1), "r1", model).execute()
    among = [{name for name in (*near, *(f"cook-{n}" for n in range(30))) if f"- {name} — " in view} for view in views]
    assert len(views) == 4
    assert all(one == among[0] for one in among)
    assert set(near) <= among[0]
    assert len(among[0]) == 10


@pytest.mark.req("IM-04")
async def test_what_was_measured_is_not_measured_again(home: Path) -> None:
    """The run is cut off in the middle of a rollout; the next process goes on, and counts the lost one as paid."""
    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 16)
        tries = 0

        def until_killed(is_right: bool) -> Outcome:
            nonlocal tries
            tries += 1
            if tries == 7:
                raise SystemError
            return passes(is_right)

        request = ImproveRequest(skill=NAME, rounds=3, text=BETTER)
        with pytest.raises(SystemError):
            await run(habitus, request, outcomes=until_killed)
        store = open_improve_store(habitus)
        before = [one.id for one in store.list_rollouts(run="r1") if one.is_counted]
        assert len(before) == 6
        done = await run(habitus, request)
        kept = store.list_rollouts(run="r1")
        assert [one.id for one in kept if one.is_counted][:6] == before
        assert [one.outcome for one in kept].count(LOST) == done.lost == 1
        assert len({(one.side, one.round, one.task, one.is_new) for one in kept if one.is_counted}) == len(kept) - 1
        assert done.proposal is not None
        assert max(one.number for one in store.list_candidates(NAME)) == 1
        assert done.tokens == sum(one.tokens for one in kept if one.outcome == LOST) + sum(
            one.tokens for one in kept if one.id in before
        )


@pytest.mark.req("IM-04")
async def test_what_a_spent_budget_or_a_pause_left_open_the_next_run_goes_on_with(home: Path) -> None:
    """Gate and exam of a candidate are one, whoever's runs they were, and its share of the error is spent once."""
    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 16)
        store, request, tries = open_improve_store(habitus), ImproveRequest(skill=NAME, rounds=3), 0

        def pausing(at: int) -> Callable[[bool], Outcome]:
            def outcome(is_right: bool) -> Outcome:
                nonlocal tries
                tries += 1
                if tries == at:
                    habitus.pause.pause("ann")
                return passes(is_right)

            return outcome

        for at, draft in ((12, [_draft("3. Write it in capitals.")]), (34, [])):  # in its gate, and in its exam
            with pytest.raises(HabitusError, match="paused"):
                await run(habitus, request, draft, id=f"r{at}", outcomes=pausing(at))
            assert tries == at
            with pytest.raises(HabitusError, match="paused"):
                await run_or_resume_skill_improvement(habitus, request, run="r0")
            habitus.pause.resume()
        done = await run(habitus, request, id="last")
        kept = store.list_rollouts(skill=NAME)
        assert len({(one.side, one.round, one.task, one.is_new) for one in kept}) == len(kept)
        assert [one.number for one in store.list_candidates(NAME)] == [1]
        assert done.proposal is not None
        other = await run(
            habitus, ImproveRequest(skill=NAME, rounds=3, candidates=1), [_draft("3. Hurry.")], id="other"
        )
        assert [one.candidate.number for one in other.reports] == [2]


@pytest.mark.req("IM-04")
async def test_several_tries_at_a_time_come_to_the_same(home: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 16)
        running, most, together = 0, 0, asyncio.Event()

        class Slow:
            async def solve(self, task: Task, rollout: Rollout) -> Rollout:
                nonlocal running, most
                running += 1
                most = max(most, running)
                if most == 4:
                    together.set()
                await together.wait()
                running -= 1
                return rollout.with_outcome(OK)

        @asynccontextmanager
        async def opened(tree: Tree) -> AsyncIterator[Slow]:
            yield Slow()

        request = ImproveRequest(skill=NAME, text=BETTER, rounds=2, parallel=4)
        done = await open_improve_run(habitus, request, "r1", None, opened).execute()
        assert most == 4
        assert (done.rollouts, done.reports[0].candidate.state) == (2 * 8, CandidateState.STOPPED)


@pytest.mark.req("IM-04")
async def test_what_is_nobodys_failure_is_tried_again_and_not_counted(home: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 16)
        chance = random.Random(1)
        request = ImproveRequest(skill=NAME, text=BETTER, rounds=3)
        done = await run(
            habitus,
            request,
            outcomes=lambda right: (
                build_infrastructure_failure_outcome("busy") if chance.random() < 0.2 else passes(right)
            ),
        )
        assert [one.outcome for one in open_improve_store(habitus).list_rollouts(run="r1")].count("infra") > 3
        assert done.proposal is not None
        broken = await run(
            habitus,
            ImproveRequest(skill=NAME, text=SKILL + "4. Hurry.\n"),
            id="r2",
            outcomes=lambda _: build_infrastructure_failure_outcome("away"),
        )
        assert broken.stopped.endswith("could not be tried 3 times: away")


@pytest.mark.req("IM-04", "IM-06")
async def test_a_budget_that_is_spent_ends_a_run(home: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 16)
        model = RunBudget(RunLimits(tokens=15_000)).wrap_model(ScriptedModel(_solver))
        done = await open_improve_run(habitus, ImproveRequest(skill=NAME, text=BETTER, rounds=3), "r1", model).execute()
        assert done.stopped.startswith("its budget is spent")
        assert done.proposal is None
        assert 0 < done.tokens <= 15_000


@pytest.mark.req("IM-04")
async def test_candidates_that_quote_hidden_tasks_or_change_nothing_are_not_tried(home: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 16)
        tasks = load_skill_and_assign_task_splits(habitus, NAME).tasks
        drafts = [
            _draft(f"3. {tasks[TaskSplit.GATE][0].request[:-1]} is Altberg."),
            _draft("\n".join(f"{number}. Think." for number in range(3, 40))),
            json.dumps({"why": "nothing", "edits": []}),
        ]
        drafter = playing(drafts)
        request = ImproveRequest(skill=NAME, rounds=3)
        done = await open_improve_run(habitus, request, "r1", RunBudget().wrap_model(drafter), quick()).execute()
        reasons = [one.candidate.reason for one in done.reports]
        assert "it quotes a task of the gate or the exam" in reasons[0]
        assert [one.candidate.state for one in done.reports] == [CandidateState.REFUSED] * 3
        assert reasons[1:] == ["it changes 37 lines, and 30 are the most", "it changes nothing"]
        assert list_improvements(habitus, name=NAME).plan.error_left == 1
        first, second, _ = map(_in_view, drafter.asked)
        assert reasons[0] in second  # what was rejected is remembered
        assert all(task.request in first for task in tasks[TaskSplit.PRACTICE])
        assert not any(task.request in first for task in (*tasks[TaskSplit.GATE], *tasks[TaskSplit.EXAM]))


@pytest.mark.full
@pytest.mark.req("IM-03")
async def test_a_shorter_version_that_is_not_worse_is_accepted(home: Path) -> None:
    long = BETTER + "".join(f"{n}. Think once more, and then of something else.\n" for n in range(4, 40))
    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 320, text=long)
        longer = await run(habitus, ImproveRequest(skill=NAME, text=long + "40. Rest.\n", shorter=True))
        assert longer.reports[0].candidate.reason == "it is not shorter"
        (report,) = (await run(habitus, ImproveRequest(skill=NAME, text=BETTER, shorter=True), id="r2")).reports
        assert report.candidate.state is CandidateState.ACCEPTED
        assert report.gate is not None
        assert report.gate.new_tokens < report.gate.old_tokens


@pytest.mark.req("IM-03")
async def test_not_worse_is_refused_before_the_first_rollout_where_there_are_too_few_tasks(home: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 40, text=BETTER)
        with pytest.raises(HabitusError, match="not worse by 3 points takes 158 gate tasks or more, and there are 20"):
            await run(habitus, ImproveRequest(skill=NAME, text=SKILL, shorter=True))
        assert not open_improve_store(habitus).list_rollouts()


@pytest.mark.req("IM-04")
async def test_a_skill_that_is_never_opened_gets_a_new_cue_first(home: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 16, text=SKILL.replace("always_include: true\n", ""))
        done = await run(
            habitus, ImproveRequest(skill=NAME, rounds=2, candidates=1), [_draft("3. Write it in capitals.")]
        )
        assert done.is_never_opened
        assert done.reports[0].candidate.reason == "the skill was never opened, and its cue is as it was"


@pytest.mark.req("IM-03")
async def test_one_that_fails_its_exam_is_not_proposed(home: Path) -> None:
    """Better on the gate, worse on tasks that nobody has used."""
    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 32)
        exam = {task.id for task in load_skill_and_assign_task_splits(habitus, NAME).tasks[TaskSplit.EXAM]}

        @asynccontextmanager
        async def opened(tree: Tree) -> AsyncIterator[Contrary]:
            yield Contrary(b"in capitals" in (tree["SKILL.md"].content or b""))

        class Contrary:
            def __init__(self, is_new: bool) -> None:
                self._is_new = is_new

            async def solve(self, task: Task, rollout: Rollout) -> Rollout:
                return rollout.with_outcome(passes(self._is_new != (task.id in exam)))

        done = await open_improve_run(habitus, ImproveRequest(skill=NAME, text=BETTER), "r1", None, opened).execute()
        assert done.proposal is None
        assert done.reports[0].candidate.state is CandidateState.FAILED_EXAM
        assert done.reports[0].candidate.reason == "better on these tasks, not shown on new ones"


def luck(*flipped: str) -> OpenSolver:
    """A solver at temperature 0: every edit flips these tasks to right, and each answer is the same every time."""

    @asynccontextmanager
    async def opened(tree: Tree) -> AsyncIterator[Certain]:
        yield Certain(b"3." in (tree["SKILL.md"].content or b""))

    class Certain:
        def __init__(self, is_new: bool) -> None:
            self._is_new = is_new

        async def solve(self, task: Task, rollout: Rollout) -> Rollout:
            usage = TokenUsage(input_tokens=100, output_tokens=20)
            return rollout.with_outcome(passes(self._is_new and task.id in flipped), usage=usage, is_opened=True)

    return opened


@pytest.mark.req("IM-03")
async def test_a_solver_that_repeats_itself_ends_after_two_rounds_and_is_said_to_need_more_tasks(home: Path) -> None:
    """One task of eight that flips was accepted once, as nine rollouts that got better."""
    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 32)
        gate = [task.id for task in load_skill_and_assign_task_splits(habitus, NAME).tasks[TaskSplit.GATE]]
        request = ImproveRequest(skill=NAME, text=SKILL + "3. Read the question twice.\n")
        done = await open_improve_run(habitus, request, "r1", None, luck(*gate[:2])).execute()
        (report,) = done.reports
        assert (done.proposal, done.rollouts, report.candidate.state) == (None, 2 * 2 * 16, CandidateState.NOT_SHOWN)
        assert report.candidate.reason == (
            "its answers repeat themselves, so more rounds tell nothing new: more tasks are needed"
        )


@pytest.mark.req("IM-03")
async def test_without_tasks_for_an_exam_nothing_is_proposed(home: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 32)
        for task in load_skill_and_assign_task_splits(habitus, NAME).tasks[TaskSplit.EXAM]:
            remove_task(habitus, NAME, task.id)
        done = await run(habitus, ImproveRequest(skill=NAME, text=BETTER))
        (report,) = done.reports
        assert (done.proposal, report.candidate.state) == (None, CandidateState.FAILED_EXAM)
        told = "better on these tasks; there is no other task to examine it by"
        assert describe_candidate_result(report.candidate) == told


@pytest.mark.req("IM-03")
async def test_better_on_the_gate_alone_is_not_proposed_and_says_so(home: Path) -> None:
    """Nothing changes on new tasks: an exam that is not above zero proposes nothing."""
    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 32)
        gate = [task.id for task in load_skill_and_assign_task_splits(habitus, NAME).tasks[TaskSplit.GATE]]
        request = ImproveRequest(skill=NAME, text=SKILL + "3. Read the question twice.\n")
        done = await open_improve_run(habitus, request, "r1", None, luck(*gate)).execute()
        (report,) = done.reports
        assert (done.proposal, report.candidate.state) == (None, CandidateState.FAILED_EXAM)
        assert describe_candidate_result(report.candidate) == "better on these tasks, not shown on new ones"
        assert report.exam is not None
        assert (report.exam.difference, report.exam.interval.high > 0.2) == (0, True)


@pytest.mark.req("IM-03")
async def test_after_thirty_candidates_only_new_tasks_are_asked(home: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 16)
        store, gate = (
            open_improve_store(habitus),
            load_skill_and_assign_task_splits(habitus, NAME).tasks[TaskSplit.GATE],
        )
        ids = tuple(task.id for task in gate)
        for number in range(30):
            made = Candidate(id=f"c{number}", skill=NAME, run="r", base=1, text="", why="", source="person", tasks=ids)
            begun = store.assign_gate_number_to_candidate(store.add_candidate(made))
            assert begun.number == number + 1
            store.update_candidate(replace(begun, state=CandidateState.NOT_SHOWN))
        request = ImproveRequest(skill=NAME, text=BETTER)
        with pytest.raises(HabitusError, match="no task for a gate that has not judged its last candidate") as refused:
            await run(habitus, request)
        assert "Add tasks that no candidate was tried on" in getattr(refused.value, "hint", "")
        new = [Task(id=f"n{n}", request=f"And now {n}?", checks=_tasks(1)[0].checks) for n in range(30)]
        replace_editable_tasks(habitus, NAME, [*_tasks(16), *new])
        done = await run(habitus, request)
        assert [one.candidate.number for one in done.reports] == [1]
        assert not set(done.reports[0].candidate.tasks) & set(ids)


@pytest.mark.req("IM-06")
async def test_a_budget_that_can_t_pay_one_rollout_is_refused_before_it_starts(home: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 16)
        for request, problem in (
            (ImproveRequest(skill=NAME, text=BETTER, tokens=500), "A budget of 500 tokens can't pay one rollout"),
            (ImproveRequest(skill=NAME, text=BETTER, minutes=0.01), "0.01 minutes can't pay one .* about 0.02 minutes"),
            (ImproveRequest(skill=NAME, solver="codex", dollars=0.01), r"\$0.010 can't pay one .* about \$0.020"),
            (ImproveRequest(skill=NAME, solver="codex", minutes=0.1), "0.1 minutes can't pay one .* about 0.25"),
        ):
            with pytest.raises(HabitusError, match=problem):
                await run(habitus, request)
        dear = ImproveRequest(skill=NAME, model="anthropic:claude-opus-4-5", dollars=0.001)
        assert (
            "a budget of $0.001 can't pay one rollout, which takes about $0.004"
            in forecast_requested_improvement(habitus, dear).problem
        )
        assert not open_improve_store(habitus).list_rollouts()


@pytest.mark.req("IM-04")
async def test_estimates_come_from_measured_rollouts_of_the_same_solver(home: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 16)
        own, program = ImproveRequest(skill=NAME, text=BETTER), ImproveRequest(skill=NAME, solver="claude-code")
        guessed = forecast_requested_improvement(habitus, own)
        assert (guessed.measured, guessed.likely_tokens) == (0, guessed.most_rollouts * (800 + 10))
        assert "a guess, none was measured" in guessed.cost_text
        await run(habitus, own)
        seen = forecast_requested_improvement(habitus, own)
        assert seen.measured > 16
        assert 100 < seen.likely_tokens / seen.most_rollouts < 140  # what QuickSolver takes
        assert (
            forecast_requested_improvement(habitus, program).likely_tokens
            == forecast_requested_improvement(habitus, program).most_rollouts * 21_000
        )


@pytest.mark.req("IM-04")
async def test_one_text_is_tried_for_a_second_agent_and_not_twice_for_one(home: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 16)
        text, states = SKILL + "3. Be brief.\n", []
        for number, solver in enumerate(("", "claude-code", "")):
            request = ImproveRequest(skill=NAME, text=text, solver=solver, rounds=2)
            done = await open_improve_run(habitus, request, f"r{number}", None, luck()).execute()
            states.append(done.reports[0].candidate.state)
        assert states == [CandidateState.STOPPED, CandidateState.STOPPED, CandidateState.REFUSED]

        # Our own agent with another model is another solver, too.
        def another(ask: CompletionRequest) -> ScriptStep:
            return _solver(ask)

        for number, name in enumerate(("one", "two", "one")):
            model = RunBudget().wrap_model(ScriptedModel(another, name=name))
            request = ImproveRequest(skill=NAME, text=text, rounds=2)
            done = await open_improve_run(habitus, request, f"m{number}", model, luck()).execute()
            states.append(done.reports[0].candidate.state)
        assert states[3:] == [CandidateState.STOPPED, CandidateState.STOPPED, CandidateState.REFUSED]


@pytest.mark.req("IM-03")
def test_few_tasks_are_said_to_show_little(home: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 8)
        seen = forecast_requested_improvement(habitus, ImproveRequest(skill=NAME))
        assert (seen.practice, seen.gate, seen.exam, seen.missing, seen.tasks_missing) == (2, 4, 2, 6, 12)
        assert any(
            "With 4 gate tasks a run could show nothing at best; 10 are the fewest" in line for line in seen.lines
        )


@pytest.mark.req("IM-04")
async def test_a_reply_that_lists_the_answers_of_many_tasks_fails_and_its_reading_them_does_not(home: Path) -> None:
    """As mined tasks do, these also ask for a call, whose result has every answer."""
    towns = ("ALTBERG", "NEUDORF", "SEEHEIM", "WALDAU")
    tasks = [
        Task(
            id=town,
            request=f"Write out town {number}.",
            files={"towns.txt": ", ".join(towns)},
            checks=(ReplyContainsCheck(text=town), ToolCalledCheck(tool="scratchpad")),
        )
        for number, town in enumerate(towns)
    ]

    def solve(ask: CompletionRequest) -> ScriptStep:
        if isinstance(ask.messages[-1], PersonMessage):
            return calls("scratchpad", {"action": "exec", "name": PAD, "code": "print(open('towns.txt').read())"})
        number = next(number for number in range(4) if f"Write out town {number}." in _in_view(ask))
        return says(", ".join(towns) if "in capitals" in _in_view(ask) else f"It is {towns[number]}.")

    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 0, *tasks)
        open_improve_store(habitus).add_task_splits(NAME, dict.fromkeys(towns, TaskSplit.GATE))
        model = RunBudget().wrap_model(ScriptedModel(solve))
        await open_improve_run(habitus, ImproveRequest(skill=NAME, text=BETTER, rounds=1), "r1", model).execute()
        made = open_improve_store(habitus).list_rollouts(run="r1")
        assert {(one.is_new, one.is_ok) for one in made} == {(False, True), (True, False)}


@pytest.mark.req("IM-03")
def test_tasks_keep_their_side_and_copies_stay_together() -> None:
    tasks = _tasks(40)
    sides = choose_splits_for_new_tasks(tasks, {})
    assert [list(sides.values()).count(side) for side in TaskSplit] == [10, 20, 10]
    copy = Task(id="copy", request="the number 007 has which town", checks=tasks[7].checks)
    assert choose_splits_for_new_tasks([*tasks, copy], sides) == {"copy": sides["t7"]}
    more = [Task(id=f"n{n}", request=f"And number {n}, in {'x' * n}?") for n in range(20)]
    assert choose_splits_for_new_tasks([*tasks, *more], sides).keys() == {task.id for task in more}


@pytest.mark.req("IM-04")
async def test_bad_requests_are_refused_in_one_line(home: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 16)
        for request, problem in (
            (ImproveRequest(skill=NAME, text="---\nname: [\n---\n"), "The candidate is not a skill"),
            (ImproveRequest(skill=NAME, proposal=99), "99"),
        ):
            with pytest.raises(HabitusError, match=problem):
                await run(habitus, request)
