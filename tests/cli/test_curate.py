"""`habitus learn curate` and `habitus lessons retract` as a person types them."""

from __future__ import annotations

import asyncio
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from habitus.app import Habitus, read_settings
from habitus.learning.detectors.rules import RULES as RULES_OF_DETECTORS
from habitus.llm.model import ToolResultMessage
from habitus.llm.scripted import ScriptedModel, calls, says
from habitus.memory.model import LessonDraft, LessonKind, LessonProducer, LessonProvenance, LessonScope
from habitus.operating_system import get_account_name
from tests.cli.conftest import Direct

FEW = {"HABITUS_RETENTION_LESSONS": "4"}
_THINGS = (
    *("column names", "row count", "workbook", "invoice", "calendar", "passport", "balance", "bicycle", "telescope"),
    *("umbrella", "garden", "ladder", "violin", "harbour", "kitchen", "lantern", "mountain", "notebook", "orchard"),
    *("pillow", "quarry"),
)
RULES = tuple(f"Always check the {thing}." for thing in _THINGS)  # one more than a compaction leaves
LESSONS = ("The export has a header.", "Dates are day-first.", "Totals include tax.", "The log rotates at noon.")


def opened(direct: Direct) -> Habitus:
    return Habitus.open(read_settings(direct.home, {**direct.cli.environ(), **FEW, "USER": get_account_name()}))


def taught(direct: Direct) -> list[str]:
    """Too many rules of our detectors, and four lessons of which one was shown again and again for nothing."""
    with opened(direct) as habitus:
        for text in RULES:
            draft = LessonDraft(
                text=text, kind=LessonKind.ALWAYS, scope=LessonScope.GLOBAL, produced_by=LessonProducer.DETECTOR
            )
            habitus.memory.encode(draft)
        ids = []
        for text in LESSONS:
            draft = LessonDraft(
                text=text, kind=LessonKind.LESSON, scope=LessonScope.GLOBAL, produced_by=LessonProducer.CEREBELLUM
            )
            kept = habitus.memory.encode(draft).engram
            assert kept is not None
            ids.append(kept.id)
        for _ in range(5):
            habitus.memory.record_retrieval(ids[:1])
    return ids


@pytest.mark.req("LP-07", "ME-07")
def test_rules_and_lessons_that_have_aged_are_named_and_then_archived(direct: Direct) -> None:
    useless = taught(direct)[0]
    told = direct.json("learn", "curate", env=FEW)
    assert [(step["action"], step["text"]) for step in told["steps"]] == [
        ("compact", told["steps"][0]["text"]),
        ("prune", LESSONS[0]),
    ]
    assert told["steps"][0]["text"] in RULES
    assert told["steps"][1]["reason"] == "shown again and again, and it never helped"
    assert (told["is_done"], direct.json("lessons", "archive")["lessons"]) == (False, [])
    assert "Nothing was changed; add --apply to do it." in direct.ok("learn", "curate", env=FEW)

    said = direct.ok("learn", "curate", "--apply", env=FEW)
    away = direct.json("lessons", "archive")["lessons"]
    assert {each["text"] for each in away} == {told["steps"][0]["text"], LESSONS[0]}
    undo = said.splitlines()[-1].removeprefix("Undo: habitus ").split()
    assert useless in undo
    direct.ok(*undo)
    assert direct.json("lessons", "archive")["lessons"] == []
    assert {each["text"] for each in direct.json("lessons", "list")["lessons"]} == {*RULES, *LESSONS}
    due = {step["item"] for step in direct.json("learn", "curate", env=FEW)["steps"]}
    assert not due & set(undo)  # a person stands behind these now


@pytest.mark.full
@pytest.mark.req("LP-07")
def test_above_the_cap_the_least_useful_lesson_makes_room(direct: Direct) -> None:
    taught(direct)
    said = direct.ok("lessons", "add", "Invoices are numbered by year.", "--for", "global", env=FEW)
    assert f"  {LESSONS[0]}" in said.partition("Archived because of the limit: ")[2]
    lessons = direct.json("lessons", "list", "--kind", "lesson")["lessons"]
    assert {each["text"] for each in lessons} == {*LESSONS[1:], "Invoices are numbered by year."}


