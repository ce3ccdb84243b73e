"""Memory in a session: what reaches the prompt and the tools, within what budget, and what is counted of it."""

from __future__ import annotations

import pytest

from habitus.app import Habitus
from habitus.journal.model import ExposureAssignment
from habitus.llm.model import CompletionRequest
from habitus.llm.scripted import ScriptedModel, calls, says
from habitus.memory.model import SCRATCHPAD_TOPIC, Engram, LessonDraft, LessonKind, LessonProducer, LessonScope
from habitus.memory.recall import LESSON_TOKENS, MAX_LESSONS, RULE_TOKENS, SCRATCHPAD_TOKENS
from habitus.text import estimate_tokens

RUN = calls("scratchpad", {"action": "exec", "code": "print(1)", "one_line_description": "read the invoices table"})


def kept(habitus: Habitus, text: str, kind: LessonKind, topic: str = "") -> Engram:
    by = LessonProducer.USER if kind.is_rule else LessonProducer.CEREBELLUM
    draft = LessonDraft(text=text, kind=kind, scope=LessonScope.GLOBAL, topic=topic, produced_by=by, user="ann")
    engram = habitus.memory.encode(draft).engram
    assert engram is not None
    return engram


def pad_description(ask: CompletionRequest) -> str:
    return next(tool.description for tool in ask.tools if tool.name == "scratchpad")


@pytest.mark.req("ME-06", "LP-05")
async def test_a_lesson_about_cells_counts_where_a_cell_ran_and_is_credited_and_exposed_with_its_version(
    habitus: Habitus,
) -> None:
    text = "Read the invoices table with the semicolon as separator."
    lesson = kept(habitus, text, LessonKind.LESSON, SCRATCHPAD_TOPIC)
    model = ScriptedModel([says("There are none."), RUN, says("Done.")])
    async with habitus.session(model) as session:
        first = await session.turn("what is the capital of the moon")
        assert habitus.memory.get(lesson.id).counters.retrievals == 0
        second = await session.turn("read the invoices table with its separator")
    assert text in pad_description(model.asked[0])
    counters = habitus.memory.get(lesson.id).counters
    assert (counters.retrievals, counters.helpful) == (1, 1)
    began = ExposureAssignment(
        item=lesson.id,
        kind="lesson",
        version=lesson.version,
        is_steady=True,
        request_kind="short task",
        tokens=estimate_tokens(text),
        is_used=True,
    )
    for turn, shown in ((first, [began]), (second, [])):  # what was offered once stays, and is one exposure
        assert [one for one in habitus.journal.get_turn(turn.turn).exposures if one.item == lesson.id] == shown
    habitus.memory.edit(lesson.id, by="ann", text=f"{text} It has a header.")
    again = ScriptedModel([says("There are none.")])
    async with habitus.session(again) as session:
        third = await session.turn("what is the capital of the sun")
    (exposed,) = [one for one in habitus.journal.get_turn(third.turn).exposures if one.item == lesson.id]
    assert exposed.version == lesson.version + 1


@pytest.mark.req("LP-05", "CL-07")
def test_a_loop_that_is_not_offered_the_scratchpad_was_not_shown_its_lessons(habitus: Habitus) -> None:
    lesson = kept(
        habitus, "Read the invoices table with the semicolon as separator.", LessonKind.LESSON, SCRATCHPAD_TOPIC
    )
    for profile, shown in (("default", []), ("all", [lesson.id])):
        with habitus.turn("what is the capital of the moon", user="ann", conversation=profile) as turn:
            turn.tools(profile=profile)
            turn.done("It has none.")
        (journalled,) = habitus.journal.list_session_turns(profile)
        assert [one.item for one in journalled.exposures if one.kind == "lesson"] == shown


@pytest.mark.full
@pytest.mark.req("ME-06")
async def test_each_part_of_memory_keeps_to_its_budget(habitus: Habitus) -> None:
    places = ("harbour", "station", "market", "library", "theatre", "airport", "museum", "stadium", "bridge", "castle")
    long = " ".join(["whose clerk keeps a paper copy in the blue folder"] * 28)
    pads, rules, lessons = [], [], []
    for place in places:
        lessons.append(kept(habitus, f"The {place} invoice has a {place} stamp, {long}.", LessonKind.LESSON))
        rules.append(kept(habitus, f"Always file {place} papers under {place}, {long}.", LessonKind.ALWAYS))
        pads.append(
            kept(habitus, f"Open the {place} sheet by its {place} name, {long}.", LessonKind.LESSON, SCRATCHPAD_TOPIC)
        )
    model = ScriptedModel([says("Well.")])
    async with habitus.session(model) as session:
        await session.turn("which stamp does the harbour invoice have")
    (ask,) = model.asked
    block = repr(ask.messages)
    for engrams, where, budget in (
        (rules, ask.system, RULE_TOKENS),
        (lessons, block, LESSON_TOKENS),
        (pads, pad_description(ask), SCRATCHPAD_TOKENS),
    ):
        shown = [engram.text for engram in engrams if engram.text in where]
        assert 0 < sum(map(estimate_tokens, shown)) <= budget
        assert len(shown) < len(engrams)
    assert sum(lesson.text in block for lesson in lessons) <= MAX_LESSONS
    assert lessons[0].text in block
    assert not any(pad.text in block + ask.system for pad in pads)
