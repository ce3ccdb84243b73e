"""Candidates that need no writer are tried first: undo the last edit, a learned remedy, a worked example, shorter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from habitus.app import Habitus, read_settings
from habitus.app.learning.improve_store import open_improve_store
from habitus.app.learning.improving import forecast_requested_improvement, load_skill_and_assign_task_splits
from habitus.app.tasks.storing import replace_editable_tasks
from habitus.events import OK, Outcome, build_failed_outcome
from habitus.improve.candidates import CandidateState
from habitus.improve.gate import GateHypothesis
from habitus.improve.plan import ImproveRequest
from habitus.improve.rule_based_drafts import EXAMPLE_FILE
from habitus.improve.shortening import drop_untraced_sentences
from habitus.improve.tasks import pick_practice_tasks
from habitus.memory.model import LessonDraft, LessonProducer, LessonProvenance
from habitus.skills.edits import EditOperation, TextEdit
from habitus.skills.model import Skill
from habitus.tasks.model import VARIANT_MARK
from habitus.tasks.rollouts import Rollout, TaskSplit
from tests.improve.test_improving import BETTER, NAME, SKILL, _draft, _tasks, furnish, run
from tests.planted import KEYS


def _edit(habitus: Habitus, operation: EditOperation, content: str) -> None:
    habitus.skills.edit(NAME, TextEdit(operation=operation, content=content), habitus.build_author())


@pytest.mark.req("IM-04")
async def test_the_last_edit_is_undone_first_if_that_is_better(home: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 24, text=BETTER)
        _edit(habitus, EditOperation.DELETE, "3. Write it in capitals.")
        done = await run(habitus, ImproveRequest(skill=NAME, rounds=3))
        (report,) = done.reports
        assert (report.candidate.source, report.candidate.state) == ("rule: undo", CandidateState.ACCEPTED)
        assert done.proposal is not None
        habitus.review.approve(done.proposal, habitus.build_author())
        assert "in capitals" in habitus.skills.load(NAME).body
        again = await run(habitus, ImproveRequest(skill=NAME, rounds=1, candidates=1), [_draft("4. Smile.")], id="r2")
        assert [one.candidate.source for one in again.reports] != ["rule: undo"], "a gate has accepted this text"


@pytest.mark.req("IM-04")
async def test_what_work_with_the_skill_taught_becomes_a_step(home: Path) -> None:
    remedy = "Write it in capitals; `Altberg` is not accepted."
    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 24, text=SKILL.replace("always_include: true\n", ""))
        with habitus.turn("Name a town.", conversation="c1") as turn:
            turn.run("recall_skill", {"name": NAME})
            turn.done("Altberg", ok=False)
        for trace in (turn.id, "of-another-skill"):
            draft = LessonDraft(
                text=remedy if trace == turn.id else "Never whistle.",
                kind="lesson",
                produced_by=LessonProducer.DETECTOR,
                evidence=LessonProvenance(trace=trace, error_signature="not accepted"),
            )
            habitus.memory.encode(draft)
        done = await run(habitus, ImproveRequest(skill=NAME, rounds=3))
        assert [one.candidate.source for one in done.reports] == ["rule: remedy"]
        assert f"\n\nIf it says “not accepted”: {remedy}\n" in done.reports[0].candidate.text


@pytest.mark.req("IM-04")
async def test_an_accepted_run_is_attached_as_an_example_with_one_line_that_points_to_it(home: Path) -> None:
    def outcome(is_right: bool) -> Outcome:
        return OK if is_right or next(tries) % 2 else build_failed_outcome("it is no capital letter")

    tries = iter(range(10_000))
    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 24)
        store, subject = open_improve_store(habitus), load_skill_and_assign_task_splits(habitus, NAME)
        for number, task in enumerate(subject.tasks[TaskSplit.PRACTICE]):
            made = Rollout(
                id=f"p{number}", skill=NAME, run="r0", side=TaskSplit.PRACTICE, round=0, task=task.id, is_new=False,
                version=subject.version,
            )  # fmt: skip
            store.store_begun_rollout(made)
            store.store_finished_rollout(made.with_outcome(OK, f"{'I thought. ' * number}ALTBERG", steps=1))
        done = await run(habitus, ImproveRequest(skill=NAME, rounds=1, candidates=1), outcomes=outcome)
        (report,) = done.reports
        first = subject.tasks[TaskSplit.PRACTICE][0]
        assert report.candidate.source == "rule: example"
        assert report.candidate.files == {EXAMPLE_FILE: f"# A worked example\n\nAsked: {first.request}\n\nALTBERG\n"}
        assert f"A worked example: `{EXAMPLE_FILE}`." in report.candidate.text
        (kept,) = store.list_candidates(NAME)
        assert kept == report.candidate


@pytest.mark.req("IM-04")
async def test_a_worked_example_has_no_secret_of_its_run_or_request(home: Path) -> None:
    key = KEYS["openai"]
    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 24)
        replace_editable_tasks(
            habitus, NAME, [replace(task, request=f"{task.request} Use {key}.") for task in _tasks(24)]
        )
        store, subject = open_improve_store(habitus), load_skill_and_assign_task_splits(habitus, NAME)
        for number, task in enumerate(subject.tasks[TaskSplit.PRACTICE]):
            made = Rollout(
                id=f"p{number}", skill=NAME, run="r0", side=TaskSplit.PRACTICE, round=0, task=task.id, is_new=False,
                version=subject.version,
            )  # fmt: skip
            store.store_begun_rollout(made)
            store.store_finished_rollout(made.with_outcome(OK, f"I took {key}: ALTBERG", steps=1))
        done = await run(habitus, ImproveRequest(skill=NAME, rounds=1, candidates=1), [_draft("4. Smile.")])
        (example,) = done.reports[0].candidate.files.values()
        assert "ALTBERG" in example
        assert key not in example


@pytest.mark.req("IM-03")
def test_a_sentence_that_no_accepted_run_shows_a_trace_of_goes() -> None:
    used = "1. Collect every invoice number from the ledger before anything else happens."
    also = "Consider philosophical questions concerning ancient rivers, too."
    needless = "2. Meditate about philosophical questions concerning ancient mountains."
    skill = Skill(name="close-books", description="Closes the books.", body=f"# Steps\n\n{used} {also}\n{needless}\n")
    runs = ["I collect the invoice numbers from the ledger."] * 5
    shorter = drop_untraced_sentences(skill, runs)
    assert shorter is not None
    assert shorter.body == f"# Steps\n\n{used}\n"
    assert drop_untraced_sentences(skill, runs[:4]) is None, "too few runs to tell"


@pytest.mark.req("IM-03", "IM-04")
@pytest.mark.parametrize(("count", "is_tried"), [(330, True), (100, False)])
async def test_sentences_without_a_trace_go_in_an_ordinary_run_where_the_tasks_can_show_that_it_is_not_worse(
    home: Path, count: int, is_tried: bool
) -> None:
    needless = "3. Meditate about philosophical questions concerning ancient mountains and their rivers.\n"
    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, count, text=f"{BETTER}{needless}")
        store, subject = open_improve_store(habitus), load_skill_and_assign_task_splits(habitus, NAME)
        for number, task in enumerate(subject.tasks[TaskSplit.PRACTICE] * 2):
            made = Rollout(
                id=f"p{number}", skill=NAME, run="r0", side=TaskSplit.PRACTICE, round=number // 12, task=task.id,
                is_new=False, version=subject.version,
            )  # fmt: skip
            store.store_begun_rollout(made)
            did = "Think of the town, say its name and write it in capitals: ALTBERG. " * 70
            store.store_finished_rollout(made.with_outcome(OK, did, steps=1))
        lines = forecast_requested_improvement(habitus, ImproveRequest(skill=NAME)).lines
        done = await run(habitus, ImproveRequest(skill=NAME, rounds=2, candidates=1), [_draft("4. Smile.")])
        (report,) = done.reports
        assert any("no accepted run used takes 158 gate tasks" in line for line in lines) is not is_tried
        assert (report.candidate.source == "rule: untraced") is is_tried
        assert ("Meditate" not in report.candidate.text) is is_tried
        if is_tried:
            assert (report.candidate.claim, report.candidate.state) == (
                GateHypothesis.NOT_WORSE,
                CandidateState.ACCEPTED,
            )
            assert done.proposal is not None


@pytest.mark.req("IM-02")
def test_fresh_instances_replace_the_oldest_in_practice() -> None:
    old = _tasks(14)
    fresh = [replace(old[0], id=f"t0{VARIANT_MARK}1"), *(replace(old[0], id=f"n{number}") for number in range(4))]
    chosen = [task.id for task in pick_practice_tasks([*old, *fresh])]
    assert len(chosen) == 12
    assert chosen[-5:] == [task.id for task in fresh]
    assert "t0" not in chosen, "its family has a fresher one"
    assert chosen[0] == "t7"


@pytest.mark.req("IM-02")
async def test_a_new_task_of_accepted_work_joins_practice_and_hidden_families_never_do(home: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 24)
        before = load_skill_and_assign_task_splits(habitus, NAME).tasks
        gate = before[TaskSplit.GATE][0]
        fresh = [replace(gate, id=f"{gate.id}{VARIANT_MARK}new")]
        replace_editable_tasks(habitus, NAME, [*_tasks(24), *fresh])
        after = load_skill_and_assign_task_splits(habitus, NAME)
        assert fresh[0].id in [task.id for task in after.tasks[TaskSplit.GATE]]
        assert after.previous is None, "its text was never edited"
