"""The turn as an object, in the hands of a loop that is not ours."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import pytest

from habitus.agent.hosted_turn import HostTurn
from habitus.app import Habitus, read_settings
from habitus.errors import Invalid, Refused
from habitus.events import OutcomeKind
from habitus.journal.model import SkillPlacementKind, Turn
from habitus.journal.usage import get_deciding_or_heaviest_outcome
from habitus.memory.model import LessonProducer
from habitus.skills.model import Manifest, Skill, Stage

LESSON = "Give the day as YYYY-MM-DD when asking for the weather."


@pytest.fixture(autouse=True)
def brew_tea(habitus: Habitus) -> None:
    habitus.skills.create(
        Skill(name="brew-tea", description="How tea is brewed", body="1. Boil."), habitus.build_author()
    )


def only(habitus: Habitus, conversation: str = "c1") -> Turn:
    (turn,) = habitus.journal.list_session_turns(conversation)
    return turn


def went(turn: Turn) -> tuple[OutcomeKind, str]:
    judged = get_deciding_or_heaviest_outcome(turn.outcomes)
    assert judged is not None
    return judged.kind, judged.reason


@pytest.mark.req("CL-07")
def test_a_loop_of_ones_own_is_shown_offered_and_journalled_what_our_own_session_would_be(habitus: Habitus) -> None:
    with habitus.turn("how is tea brewed?", user="ana", conversation="c1", tools=["get_weather"]) as turn:
        assert "brew-tea" in turn.system
        assert "brew-tea" in turn.context
        assert {"name", "description", "input_schema"} == turn.tools("anthropic")[0].keys()
        assert turn.tools("openai")[0]["function"]["name"] == turn.tools()[0]["name"]
        result = turn.run("recall_skill", {"name": "brew-tea"})
        assert "1. Boil." in result.content
        assert turn.observe("get_weather", {"day": "today"}, "rain") == ""
        turn.done("Boil it.")
    kept = only(habitus)
    assert (kept.id, kept.user, kept.request) == (turn.id, "ana", "how is tea brewed?")
    assert "Boil it." in repr(kept.messages)
    assert "rain" in repr(kept.messages)
    assert ("brew-tea", SkillPlacementKind.LOADED) in {(entry.name, entry.place) for entry in kept.selected}
    assert went(kept)[0] is OutcomeKind.OK
    assert habitus.skills.read_counters("brew-tea")[Stage.STEPS].used == 1


@pytest.mark.req("CL-07")
def test_a_turn_without_a_block_is_opened_and_closed_and_unopened_it_says_so(habitus: Habitus) -> None:
    door = habitus.turn("how is tea brewed?", conversation="c1")
    with pytest.raises(Invalid, match=r"The turn is not open\. Say 'with habitus\.turn"):
        door.run("recall_skill", {"name": "brew-tea"})
    with pytest.raises(AttributeError):
        _ = door.no_such_thing
    turn = door.open()
    assert "1. Boil." in turn.run("recall_skill", {"name": "brew-tea"}).content
    turn.done("Boil it.")
    turn.close()  # once more changes nothing
    assert went(only(habitus))[0] is OutcomeKind.OK


@pytest.mark.full
@pytest.mark.req("CL-07")
async def test_an_asynchronous_loop_has_the_same_turn_and_its_own_loop_goes_on(habitus: Habitus) -> None:
    async with habitus.turn("how is tea brewed?", conversation="c1") as turn:
        ran = await asyncio.gather(*(turn.run("search_skills", {"query": f"tea {n}"}) for n in range(20)))
        assert all(result.outcome.is_ok for result in ran)
        assert await turn.observe("get_weather", "{not json", b"\x00\x01", ok=None) == ""
        await turn.failed("the kettle is broken")
    assert went(only(habitus)) == (OutcomeKind.FAILED, "the kettle is broken")


@pytest.mark.full
@pytest.mark.req("CL-07")
def test_the_steady_text_stays_the_same_from_turn_to_turn_and_eager_text_is_shown_once(habitus: Habitus) -> None:
    greet = Skill(
        name="greet", description="How to greet", body="Greet them by name.", manifest=Manifest(always_include=True)
    )
    habitus.skills.create(greet, habitus.build_author())
    seen = []
    for text in ("one thing", "another thing"):
        with habitus.turn(text, conversation="c1") as turn:
            seen.append((turn.system, turn.context))
            turn.done("ok")
    assert seen[0][0] == seen[1][0]
    assert ["Greet them by name." in context for _, context in seen] == [True, False]
    assert "greet" in seen[1][1]


@pytest.mark.req("CL-07", "EL-01", "EL-07")
def test_calls_of_theirs_that_fail_are_answered_with_a_nudge_and_teach_a_lesson(home: Path, tmp_path: Path) -> None:
    script = tmp_path / "cheap.json"
    script.write_text(json.dumps([{"answer": {"lessons": [LESSON]}}]))
    environ = {"HOME": str(tmp_path), "HABITUS_ACC_MODE": "active", "HABITUS_CHEAP_MODEL": f"script:{script}"}
    with Habitus.open(read_settings(home, environ)) as habitus:
        with habitus.turn("what is the weather?", conversation="c1") as turn:
            said = [turn.observe("get_weather", {"day": day}, "KeyError: 'day'", ok=False) for day in range(4)]
            turn.failed("no weather")
        nudges = [nudge for nudge in said if nudge]
        assert any("repeated_error_signature" in nudge for nudge in nudges)
        assert len(nudges) == len(set(nudges))
    with Habitus.open(read_settings(home, environ)) as habitus:
        learned = {lesson.text: lesson for lesson in habitus.memory.list_lessons("all")}
    assert (learned[LESSON].produced_by, learned[LESSON].topic) == (LessonProducer.CEREBELLUM, "get_weather")


@pytest.mark.full
@pytest.mark.req("CL-07")
def test_a_turn_left_by_an_exception_or_without_a_word_is_nobodys_mistake(habitus: Habitus) -> None:
    with pytest.raises(ZeroDivisionError), habitus.turn("divide", conversation="c1"):
        _ = 1 / 0
    assert went(only(habitus)) == (OutcomeKind.INFRA, "ZeroDivisionError: division by zero")
    with habitus.turn("say nothing", conversation="c2"):
        pass
    assert went(only(habitus, "c2"))[0] is OutcomeKind.INFRA


@pytest.mark.req("CL-07")
def test_a_turn_ended_twice_or_never_is_written_down_once(habitus: Habitus) -> None:
    with habitus.turn("first", conversation="c1") as first:
        first.done("done")
        first.failed("not any more")
        with pytest.raises(Invalid, match="The turn is over"):
            first.run("list_skills")
    never = habitus.turn("second", conversation="c1").__enter__()
    with habitus.turn("third", conversation="c1") as third:
        third.done("done")
    second = habitus.journal.get_turn(never.id)
    assert second.ended_on is not None
    assert went(second)[0] is OutcomeKind.INFRA
    assert [went(habitus.journal.get_turn(id))[0] for id in (first.id, third.id)] == [OutcomeKind.OK] * 2


@pytest.mark.full
@pytest.mark.req("CL-07")
def test_many_threads_may_use_one_turn(habitus: Habitus) -> None:
    def use(turn: HostTurn, number: int) -> None:
        turn.observe("look", {"number": number}, "seen")
        assert turn.run("search_skills", {"query": "tea"}).outcome.is_ok

    with habitus.turn("look at everything", conversation="c1") as turn:
        threads = [threading.Thread(target=use, args=(turn, number)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        turn.done("seen")
    assert len([event for event in only(habitus).events if event.kind.value == "tool_result"]) == 16


@pytest.mark.req("CL-07", "SC-04")
def test_a_conversation_belongs_to_its_user(habitus: Habitus) -> None:
    with habitus.turn("mine", user="ana", conversation="c1") as turn:
        turn.done("ok")
    with pytest.raises(Refused, match="another user's"), habitus.turn("yours", user="bob", conversation="c1"):
        pass
    for id in ("../up", "a b", "x" * 200):
        with pytest.raises(Invalid, match="can't be a conversation's id"), habitus.turn("hi", conversation=id):
            pass


@pytest.mark.full
@pytest.mark.req("CL-07")
def test_an_outcome_may_come_later_and_be_corrected(habitus: Habitus) -> None:
    with habitus.turn("build it", conversation="c1") as turn:
        turn.done("built")
    habitus.outcome(turn.id, ok=False, reason="two tests fail", by="tests")
    assert went(only(habitus)) == (OutcomeKind.FAILED, "two tests fail")
    habitus.outcome(turn.id, ok=True, by="tests")
    assert went(only(habitus))[0] is OutcomeKind.OK


@pytest.mark.req("CL-07")
def test_tools_of_theirs_open_what_needs_them_and_keep_their_names(habitus: Habitus) -> None:
    forecast = Skill(
        name="forecast", description="How rain is foreseen", manifest=Manifest(requires_tools=("get_weather",))
    )
    habitus.skills.create(forecast, habitus.build_author())
    for tools in ([], ["get_weather"]):
        with habitus.turn("foresee rain", tools=tools) as turn:
            assert ("forecast" in turn.system + turn.context) is bool(tools)
            assert turn.run("recall_skill", {"name": "forecast"}).outcome.is_ok is bool(tools)
            turn.done()
    with habitus.turn("x", tools=["memorize"]) as turn:
        assert "memorize" not in [tool["name"] for tool in turn.tools(profile="all")]
        assert not turn.has("memorize")
        assert [tool["name"] for tool in turn.tools(profile=["recall_skill"])] == ["recall_skill"]
        with pytest.raises(Invalid, match="no profile 'al'"):
            turn.tools(profile="al")
        with pytest.raises(Invalid, match="no form 'xml'"):
            turn.tools("xml")
        turn.done()


@pytest.mark.req("CL-07")
def test_a_turn_that_could_not_begin_leaves_its_conversation_as_it_was(habitus: Habitus, tmp_path: Path) -> None:
    for _ in range(2):
        with (
            pytest.raises(Invalid, match="Can't attach"),
            habitus.turn("look", conversation="c1", attachments=[tmp_path / "nothing.txt"]),
        ):
            pass
    with habitus.turn("look again", conversation="c1") as turn:
        turn.done("nothing there")
    assert only(habitus).request == "look again"


@pytest.mark.req("CL-07")
def test_attached_images_are_handed_to_the_host_and_texts_stand_in_the_context(
    habitus: Habitus, tmp_path: Path
) -> None:
    (tmp_path / "dot.png").write_bytes(b"\x89PNG...")
    (tmp_path / "note.txt").write_text("Water first.")
    with habitus.turn("look", attachments=[tmp_path / "dot.png", str(tmp_path / "note.txt")]) as turn:
        assert [(image.media_type, image.data) for image in turn.images] == [("image/png", b"\x89PNG...")]
        assert "Water first." in turn.context
        turn.done("seen")


@pytest.mark.full
@pytest.mark.req("CL-07")
def test_turns_of_one_conversation_opened_at_once_come_one_after_the_other(habitus: Habitus) -> None:
    opened: list[HostTurn] = []

    def begin(number: int) -> None:
        opened.append(habitus.turn(f"request {number}", conversation="c1").__enter__())

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    opened[-1].done("mine")
    kept = habitus.journal.list_session_turns("c1")
    assert {turn.request for turn in kept} == {f"request {number}" for number in range(6)}
    assert sum(went(turn)[0] is OutcomeKind.INFRA for turn in kept if turn.ended_on) == 5


@pytest.mark.req("CL-07")
def test_only_conversations_in_which_nothing_runs_make_room_for_another(
    habitus: Habitus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("habitus.app.conversations.hosting.MAX_OPEN", 2)
    with habitus.turn("the long one", conversation="long") as long:
        for number in range(4):
            with habitus.turn("a short one", conversation=f"short-{number}") as turn:
                turn.done("ok")
        assert long.run("search_skills", {"query": "tea"}).outcome.is_ok
        long.done("at last", ok=True)
    assert went(only(habitus, "long")) == (OutcomeKind.OK, "")


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


@pytest.mark.req("CL-07")
def test_a_result_that_is_not_text_is_kept_in_words(habitus: Habitus) -> None:
    words: list[tuple[object, str]] = [
        (b"\x00\xff", "[2 bytes]"),
        (None, "null"),
        ({"day": 1, "rain": [True]}, '"rain": [true]'),
        ({("a", 1): 2}, "('a', 1)"),
        ([Hostile()], "<Hostile instance"),
        ({("a", 1): Hostile()}, "<Hostile instance"),
        ("half a \ud83d character", "half a"),
        (float("nan"), "NaN"),
    ]
    with habitus.turn("look", conversation="c1") as turn:
        for content, _ in words:
            assert turn.observe("look", {"it": content}, content) == ""
        turn.done("seen")
    kept = [str(message.content["content"]) for message in only(habitus).messages if message.role == "tool"]
    assert [said in content for (_, said), content in zip(words, kept, strict=True)] == [True] * len(words)


@pytest.mark.full
@pytest.mark.req("CL-07")
def test_a_word_of_the_host_counts_for_more_than_how_it_ended(habitus: Habitus) -> None:
    for number, ok in enumerate((None, True, False)):
        with habitus.turn("build it", conversation=f"c{number}") as turn:
            turn.done("built", ok=ok)
    weights = [[(one.source, one.weight) for one in only(habitus, f"c{number}").outcomes] for number in range(3)]
    assert weights == [[("signal", 0.2)], [("host", 1.0)], [("host", 1.0)]]


@pytest.mark.req("CL-07")
def test_a_turn_of_a_habitus_that_is_closed_says_so(home: Path, tmp_path: Path) -> None:
    habitus = Habitus.open(read_settings(home, {"HOME": str(tmp_path)}))
    turn = habitus.turn("left open", conversation="c1").__enter__()
    habitus.close()
    with pytest.raises(Invalid, match="is closed"):
        turn.done("too late")
    with Habitus.open(read_settings(home, {"HOME": str(tmp_path)})) as again:
        assert went(only(again)) == (OutcomeKind.INFRA, "no feedback")


@pytest.mark.full
@pytest.mark.req("CL-07")
def test_conversations_side_by_side_remember_what_each_of_them_is_told(habitus: Habitus) -> None:
    def tell(number: int) -> None:
        with habitus.turn(f"remember cup number {number}", conversation=f"c{number}") as turn:
            text = f"Cup number {number} is for the {number}. guest."
            results.append(turn.run("memorize", {"text": text, "kind": "lesson"}).outcome.reason)
            turn.done("kept", ok=True)
        notices.extend(turn.notices)

    results: list[str] = []
    notices: list[str] = []
    threads = [threading.Thread(target=tell, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (results, notices) == ([""] * 6, [])


@pytest.mark.full
@pytest.mark.req("CL-07", "CL-05")
def test_the_model_s_own_word_on_a_turn_is_kept_as_such_and_yields_to_any_other(habitus: Habitus) -> None:
    with habitus.turn("brew tea", conversation="c1") as turn:
        assert "Say in 'reason'" in turn.run("report_outcome", {"ok": False}).content
        turn.run("report_outcome", {"ok": False, "reason": "no kettle"})
    (said,) = only(habitus).outcomes
    assert (said.kind, said.source, said.reason) == (OutcomeKind.FAILED, "model", "no kettle")
    assert said.weight < 0.3
    habitus.outcome(turn.id, ok=True, by="tests")
    assert went(only(habitus))[0] is OutcomeKind.OK
    with habitus.turn("brew more", conversation="c2") as turn:
        turn.run("report_outcome", {"ok": True})
        turn.failed("the tests fail")
    assert went(only(habitus, "c2")) == (OutcomeKind.FAILED, "the tests fail")


@pytest.mark.req("CL-07", "CL-05")
def test_why_says_what_was_chosen_and_what_keeps_a_skill_out(habitus: Habitus) -> None:
    person = habitus.build_author()
    rule, needs = Manifest(always_include=True), Manifest(requires_tools=("kettle",))
    habitus.skills.create(Skill(name="greet", description="How to greet", body="Hi.", manifest=rule), person)
    habitus.skills.create(Skill(name="boil", description="How to boil", body="Boil.", manifest=needs), person)
    with habitus.turn("how is tea brewed?", conversation="c1") as turn:
        whole = turn.run("why").content
        assert "By a rule: greet (" in whole
        assert "Left out: boil (gated: needs the tool 'kettle')" in whole
        assert "can be found with search_skills" in whole
        assert "boil is left out: gated: needs the tool 'kettle'." in turn.run("why", {"name": "boil"}).content
        assert "brew-tea is on the menu" in turn.run("why", {"name": "brew-tea"}).content
        assert "it ranks 1" in turn.run("why", {"name": "Brew_Tea", "task": "brew tea"}).content
        assert "Did you mean 'brew-tea'?" in turn.run("why", {"name": "brew-te"}).content
        turn.done()


@pytest.mark.req("LA-02")
def test_a_recipe_is_a_tool_of_its_own_and_none_calls_another(habitus: Habitus) -> None:
    folder = habitus.settings.home / "skills" / "brew-tea"
    block = (
        "params: {query: What to look for}\nsteps:\n- {tool: search_skills, params: {query: $query}, save_as: found}"
    )
    nested = "- tool: look_twice\n  params: {query: x}"
    (folder / "chunks.md").write_text(f"## look twice\n```yaml\n{block}\n```\n## nest\n```yaml\n{nested}\n```\n")
    with habitus.turn("how is tea brewed?", conversation="c1") as turn:
        assert "look_twice" in {tool["name"] for tool in turn.tools()}
        found = turn.run("look_twice", {"query": "tea"})
        assert found.outcome.is_ok
        assert found.content.startswith("1. search_skills: ok")
        assert "There is no tool 'nest'" in turn.run("nest", {}).outcome.reason
        assert not turn.run("look_twice", {}).outcome.is_ok
        turn.done("ok")
    called = [event.detail["name"] for event in only(habitus).events if event.kind.value == "tool_call"]
    assert called == ["look_twice", "search_skills", "nest", "look_twice"]
    reason = "line 9: it calls 'look_twice', a recipe, and recipes can't call recipes; write its steps here"
    assert habitus.recipes.get("nest").reason == reason
    assert habitus.recipes.get("look-twice").counts.used == 1