@pytest.mark.full
@pytest.mark.req("LP-07")
def test_a_run_prunes_a_quarter_at_most_and_nothing_that_is_verified(direct: Direct) -> None:
    things = ("invoices", "ledgers", "receipts", "payslips", "budgets", "audits", "tariffs", "refunds")
    with Habitus.open(read_settings(direct.home, {**direct.cli.environ(), "USER": get_account_name()})) as habitus:
        ids = []
        for number, thing in enumerate(things):
            draft = LessonDraft(
                text=f"The {thing} live in folder {number}.",
                kind=LessonKind.LESSON,
                produced_by=LessonProducer.CEREBELLUM,
                verified=number == 0,
            )
            kept = habitus.memory.encode(draft).engram
            assert kept is not None
            ids.append(kept.id)
        for _ in range(5):
            habitus.memory.record_retrieval(ids)
    steps = direct.json("learn", "curate", "--apply")["steps"]
    assert [step["action"] for step in steps] == ["prune", "prune"]
    assert not {ids[0]} & {step["item"] for step in steps}
    assert {lesson["id"] for lesson in direct.json("lessons", "archive")["lessons"]} == {s["item"] for s in steps}


@pytest.mark.req("LP-07", "ME-07", "AG-10")
async def test_the_end_of_a_session_tidies_memory_without_a_model_or_a_sandbox(direct: Direct) -> None:
    taught(direct)
    with opened(direct) as habitus:
        cheap = ScriptedModel([])
        async with habitus.session(ScriptedModel([says("Hello.")]), cheap=cheap) as session:
            await session.turn("say hello to me")
            before = len(habitus.memory.list_archived_lessons())
        assert (before, {engram.text for engram in habitus.memory.list_archived_lessons()} - set(RULES)) == (
            0,
            {LESSONS[0]},
        )
        assert len(habitus.memory.list_lessons(kind=LessonKind.ALWAYS)) == 20
        assert cheap.asked == []
        assert not (direct.home / "sessions").exists()  # no pad
        cached = [path.name for path in (direct.home / "cache").iterdir()]
        assert [name for name in cached if not name.startswith("index-")] == []  # no tool


@pytest.mark.req("ME-03", "LP-07")
async def test_while_paused_nothing_is_tidied_away(direct: Direct) -> None:
    taught(direct)
    direct.ok("learn", "pause")
    with opened(direct) as habitus:
        async with habitus.session(ScriptedModel([says("Hello.")])) as session:
            await session.turn("say hello to me")
        assert habitus.memory.list_archived_lessons() == ()


SHOUT = 'import json, sys\ntext = json.loads(sys.argv[1])["text"]\nassert text == "hi", "no"\nprint(text.upper())\n'
NEW = ("tools", "new", "shout", "-d", "Makes it loud.", "--code", "-", "-p", '{"text": "hi"}')


@pytest.mark.full
@pytest.mark.req("SB-06")
def test_a_tool_is_tested_again_when_its_proof_is_stale_and_retires_when_it_stays_degraded(direct: Direct) -> None:
    direct.ok(*NEW, stdin=SHOUT)
    assert direct.ok("learn", "curate") == "Nothing to curate.\n"
    with closing(sqlite3.connect(direct.home / "habitus.db")) as database, database:
        database.execute("UPDATE tool_health SET proved_as = 'another interpreter'")
    (stale,) = direct.json("learn", "curate")["steps"]
    assert (stale["action"], stale["item"]) == ("test", "shout")
    (tested,) = direct.json("learn", "curate", "--apply")["steps"]
    assert tested["reason"].endswith("its cases pass again")
    assert direct.ok("learn", "curate") == "Nothing to curate.\n"
    with closing(sqlite3.connect(direct.home / "habitus.db")) as database, database:
        database.execute("UPDATE tool_health SET proved_on = '2020-01-02T03:04:05.000000+00:00'")
    (tested,) = direct.json("learn", "curate", "--apply")["steps"]
    assert tested["reason"] == "its cases last passed on 2020-01-02: its cases pass again"

    for _ in range(3):
        assert direct("tools", "run", "shout", '{"text": "ho"}').code == 1
    assert direct("review", "list").err == "1 change pending review: habitus review list\n"
    (repair,) = direct.json("review", "list")["proposals"]
    assert (repair["by"]["name"], repair["name"]) == ("repair", "shout")
    (degraded,) = direct.json("learn", "curate")["steps"]
    assert (degraded["action"], degraded["item"]) == ("test", "shout")
    assert direct.json("tools", "list")["tools"][0]["status"] == "degraded"
    runs = [direct.ok("learn", "curate", "--apply") for _ in range(3)]
    assert all("it has some time yet" in said and "Undo" not in said for said in runs[:2])
    assert "degraded through 3 runs of the curator" in runs[2]
    assert direct.json("tools", "list")["tools"] == []
    direct.ok(*runs[2].splitlines()[-1].removeprefix("Undo: habitus ").split())
    assert direct.json("tools", "list")["tools"][0]["status"] == "active"


