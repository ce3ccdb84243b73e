"""One turn: the laws that hold for every one of them, through the session that a program would use."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from habitus.agent.history import MISSING
from habitus.agent.session import Session
from habitus.agent.stream import (
    Consent,
    ConsentQuestion,
    NoticeEvent,
    NudgeEvent,
    ReplyDelta,
    ToolFinished,
    TurnEvent,
    TurnResult,
)
from habitus.agent.turn import MAX_ROUNDS
from habitus.app import Habitus
from habitus.events import AgentEvent, EventKind, FinishedTurnDetails, OutcomeKind
from habitus.llm.model import (
    AssistantMessage,
    CompletionRequest,
    ContextOverflowError,
    PersonMessage,
    ProviderError,
    TextContent,
    ToolResultMessage,
)
from habitus.llm.scripted import build_call, calls, cut_off_reply, hanging_reply, says
from habitus.skills.model import Manifest, Skill
from tests.agent.conftest import Talk


async def events(session: Session, text: str) -> list[TurnEvent]:
    return [seen async for seen in session.turn_stream(text)]


@pytest.mark.req("AG-01")
async def test_a_turn_streams_what_happens_and_ends_with_done(talk: Talk) -> None:
    session, _ = talk([says("Let me see.", build_call("list_skills")), says("There are some.")])
    seen = await events(session, "which skills are there?")
    assert [type(event).__name__ for event in seen if not isinstance(event, ReplyDelta)] == [
        "ToolStarted",
        "ToolFinished",
        "TurnResult",
    ]
    assert "".join(event.text for event in seen if isinstance(event, ReplyDelta)) == "Let me see.There are some."
    done = seen[-1]
    assert isinstance(done, TurnResult)
    assert (done.reply, done.outcome.kind, done.rounds) == ("There are some.", OutcomeKind.OK, 1)
    assert done.usage.input_tokens > 0


@pytest.mark.req("AG-01", "AG-10")
async def test_turn_gives_the_answer_and_the_journal_has_it(talk: Talk, habitus: Habitus) -> None:
    session, _ = talk([says("Forty-two.")])
    done = await session.turn("what is the answer?", caller_id="mine-1")
    kept = habitus.journal.get_turn(done.turn)
    assert (kept.request, kept.session, kept.user, kept.caller_id) == (
        "what is the answer?",
        session.id,
        "ann",
        "mine-1",
    )
    assert [message.role for message in kept.messages] == ["user", "assistant"]
    assert kept.usage["output_tokens"] > 0


@pytest.mark.full
@pytest.mark.req("AG-09")
async def test_ten_turns_send_the_same_system_prompt_and_tools_byte_for_byte(talk: Talk, habitus: Habitus) -> None:
    script = [step for n in range(10) for step in (calls("search_skills", {"query": f"thing {n}"}), says("ok"))]
    session, model = talk(script)
    for number in range(10):
        await session.turn(f"do thing number {number} for me")
    assert len(model.asked) == 20
    assert len({ask.system for ask in model.asked}) == 1
    assert (
        len({json.dumps([[t.name, t.description, dict(t.parameters)] for t in ask.tools]) for ask in model.asked}) == 1
    )


@pytest.mark.req("AG-09")
async def test_a_persons_change_reaches_the_prompt_and_the_agents_own_does_not(talk: Talk, habitus: Habitus) -> None:
    session, model = talk([says("one"), says("two"), says("three")])
    await session.turn("first of three requests")
    habitus.skills.create(Skill(name="by-agent", description="d", body="b"), _agent())
    await session.turn("second of them, different")
    assert model.asked[1].system == model.asked[0].system
    habitus.skills.create(Skill(name="by-ann", description="Brews tea", body="b"), habitus.build_author())
    await session.turn("the third and last thing")
    assert "by-ann — Brews tea" in model.asked[2].system


def _agent() -> Any:
    from habitus.skills.model import ActorKind, Author

    return Author(actor=ActorKind.AGENT, name="agent")


@pytest.mark.req("AG-04")
async def test_after_the_last_round_the_model_sums_up_without_tools(talk: Talk, habitus: Habitus) -> None:
    def script(ask: CompletionRequest) -> AssistantMessage:
        return calls("list_skills") if ask.tools else says("I could not finish. How shall I go on?")

    session, model = talk(script)
    done = await session.turn("go round in circles")
    assert done.rounds == MAX_ROUNDS
    assert len(model.asked) == MAX_ROUNDS + 1
    assert model.asked[-1].tools == ()
    assert done.reply.startswith("I could not finish")
    assert (done.outcome.kind, done.outcome.reason) == (OutcomeKind.FAILED, "the tool rounds ran out")
    kinds = [event.kind for event in habitus.journal.get_turn(done.turn).events]
    assert kinds[-1] is EventKind.CAP_EXHAUSTED


@pytest.mark.some(4)
@pytest.mark.req("AG-05", "SC-01")
@pytest.mark.parametrize("timestamp", range(6))
async def test_history_is_valid_whenever_a_turn_is_cancelled(talk: Talk, habitus: Habitus, timestamp: int) -> None:
    session, model = talk(
        [
            says(
                "Working", build_call("list_skills"), build_call("scratchpad", {"action": "exec", "code": "print(1)"})
            ),
            hanging_reply(after="and then"),
            says("fine"),
        ]
    )
    stream = session.turn_stream("start something")
    for _ in range(timestamp + 1):
        await anext(stream)
    await stream.aclose()
    _check_valid(session)
    assert habitus.journal.list_session_turns(session.id)[-1].outcomes == ()
    model.follow_script([says("fine")])
    done = await session.turn("go on please")
    assert done.reply == "fine"
    _check_valid(session)


def _check_valid(session: Session) -> None:
    """Every call has its result right after it, and a person may speak next."""
    waiting: list[str] = []
    for message in session.history.messages:
        if isinstance(message, ToolResultMessage):
            assert message.call in waiting
            waiting.remove(message.call)
            continue
        assert waiting == []
        waiting = [call.id for call in message.calls] if isinstance(message, AssistantMessage) else []
    assert waiting == []
    last = session.history.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert not last.calls


@pytest.mark.req("AG-05")
async def test_a_call_without_a_result_gets_one_and_the_observers_hear_of_it(talk: Talk) -> None:
    watcher = Watcher()
    session, model = talk([says("ok")], observers=[watcher])
    session.history.add_messages(
        PersonMessage(parts=(TextContent(text="earlier"),)), says("", build_call("list_skills"))
    )
    await session.turn("and now?")
    assert [event.kind for event in watcher.seen] == [EventKind.HISTORY_REPAIR]
    assert model.asked[0].messages[2] == ToolResultMessage(call="", tool="list_skills", content=MISSING)


@pytest.mark.req("AG-02")
async def test_a_fault_of_the_provider_is_an_outcome_and_the_session_goes_on(talk: Talk) -> None:
    session, _ = talk([ProviderError("The provider is down."), says("back again")])
    seen = await events(session, "hello")
    assert isinstance(seen[-1], TurnResult)
    assert (seen[-1].outcome.kind, seen[-1].outcome.reason) == (OutcomeKind.INFRA, "The provider is down.")
    assert NoticeEvent(text="The provider is down.") in seen
    assert (await session.turn("hello again")).reply == "back again"


@pytest.mark.req("AG-06", "SC-01")
@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (build_call("recal_skill", {"name": "x"}), "There is no tool 'recal_skill'. Did you mean 'recall_skill'?"),
        (build_call("recall_skill", "{not json"), "The arguments of recall_skill are not JSON"),
        (build_call("recall_skill", "[1]"), "must be one JSON object, not list"),
        (build_call("recall_skill", {"nmae": "x"}), "Wrong arguments for recall_skill: 'name': field required"),
        (
            build_call("update_skill", {"name": "python-scratch", "operation": "zap"}),
            "Wrong arguments for update_skill",
        ),
        (build_call("scratchpad", {"action": "exec", "code": "  "}), "The cell is empty"),
    ],
)
async def test_wrong_calls_are_told_to_the_model_in_one_line(talk: Talk, asked: Any, told: str) -> None:
    session, model = talk([says("", asked), says("I see.")])
    done = await session.turn("try it")
    returned = model.asked[1].messages[-1]
    assert isinstance(returned, ToolResultMessage)
    assert told in returned.content
    assert "\n" not in returned.content
    assert (done.reply, done.outcome.kind) == ("I see.", OutcomeKind.FAILED)


@pytest.mark.full
@pytest.mark.req("AG-06", "SC-01")
async def test_a_huge_result_is_cut_with_a_mark(talk: Talk) -> None:
    session, model = talk([calls("scratchpad", {"action": "exec", "code": "print('x' * 5_000_000)"}), says("big")])
    await session.turn("print a lot")
    returned = model.asked[1].messages[-1]
    assert isinstance(returned, ToolResultMessage)
    assert len(returned.content) < 21_000
    assert "more characters were cut" in returned.content


@pytest.mark.req("AG-06")
async def test_calls_that_only_read_run_side_by_side(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    running: list[int] = []
    most = 0
    together = asyncio.Barrier(3)

    from habitus.agent.tools.registry import ToolCallContext, ToolRegistry
    from habitus.events import ToolCall, ToolResult

    async def slow(self: ToolRegistry, called: ToolCall, how: ToolCallContext) -> ToolResult:
        nonlocal most
        running.append(1)
        most = max(most, len(running))
        await (asyncio.sleep(0.01) if called.name == "create_skill" else asyncio.wait_for(together.wait(), 300))
        running.pop()
        return ToolResult(content="done")

    monkeypatch.setattr(ToolRegistry, "run_call", slow)
    reads = [build_call("list_skills"), build_call("search_skills", {"query": "x"}), build_call("list_skills")]
    writes = [build_call("create_skill"), build_call("create_skill")]
    session, _ = talk([says("", *reads), says("a"), says("", *writes), says("b")])
    await session.turn("read three things")
    assert most == 3
    most = 0
    await session.turn("write two things")
    assert most == 1


async def test_an_empty_answer_is_asked_for_once_more(talk: Talk) -> None:
    session, _ = talk([says(""), says("Here it is.")])
    assert (await session.turn("well?")).reply == "Here it is."
    session, _ = talk([says(""), says("")])
    done = await session.turn("well?")
    assert (done.reply, done.outcome.reason) == ("", "the answer was empty")


@pytest.mark.req("AG-03")
async def test_a_call_that_did_not_fit_is_asked_for_with_more_room(talk: Talk) -> None:
    session, model = talk([cut_off_reply(""), says("It fits now.")])
    assert (await session.turn("write a long cell")).reply == "It fits now."
    first, second = model.asked
    assert second.max_tokens == 2 * (first.max_tokens or 0)


@pytest.mark.full
async def test_an_overflow_drops_the_oldest_turns_and_never_half_a_pair(talk: Talk) -> None:
    turns = [says("Sure.", build_call("list_skills")), says("a " * 50)] * 4
    session, model = talk([*turns, ContextOverflowError("too long"), says("short now")])
    for number in range(4):
        await session.turn(f"request number {number} with its own words")
    seen = await events(session, "one more")
    assert any(isinstance(event, NoticeEvent) and "oldest turns" in event.text for event in seen)
    assert isinstance(seen[-1], TurnResult)
    assert seen[-1].reply == "short now"
    assert isinstance(model.asked[-1].messages[0], PersonMessage)
    assert len(model.asked[-1].messages) < len(model.asked[-2].messages)
    _check_valid(session)


async def test_an_overflow_that_nothing_can_hint_is_said(talk: Talk) -> None:
    session, _ = talk(lambda ask: ContextOverflowError("The request is larger than the model can read."))
    done = await session.turn("too long a story")
    assert (done.outcome.kind, done.outcome.reason) == (
        OutcomeKind.INFRA,
        "The request is larger than the model can read.",
    )


class Watcher:
    def __init__(self, nudges: Sequence[str] = (), *, raises: bool = False, hangs: bool = False) -> None:
        self.seen: list[AgentEvent] = []
        self.ended: list[FinishedTurnDetails] = []
        self.cancels = 0
        self._nudges = list(nudges)
        self._raises = raises
        self._hangs = hangs
        self.may_learn = asyncio.Event()
        self.may_learn.set()

    def observe(self, event: AgentEvent) -> None:
        self.seen.append(event)
        if self._raises:
            raise RuntimeError("observer")

    async def list_new_advice(self) -> Sequence[str]:
        if self._raises:
            raise RuntimeError("observer")
        if self._hangs:
            await asyncio.Event().wait()
        said, self._nudges = self._nudges, []
        return said

    def drop_cancelled_turn(self) -> None:
        self.cancels += 1

    async def learn(self, ended: FinishedTurnDetails) -> None:
        await self.may_learn.wait()
        self.ended.append(ended)
        if self._raises:
            raise RuntimeError("observer")


@pytest.mark.req("EL-05")
async def test_a_nudge_stands_beside_the_results_of_the_tools(talk: Talk) -> None:
    session, model = talk([calls("list_skills"), says("done")], observers=[Watcher(["Look before you leap."])])
    seen = await events(session, "go")
    assert NudgeEvent(text="Look before you leap.") in seen
    assert model.asked[1].messages[-2:] == (
        ToolResultMessage(call="call-1", tool="list_skills", content=_content(seen)),
        PersonMessage(parts=(TextContent(text="Look before you leap."),)),
    )


def _content(seen: Sequence[TurnEvent]) -> str:
    return next(event.content for event in seen if isinstance(event, ToolFinished))


@pytest.mark.req("EL-07", "SB-04")
async def test_an_observer_that_fails_or_hangs_fails_nothing(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("habitus.agent.open_turn._ADVICE_S", 0.05)
    good = Watcher()
    session, _ = talk([calls("list_skills"), says("fine")], observers=[Watcher(raises=True), Watcher(hangs=True), good])
    done = await session.turn("go")
    assert (done.reply, done.outcome.kind) == ("fine", OutcomeKind.OK)
    assert [event.kind for event in good.seen] == [EventKind.TOOL_CALL, EventKind.TOOL_RESULT]
    await session.close()
    assert [ended.request for ended in good.ended] == ["go"]


@pytest.mark.req("EL-07")
async def test_the_reply_comes_before_learning_ends_and_closing_waits_for_it(talk: Talk) -> None:
    watcher = Watcher()
    watcher.may_learn.clear()
    session, _ = talk([says("here")], observers=[watcher])
    assert (await session.turn("quick")).reply == "here"
    assert watcher.ended == []
    asyncio.get_running_loop().call_later(0.05, watcher.may_learn.set)
    await session.close()
    assert len(watcher.ended) == 1


async def test_a_cancelled_turn_teaches_nothing(talk: Talk) -> None:
    watcher = Watcher()
    session, _ = talk([hanging_reply(after="hm ")], observers=[watcher])
    stream = session.turn_stream("never mind")
    await anext(stream)
    await stream.aclose()
    await session.close()
    assert (watcher.cancels, watcher.ended) == (1, [])


@pytest.mark.req("EL-02")
async def test_the_scratchpad_tells_what_happens_in_it(talk: Talk) -> None:
    watcher = Watcher()
    pad = {"action": "exec", "name": "main"}
    session, _ = talk(
        [
            calls("scratchpad", {**pad, "code": "1/0", "one_line_description": "divide"}),
            calls("scratchpad", {**pad, "code": ""}),
            calls("scratchpad", {"action": "reset", "name": "main"}),
            calls("scratchpad", {**pad, "code": "import os; os._exit(3)"}),
            says("done"),
        ],
        observers=[watcher],
    )
    await session.turn("break things")
    inner = [event for event in watcher.seen if event.kind not in (EventKind.TOOL_CALL, EventKind.TOOL_RESULT)]
    assert [event.kind for event in inner] == [
        EventKind.SCRATCHPAD_CALL,
        EventKind.SCRATCHPAD_RESULT,
        EventKind.SCRATCHPAD_EMPTY_CODE,
        EventKind.SCRATCHPAD_RESET,
        EventKind.SCRATCHPAD_CALL,
        EventKind.SCRATCHPAD_KILLED,
    ]
    assert inner[0].detail == {"name": "main", "code_len": 3, "one_line_description": "divide"}
    assert "ZeroDivisionError" in str(inner[1].detail["error"])
    results = [event.detail["success"] for event in watcher.seen if event.kind is EventKind.TOOL_RESULT]
    assert results == [False, False, True, False]


@pytest.mark.full
@pytest.mark.req("SB-14")
async def test_a_secret_that_a_tool_prints_is_seen_by_nobody(talk: Talk, habitus: Habitus) -> None:
    secret = "sk-ant-api03-" + "Q7w9" * 20
    session, model = talk(
        [
            calls("scratchpad", {"action": "exec", "code": f"print('key is {secret[:20]}' + '{secret[20:]}')"}),
            says("ok"),
        ]
    )
    seen = await events(session, "look for keys")
    returned = model.asked[1].messages[-1]
    assert isinstance(returned, ToolResultMessage)
    assert secret not in returned.content
    assert secret not in _content(seen)
    done = seen[-1]
    assert isinstance(done, TurnResult)
    assert secret not in repr(habitus.journal.get_turn(done.turn))


@pytest.mark.req("SB-14")
async def test_a_secret_that_a_person_or_a_skill_says_reaches_neither_model_nor_journal(
    talk: Talk, habitus: Habitus, tmp_path: Path
) -> None:
    secret = "sk-ant-api03-" + "Q7w9" * 20
    (tmp_path / "notes.txt").write_text(f"the key: {secret}\n")
    manifest = Manifest(always_include=True)
    leaky = Skill(name="leaky", description=f"Uses {secret}", body=f"Send {secret}.", manifest=manifest)
    habitus.skills.create(leaky, habitus.build_author())
    habitus.memory.add(f"the key of the billing service is {secret}", kind="profile")
    session, model = talk([calls("recall_skill", {"name": "leaky"}), says("ok")])
    stream = session.turn_stream(f"my key is {secret}, use it", [tmp_path / "notes.txt"])
    seen = [event async for event in stream]
    assert secret not in repr(model.asked)
    assert any(isinstance(event, NoticeEvent) and event.text.startswith("Secrets were removed") for event in seen)
    done = seen[-1]
    assert isinstance(done, TurnResult)
    assert secret not in repr(habitus.journal.get_turn(done.turn))
    pages = [page.read_text() for page in (habitus.settings.home / "memory").glob("*.md")]
    assert len(pages) == 3
    assert secret not in "".join(pages)


async def test_a_question_to_the_person_decides_whether_a_skill_is_saved_or_waits(talk: Talk, habitus: Habitus) -> None:
    skill = {"name": "tea", "title": "Tea", "description": "Brews tea", "content": "1. Boil water."}
    asked: list[ConsentQuestion] = []

    async def person(question: ConsentQuestion) -> Consent:
        asked.append(question)
        return Consent.YES

    session, model = talk([calls("create_skill", skill), says("saved")], ask=person)
    await session.turn("remember how to brew tea")
    assert [question.text for question in asked] == ["Save the skill 'tea'?"]
    assert "Boil water" in asked[0].detail
    assert habitus.skills.load("tea").body.strip() == "1. Boil water."
    returned = model.asked[1].messages[-1]
    assert isinstance(returned, ToolResultMessage)
    assert json.loads(returned.content) == {"name": "tea", "version": 1}


@pytest.mark.req("AG-06", "SK-21")
async def test_without_a_person_a_skill_waits_and_works_in_this_conversation(talk: Talk, habitus: Habitus) -> None:
    skill = {"name": "tea", "title": "Tea", "description": "Brews tea", "content": "1. Boil water."}
    session, _ = talk(
        [
            calls("create_skill", skill),
            calls("recall_skill", {"name": "tea"}),
            says("waits"),
            calls("recall_skill", {"name": "tea"}),
            says("no"),
        ]
    )
    done = await session.turn("keep this")
    first, second = [m for m in session.history.messages if isinstance(m, ToolResultMessage)]
    assert json.loads(first.content) == {"name": "tea", "version": 1, "status": "proposed", "proposal": 1}
    assert "1. Boil water." in second.content
    assert done.pending == 1
    assert not habitus.skills.is_name_taken("tea")
    other, _ = talk([calls("recall_skill", {"name": "tea"}), says("not here")])
    await other.turn("brew")
    assert "There is no skill 'tea'" in repr(other.history.messages)
