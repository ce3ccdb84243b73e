"""What reaches a prompt, within which budget, and what is counted for it."""

from __future__ import annotations

import logging

import pytest

from habitus.errors import Invalid, NotFound
from habitus.memory.cortex import Cortex
from habitus.memory.model import (
    HIGH_CONFIDENCE,
    SCRATCHPAD_TOPIC,
    LessonKind,
    LessonProducer,
    LessonScope,
    LessonState,
    SelfPlayLessonBody,
    TrustLevel,
)
from tests.memory.conftest import Clock, Make, lesson

TAUGHT = (
    "CoinGecko rate-limits at 50 requests per minute.",
    "Read CSV files from Excel with encoding utf-8-sig.",
    "The staging database is only reachable through the VPN.",
    "Close the matplotlib figure after saving it, or memory grows.",
    "Playwright needs its browsers installed before the first run.",
    "The invoice PDF has the total on its last page.",
)


@pytest.fixture
def taught(cortex: Cortex) -> Cortex:
    for text in TAUGHT:
        cortex.encode(lesson(text))
    return cortex


@pytest.mark.some(4)
@pytest.mark.req("ME-06", "LP-04")
@pytest.mark.parametrize(
    ("request_", "first"),
    [
        ("fetch the bitcoin price history from coingecko", 0),
        ("load this csv that a colleague exported from excel", 1),
        ("run a query against the staging database", 2),
        ("make 500 plots with matplotlib and save them", 3),
        ("take a screenshot of the page with playwright", 4),
        ("what is the total of this invoice.pdf?", 5),
    ],
)
def test_the_fitting_lesson_comes_first(taught: Cortex, request_: str, first: int) -> None:
    assert taught.recall(request_).lessons[0].text == TAUGHT[first]


@pytest.mark.req("ME-06", "PF-04")
def test_more_lessons_on_one_topic_hide_none_of_them(cortex: Cortex) -> None:
    topic = (
        "Read CSV files from Excel with encoding utf-8-sig.",
        "CSV exports from Excel use a semicolon between columns in Germany.",
        "Dates in a CSV from Excel may be serial numbers.",
        "Leading zeros are lost when Excel writes a CSV.",
        "A CSV that Excel exported may end with empty rows.",
        "Excel cuts CSV cells at 32767 characters.",
    )
    shown = []
    for text in topic:
        cortex.encode(lesson(text))
        shown.append(len(cortex.recall("load this csv that a colleague exported from excel").lessons))
    assert shown == [1, 2, 3, 4, 5, 5]


@pytest.mark.req("ME-06", "LP-04")
@pytest.mark.parametrize(
    "request_",
    [
        "hello",
        "write a poem about autumn",
        "translate this sentence into Spanish",
        "what is the capital of Peru?",
        "",
        "🙂",
    ],
)
def test_an_unrelated_request_gets_no_lesson(taught: Cortex, request_: str) -> None:
    assert taught.recall(request_).lessons == ()


@pytest.mark.req("ME-06")
def test_rules_and_profile_come_always_and_a_persons_first(cortex: Cortex) -> None:
    cortex.encode(
        lesson(
            "Stop after two failures.",
            kind=LessonKind.WHEN,
            confidence=HIGH_CONFIDENCE,
            produced_by=LessonProducer.DETECTOR,
        )
    )
    cortex.add("Quote column names.", kind=LessonKind.ALWAYS)
    cortex.add("Ann is a nurse.", kind=LessonKind.PROFILE)
    found = cortex.recall("anything at all")
    assert [one.text for one in found.rules] == ["Quote column names.", "Stop after two failures."]
    assert [one.text for one in found.profile] == ["Ann is a nurse."]


@pytest.mark.req("ME-06", "EL-06")
def test_rules_over_budget_are_ranked_by_relevance(cortex: Cortex) -> None:
    for text in TAUGHT:
        cortex.encode(lesson(text, kind=LessonKind.WHEN, produced_by=LessonProducer.DETECTOR))
    found = cortex.recall("query the staging database", rule_tokens=15)
    assert [one.text for one in found.rules] == [TAUGHT[2]]
    assert len(found.omitted_rules) == len(TAUGHT) - 1
    assert {left.reason for left in found.left_out} == {"no room in 15 tokens"}


@pytest.mark.req("ME-06")
def test_of_two_that_fit_the_more_useful_comes_first(cortex: Cortex) -> None:
    cortex.encode(lesson("Excel exports of sales have two header rows.", confidence=0.3))
    cortex.encode(lesson("Excel exports of sales have hidden columns.", confidence=0.3))
    for useful in ("e0000001", "e0000002"):
        cortex.record_retrieval([useful])
        cortex.record_helpful("read the excel exports of sales")
        ranked = [one.id for one in cortex.recall("read the excel exports of sales").lessons]
        assert len(ranked) == 2
        for _ in range(6):
            cortex.record_retrieval([ranked[0]])
    assert ranked[0] == "e0000002"