@pytest.mark.req("SB-06", "SB-08")
def test_a_tool_whose_cases_fail_with_another_interpreter_is_degraded_and_the_model_told(
    direct: Direct, tmp_path: Path
) -> None:
    """The case notices what is different by a file that the tool may read."""
    marker = tmp_path / "data/interpreter"
    marker.parent.mkdir()
    marker.write_text("3.11")
    code = f"import sys\nassert open({str(marker)!r}).read() == '3.11', 'distutils is gone'\nprint('ok')\n"
    new = ("tools", "new", "probe", "-d", "Probes.", "--code", "-", "--read", str(marker.parent), "--yes")
    direct.ok(*new, stdin=code)
    marker.write_text("3.12")
    with closing(sqlite3.connect(direct.home / "habitus.db")) as database, database:
        database.execute("UPDATE tool_health SET proved_as = 'another interpreter'")
    (tested,) = direct.json("learn", "curate", "--apply")["steps"]
    assert tested["action"] == "test"
    assert "1 of 1 cases fail, and it is degraded" in tested["reason"]
    (listed,) = direct.json("tools", "list")["tools"]
    assert listed["status"] == "degraded"
    assert "failed its own cases" in listed["reason"]
    assert "distutils is gone" in listed["reason"]

    async def told() -> tuple[list[str], str]:
        model = ScriptedModel([calls("recall_skill", {"name": "probe"}), says("I will do without.")])
        with Habitus.open(read_settings(direct.home, direct.cli.environ())) as habitus:
            async with habitus.session(model) as session:
                await session.turn("probe it")
        answers = [message.content for message in model.asked[-1].messages if isinstance(message, ToolResultMessage)]
        return [tool.name for tool in model.asked[0].tools], answers[0]

    tools, recalled = asyncio.run(told())
    assert "probe" not in tools
    assert "is degraded, it failed its own cases" in recalled
    assert "distutils is gone" in recalled

    marker.write_text("3.11")
    direct.ok("tools", "test", "probe")
    assert direct.json("tools", "list")["tools"][0]["status"] == "active"
    assert direct.ok("learn", "curate") == "Nothing to curate.\n"


@pytest.mark.full
@pytest.mark.req("ME-03", "LP-07")
async def test_all_that_one_conversation_taught_is_withdrawn_and_can_be_had_back(direct: Direct) -> None:
    def memorizing(text: str) -> ScriptedModel:
        return ScriptedModel([calls("memorize", {"text": text, "kind": "lesson"}), says("Kept.")])

    with opened(direct) as habitus:
        async with habitus.session(memorizing("The archive is on the second disk.")) as wrong:
            await wrong.turn("remember where the archive is")
        async with habitus.session(memorizing("Invoices are numbered by year.")) as right:
            await right.turn("remember how invoices are numbered")
    assert direct("lessons", "retract").err.startswith("habitus: Name the turn or session.")
    assert direct("lessons", "retract", "--turn", "nope").err.startswith("habitus: No lessons come")
    said = direct.ok("lessons", "retract", "--session", wrong.id)
    assert said.splitlines()[0].endswith("  The archive is on the second disk.")
    (left,) = direct.json("lessons", "list")["lessons"]
    assert left["text"] == "Invoices are numbered by year."
    (away,) = direct.json("lessons", "archive")["lessons"]
    assert away["reason"].startswith(f"withdrawn with session {wrong.id} by ")
    direct.ok(*said.splitlines()[-1].removeprefix("Undo: habitus ").split())
    assert len(direct.json("lessons", "list")["lessons"]) == 2
    told = direct.json("lessons", "retract", "--turn", left["evidence"]["trace"])
    assert [each["text"] for each in told["lessons"]] == ["Invoices are numbered by year."]


