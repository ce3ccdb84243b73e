"""The person's word rules every number: eight failures through each door, and the same counts in every view."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from habitus.app import Habitus
from habitus.app.learning.due_transitions import list_due_transitions
from habitus.app.learning.usage import find_stale_usage_counters
from habitus.app.use_cases.skills import show_stats
from habitus.events import OutcomeKind
from habitus.journal.model import JudgementSourceKind
from habitus.llm.scripted import ScriptedModel, calls, says
from habitus.memory.model import LessonDraft, LessonKind, LessonProducer, SelfPlayLessonBody
from habitus.skills.edits import EditOperation, TextEdit
from habitus.skills.lifecycle import is_failing
from habitus.skills.model import Stage
from habitus.skills.review import ProposalAction
from habitus.use_counts import UsageCounts
from habitus.web.security import load_sign_in_service
from tests.conftest import Cli
from tests.repl import conftest as repl

API = "/api/v1"
begin_chat = repl.begin
SCRIPT = [calls("recall_skill", {"name": "brew-tea"}), says("It is done.")]


def counts_of(habitus: Habitus, name: str = "brew-tea") -> tuple[int, int, int, int]:
    counted = habitus.skills.read_counters(name).get(Stage.STEPS, UsageCounts())
    return counted.used, counted.succeeded, counted.failed, counted.no_feedback


async def asked(habitus: Habitus) -> str:
    """A session that recalls the skill; returns the turn, which nobody has judged."""
    session = habitus.session(ScriptedModel(list(SCRIPT)))
    done = await session.turn("How is tea brewed?")
    await session.close()
    return done.turn


def hosted(habitus: Habitus, user: str = "", ok: bool | None = None) -> str:
    """A run of a framework, which says nothing about its outcome unless `ok` does."""
    home = habitus.as_user(user) if user else habitus
    with home.turn("How is tea brewed?", conversation=secrets.token_hex(4)) as opened:
        opened.run("recall_skill", {"name": "brew-tea"})
        opened.done("It is done.", ok=ok)
        return opened.id


async def by_command(habitus: Habitus, run_cli: Cli, browser: TestClient, begin_chat: repl.Begin) -> None:
    turn = await asked(habitus)
    assert run_cli("sessions", "outcome", turn, "--failed").code == 0


async def by_chat(habitus: Habitus, run_cli: Cli, browser: TestClient, begin_chat: repl.Begin) -> None:
    chat, _, _ = begin_chat(list(SCRIPT))
    await chat.handle_line("How is tea brewed?")
    await chat.handle_line("/bad it was cold")
    await chat.session.close()


async def by_page(habitus: Habitus, run_cli: Cli, browser: TestClient, begin_chat: repl.Begin) -> None:
    turn = await asked(habitus)
    session = habitus.journal.get_turn(turn).session
    assert browser.post(f"/activity/{session}/{turn}", data={"ok": "false"}).status_code == 200


async def by_session(habitus: Habitus, run_cli: Cli, browser: TestClient, begin_chat: repl.Begin) -> None:
    session = habitus.session(ScriptedModel(list(SCRIPT)))
    await session.turn("How is tea brewed?")
    session.judge(OutcomeKind.FAILED)
    await session.close()


async def by_python(habitus: Habitus, run_cli: Cli, browser: TestClient, begin_chat: repl.Begin) -> None:
    habitus.outcome(await asked(habitus), ok=False)


async def by_rest(habitus: Habitus, run_cli: Cli, browser: TestClient, begin_chat: repl.Begin) -> None:
    api = TestClient(browser.app, base_url=str(browser.base_url))
    told = {"Authorization": f"Bearer {load_sign_in_service(habitus).owner_token}"}
    judged = api.post(f"{API}/turns/{await asked(habitus)}/outcome", json={"ok": False}, headers=told)
    assert judged.status_code == 200, judged.text


Door = Callable[[Habitus, Cli, TestClient, Any], Awaitable[None]]


@pytest.mark.req("SK-06", "LA-06")
@pytest.mark.parametrize("door", [by_command, by_chat, by_page, by_session, by_python, by_rest])
async def test_eight_failures_through_each_door_are_counted_and_propose_to_switch_it_off(
    habitus: Habitus,
    run_cli: Cli,
    browser: TestClient,
    begin_chat: repl.Begin,
    door: Door,
) -> None:
    for number in range(1, 9):
        await door(habitus, run_cli, browser, begin_chat)
        assert counts_of(habitus) == (number, 0, number, 0)
        # At the moment of the judgement by which the upper bound falls below one half, and not before.
        assert len(habitus.review.list_proposals_by_state()) == (number >= 3)
    (proposal,) = habitus.review.list_proposals_by_state()
    assert (proposal.change.action, proposal.change.name) == (ProposalAction.DISABLE, "brew-tea")
    assert find_stale_usage_counters(habitus) == []


@pytest.mark.req("SK-06", "LA-06")
async def test_ten_runs_that_nobody_judged_are_no_feedback_and_let_nothing_climb(habitus: Habitus) -> None:
    for _ in range(10):
        hosted(habitus)
    assert counts_of(habitus) == (10, 0, 0, 10)
    (row,) = show_stats(habitus, name="brew-tea").stats
    assert (row.reliability, row.ran_without_error) == (None, 10)
    assert list_due_transitions(habitus) == ()


@pytest.mark.req("SK-06", "LA-06")
async def test_the_last_word_counts_and_a_person_outweighs_a_program(habitus: Habitus, api: TestClient) -> None:
    turn = await asked(habitus)
    assert counts_of(habitus) == (1, 0, 0, 1)
    habitus.outcome(turn, ok=True)
    assert counts_of(habitus) == (1, 1, 0, 0)
    habitus.outcome(turn, ok=False, by="user", source_kind=JudgementSourceKind.PERSON)
    assert counts_of(habitus) == (1, 0, 1, 0)
    # A program that signs as the person does not overwrite the person.
    for by in ("user", "api"):
        assert api.post(f"{API}/turns/{turn}/outcome", json={"ok": True, "by": by}).status_code == 200
    assert counts_of(habitus) == (1, 0, 1, 0)
    habitus.outcome(turn, ok=True, by="user", source_kind=JudgementSourceKind.PERSON)
    assert counts_of(habitus) == (1, 1, 0, 0)
    assert find_stale_usage_counters(habitus) == []


@pytest.mark.req("SK-06", "LA-06")
async def test_a_correction_is_a_weak_failure_and_counts_in_no_percentage(habitus: Habitus, run_cli: Cli) -> None:
    session = habitus.session(ScriptedModel([*SCRIPT, says("Then so.")]))
    await session.turn("How is tea brewed?")
    await session.turn("No, that is wrong. Do not boil it.")
    await session.close()
    (row,) = show_stats(habitus, name="brew-tea").stats
    assert (row.used, row.failed, row.no_feedback, row.weak_failures, row.reliability) == (1, 0, 1, 1, None)
    header, told = run_cli("skills", "stats", "brew-tea").out.splitlines()
    assert re.split("  +", header)[-3:] == ["no feedback", "corrected", "reliability"]
    assert re.split("  +", told)[-3:] == ["1", "1", "no feedback"]


@pytest.mark.req("LA-06")
def test_a_lesson_opens_the_requests_it_was_chosen_for(
    habitus: Habitus, browser: TestClient, api: TestClient, run_cli: Cli
) -> None:
    body = SelfPlayLessonBody(
        trigger="When rows of two tables are joined", correct_pattern="check both keys for blanks"
    )
    draft = LessonDraft(
        text=body.text, kind=LessonKind.LESSON, produced_by=LessonProducer.DREAM, body=body, verified=True
    )
    lesson = habitus.memory.encode(draft).engram
    assert lesson is not None
    asked = "rows of two tables are to be joined"
    for number, (request, ok) in enumerate(((asked, True), (asked, False), (asked, None), ("paint the fence", True))):
        with habitus.turn(request, conversation=f"c{number}") as opened:
            opened.done("Done.", ok=ok)
    counts = {"total": 3, "succeeded": 1, "failed": 1, "no_feedback": 1}
    shown = api.get(f"{API}/lessons/{lesson.id}").json()["shown"]
    assert {name: shown[name] for name in counts} == counts
    for name, number in counts.items():
        turns = api.get(f"{API}{shown['links'][name]}").json()["turns"]
        assert [turn["request"] for turn in turns] == [asked] * number
    mine = {"HABITUS_USER": habitus.settings.user}
    told = run_cli("lessons", "show", lesson.id, env=mine)
    assert "shown for   3 requests: 1 succeeded, 1 failed, 1 without feedback" in told.out
    assert json.loads(run_cli("lessons", "show", lesson.id, "--json", env=mine).out)["shown"] == shown
    page = browser.get(f"/lessons/{lesson.id}").text
    opened_pages = re.findall(r'href="(/activity\?lesson=[^"]*)">(?:shown for )?(\d+) ', page)
    assert [int(number) for _, number in opened_pages] == list(counts.values())
    for address, number in opened_pages:
        assert browser.get(address.replace("&amp;", "&")).text.count('<span class="name">') == int(number)
    assert f'href="/activity?lesson={lesson.id}"' in browser.get("/lessons").text


@pytest.mark.req("SK-06", "LA-06")
async def test_three_failures_after_an_edit_propose_its_rollback(habitus: Habitus) -> None:
    habitus.outcome(await asked(habitus), ok=True)
    before = habitus.skills.load("brew-tea").body
    habitus.skills.edit(
        "brew-tea", TextEdit(operation=EditOperation.APPEND, content="2. Fry the leaves."), habitus.build_author()
    )
    for _ in range(3):
        assert habitus.review.list_proposals_by_state() == []
        habitus.outcome(await asked(habitus), ok=False)
    (proposal,) = habitus.review.list_proposals_by_state()
    assert proposal.change.action is ProposalAction.WRITE
    habitus.review.approve(proposal.id, habitus.build_author())
    assert habitus.skills.load("brew-tea").body == before


TAMPERED = {
    "counted too much": "UPDATE skill_counts SET succeeded = succeeded + 1",
    "lost": "DELETE FROM skill_counts",
    "a recipe counted": "INSERT INTO recipe_counts (place, skill, recipe, used, succeeded, failed, used_before, "
    "succeeded_before, failed_before) VALUES ('user', 'brew-tea', 'x', 1, 1, 0, 0, 0, 0)",
}


@pytest.mark.req("SK-06", "LA-06")
@pytest.mark.parametrize("statement", TAMPERED.values(), ids=TAMPERED)
async def test_the_doctor_counts_again_and_says_what_differs(habitus: Habitus, run_cli: Cli, statement: str) -> None:
    habitus.outcome(await asked(habitus), ok=False)
    assert "the counters agree with the recorded uses" in run_cli("doctor").out
    with habitus.shared.begin() as connection:
        connection.exec_driver_sql(statement)
    told = run_cli("doctor")
    assert re.search("the counters of brew-tea[^ ]* differ from their recorded uses", told.out)
    assert "the counters agree with the recorded uses" in run_cli("doctor", "--fix").out
    assert counts_of(habitus) == (1, 0, 1, 0)
    assert find_stale_usage_counters(habitus) == []


@pytest.mark.req("SK-06", "LA-06")
def test_switching_off_is_proposed_by_the_upper_bound() -> None:
    assert [is_failing(UsageCounts(succeeded=s, failed=f)) for s, f in ((0, 8), (1, 8), (0, 2), (4, 6))] == [
        *(True, True),
        *(False, False),
    ]