@pytest.mark.req("ME-06")
def test_scratchpad_lessons_are_told_in_the_tools_description_and_nowhere_else(cortex: Cortex) -> None:
    cortex.encode(
        lesson("Print progress in long cells.", topic=SCRATCHPAD_TOPIC, scope=LessonScope.PROJECT, project="/work")
    )
    assert cortex.recall("print progress in long cells", project="/work").lessons == ()
    assert [e.text for e in cortex.recall_scratchpad_lessons(project="/work")] == ["Print progress in long cells."]
    assert cortex.recall_scratchpad_lessons(project="/other") == ()
    assert cortex.recall_scratchpad_lessons(project="/work", tokens=3) == ()


@pytest.mark.req("ME-03")
def test_nobody_sees_another_users_lessons(cortex: Cortex) -> None:
    cortex.encode(lesson("Bob's reports go to the blue folder.", user="bob"))
    assert cortex.recall("where do the reports go, which folder", user="ann").lessons == ()
    assert len(cortex.recall("where do the reports go, which folder", user="bob").lessons) == 1


@pytest.mark.req("EL-05")
def test_memory_knows_what_it_says_already(taught: Cortex) -> None:
    assert taught.has_similar_lesson("The total of the invoice PDF is on its last page.")
    assert not taught.has_similar_lesson("The total of the invoice PDF is on its first page.")
    assert not taught.has_similar_lesson("")


@pytest.mark.req("LP-05")
def test_a_retrieval_is_counted_and_logged_with_its_source(cortex: Cortex, caplog: pytest.LogCaptureFixture) -> None:
    body = SelfPlayLessonBody(trigger="t", correct_pattern="c", source_challenge_hash="abc123")
    cortex.encode(lesson("Sniff the delimiter first.", source="self-play", body=body, produced_by=LessonProducer.DREAM))
    with caplog.at_level(logging.DEBUG, logger="habitus.memory"):
        cortex.record_retrieval(["e0000001", "nothere1"])
    assert "retrieved e0000001 source=self-play source_challenge_hash=abc123" in caplog.text
    counters = cortex.get("e0000001").counters
    assert (counters.retrievals, counters.helpful) == (1, 0)


@pytest.mark.req("LP-05")
def test_credit_goes_only_to_what_was_shown_lately_and_fits_the_request(taught: Cortex, clock: Clock) -> None:
    taught.record_retrieval(["e0000001", "e0000002"])
    assert taught.record_helpful("fetch prices from coingecko") == ("e0000001",)
    assert taught.record_helpful("fetch prices from coingecko") == ()  # once for each time it was shown
    assert taught.record_helpful("query the staging database") == ()  # never shown
    clock.wait(seconds=301)
    assert taught.record_helpful("load a csv from excel") == ()
    taught.record_retrieval(["e0000002"])
    clock.wait(seconds=299)
    assert taught.record_helpful("load a csv from excel") == ("e0000002",)
    counted = {e.id: (e.counters.retrievals, e.counters.helpful) for e in taught.list_lessons()}
    assert counted["e0000001"] == (1, 1)
    assert counted["e0000002"] == (2, 1)


@pytest.mark.req("EL-06")
def test_a_rule_that_is_ignored_is_counted(cortex: Cortex) -> None:
    cortex.encode(lesson("Stop after two failures.", kind=LessonKind.WHEN, produced_by=LessonProducer.DETECTOR))
    assert cortex.record_ignored_rules(["Stop after two failures."]) == ("e0000001",)
    assert cortex.record_ignored_rules(["e0000001", "another rule"]) == ("e0000001",)
    assert cortex.get("e0000001").counters.ignored == 2


@pytest.mark.req("EL-06")
def test_rules_that_never_make_the_cut_age_out(cortex: Cortex) -> None:
    cortex.encode(lesson("Stop after two failures.", kind=LessonKind.WHEN, produced_by=LessonProducer.DETECTOR))
    cortex.add("Quote column names.", kind=LessonKind.ALWAYS)
    ids = ["e0000001", "e0000002"]
    for _ in range(20 - 1):
        assert cortex.record_retrieval([], omitted=ids) == ()
    cortex.record_retrieval(["e0000001"])  # shown once: the count starts anew
    for _ in range(20 - 1):
        cortex.record_retrieval([], omitted=ids)
    (gone,) = cortex.record_retrieval([], omitted=ids)
    assert (gone.id, gone.state, gone.reason) == (
        "e0000001",
        LessonState.ARCHIVED,
        "there was no room for it 20 times in a row",
    )
    assert cortex.restore("e0000001", by="ann").counters.missed == 0