@pytest.mark.req("LA-04", "SK-12")
def test_of_two_skills_that_say_the_same_one_takes_what_the_other_adds_and_the_other_goes(direct: Direct) -> None:
    steps = "1. Read the file.\n2. Add the amounts up.\n3. Write the total below the last row.\n"
    for name, more in (("sum-up", ""), ("sum-up-rows", "4. Say which rows were left out.\n")):
        given = ("-d", "Sums up the amounts of a CSV file.", "-w", "Totals of a CSV file are asked for", "-f", "-")
        direct.ok("skills", "new", name, *given, stdin=steps + more)
    (step,) = direct.json("learn", "curate")["steps"]
    assert (step["action"], step["text"]) == ("merge", "put what only sum-up-rows says into sum-up")
    assert "decide with 'habitus review show" in direct("learn", "curate", "--apply").out
    assert "+## From sum-up-rows" in direct.ok("review", "diff", "1")
    direct.ok("review", "approve", "1")
    assert direct.skill_file("sum-up").read_text().endswith("4. Say which rows were left out.\n")
    (step,) = direct.json("learn", "curate")["steps"]
    assert step["text"] == "remove sum-up-rows, which adds nothing"
    direct("learn", "curate", "--apply")
    undo = direct.ok("review", "approve", "2").splitlines()[-1].removeprefix("Undo: habitus ")
    assert direct.ok("learn", "curate") == "Nothing to curate.\n"
    direct.ok(*shlex.split(undo))
    assert direct.skill_file("sum-up-rows").read_text().endswith("4. Say which rows were left out.\n")


@pytest.mark.req("LA-04")
def test_a_case_that_a_skill_fails_now_is_named_and_changes_nothing(stocked: Direct) -> None:
    stocked.ok("skills", "eval", "csv-summary", "--record", "totals of a CSV file by region")
    assert stocked.ok("learn", "curate") == "Nothing to curate.\n"
    assert stocked("skills", "eval", "csv-summary", "--record", "bake a cake").code == 1
    (step,) = stocked.json("learn", "curate", "--apply")["steps"]
    assert (step["action"], step["item"]) == ("fix", "csv-summary")
    assert step["text"].startswith("'bake a cake': ")
    stocked.skill_file("csv-summary").with_name("evals").joinpath("evals.json").write_text("{")
    (step,) = stocked.json("learn", "curate")["steps"]
    assert step["text"].startswith("evals/evals.json of 'csv-summary' is not JSON")


@pytest.mark.req("LP-07", "ME-05")
def test_lessons_that_say_the_same_after_an_edit_are_one_again(direct: Direct) -> None:
    ids = taught(direct)
    direct.ok("lessons", "edit", ids[3], "--text", LESSONS[2])
    said_twice = [
        step for step in direct.json("learn", "curate")["steps"] if step["reason"] == f"{ids[3]} says the same"
    ]
    assert [step["item"] for step in said_twice] == [ids[2]]
    direct.ok("learn", "curate", "--apply")
    assert ids[2] in {each["id"] for each in direct.json("lessons", "archive")["lessons"]}


@pytest.mark.req("EL-05")
def test_two_rules_that_one_turn_taught_of_one_trouble_are_merged(direct: Direct) -> None:
    rules = {name: RULES_OF_DETECTORS[name] for name in ("kill_loop:silence", "repeated_tool_error", "name_switch")}
    with Habitus.open(read_settings(direct.home, {**direct.cli.environ(), "USER": get_account_name()})) as habitus:
        for name, (kind, text) in rules.items():
            evidence = LessonProvenance(detector=name.partition(":")[0], trace="t1")
            habitus.memory.encode(
                LessonDraft(text=text, kind=kind, produced_by=LessonProducer.DETECTOR, evidence=evidence)
            )
    (step,) = direct.json("learn", "curate")["steps"]
    assert (step["action"], step["text"]) == ("prune", rules["repeated_tool_error"][1])
    assert step["reason"].startswith("the same turn taught what is more specific: When a cell is killed only")
    direct.ok("learn", "curate", "--apply")
    left = {each["text"] for each in direct.json("lessons", "list")["lessons"]}
    assert left == {rules[name][1] for name in ("kill_loop:silence", "name_switch")}