@pytest.mark.req("LP-07")
def test_pruning_archives_what_never_helped(taught: Cortex) -> None:
    for _ in range(5):
        taught.record_retrieval(["e0000001", "e0000002", "e0000003"])
    assert len(taught.prune(dry_run=True)) == 1
    (gone,) = taught.prune()
    assert taught.get(gone.id).state is LessonState.ARCHIVED
    assert len(taught.list_lessons()) == len(TAUGHT) - 1


@pytest.mark.req("ME-07")
def test_compaction_above_twenty_keeps_by_place(cortex: Cortex) -> None:
    for number in range(20):
        cortex.encode(lesson(f"Table {number} has {number + 3} rows."))
    assert cortex.compact(lambda entries: [0]) == ()
    cortex.encode(lesson("Table 20 has 23 rows."))
    for failing in (lambda entries: [99], lambda entries: [], lambda entries: 1 / 0):
        assert cortex.compact(failing) == ()  # type: ignore[arg-type]  # that is the point
    before = {e.id: e.text for e in cortex.list_lessons()}
    gone = cortex.compact(lambda entries: [1, 4])
    left = {e.id: e.text for e in cortex.list_lessons()}
    assert len(left) == 2
    assert left.items() <= before.items()
    assert {e.id for e in gone} == {e.id for e in cortex.list_archived_lessons()} == before.keys() - left.keys()


@pytest.mark.req("LP-08")
def test_what_did_you_learn_today(cortex: Cortex, clock: Clock) -> None:
    cortex.encode(lesson("Old news are old."))
    clock.wait(days=3)
    cortex.encode(lesson("Fresh bread is warm.", produced_by=LessonProducer.DREAM))
    cortex.add("Quote column names.", kind=LessonKind.ALWAYS)
    assert [e.id for e in cortex.list_lessons("today")] == ["e0000003", "e0000002"]
    assert [e.id for e in cortex.list_lessons("week", kind="lesson")] == ["e0000002", "e0000001"]
    assert [e.id for e in cortex.list_lessons("self-play")] == ["e0000002"]
    assert [e.id for e in cortex.list_lessons("all", 1)] == ["e0000003"]
    clock.wait(days=30)
    assert cortex.list_lessons("week") == ()
    with pytest.raises(Invalid, match="There is no time span 'ever'"):
        cortex.list_lessons("ever")


@pytest.mark.req("SK-22")
def test_memory_returns_to_a_timestamp_as_new_versions(cortex: Cortex, clock: Clock) -> None:
    cortex.add("Dates are day-first.")
    cortex.add("The log is long.")
    clock.wait(minutes=1)
    then = clock()
    clock.wait(minutes=1)
    cortex.edit("e0000001", by="ann", text="Dates are ISO.")
    cortex.remove("e0000002", by="ann")
    cortex.add("Nobody knows.")
    now = clock()
    clock.wait(minutes=1)
    planned = cortex.roll_back_to(then, by="ann", dry_run=True)
    assert [(step.id, step.action) for step in planned] == [
        ("e0000001", "change"),
        ("e0000002", "restore"),
        ("e0000003", "archive"),
    ]
    assert cortex.get("e0000001").text == "Dates are ISO."
    assert cortex.roll_back_to(then, by="ann") == planned
    assert {e.text for e in cortex.list_lessons()} == {"Dates are day-first.", "The log is long."}
    assert cortex.roll_back_to(then, by="ann") == ()
    cortex.roll_back_to(now, by="ann")
    assert {e.text for e in cortex.list_lessons()} == {"Dates are ISO.", "Nobody knows."}
    assert [version.number for version in cortex.get_history("e0000001")] == [1, 2, 3, 4]


def test_an_unknown_id_is_answered_with_the_nearest(cortex: Cortex) -> None:
    cortex.add("Dates are day-first.")
    assert cortex.get("e00").text == "Dates are day-first."
    with pytest.raises(NotFound, match=r"There is no lesson 'e0000011'\. Did you mean 'e0000001'\?"):
        cortex.get("e0000011")


def test_what_another_process_taught_is_recalled_here(make: Make) -> None:
    here, there = make(), make()
    here.recall("anything")
    there.encode(lesson(TAUGHT[0]))
    assert [one.text for one in here.recall("prices from coingecko").lessons] == [TAUGHT[0]]
    assert there.get("e0000001").trust is TrustLevel.AUTOMATIC
