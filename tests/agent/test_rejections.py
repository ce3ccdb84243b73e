"""What a person turns down: the agent that proposed it hears why, once, and can't propose it again in silence."""

from __future__ import annotations

import pytest

from habitus.agent.session import Session
from habitus.app import Habitus
from habitus.app.review import inbox
from habitus.app.use_cases import review
from habitus.llm.model import CompletionRequest, PersonMessage, TextContent, ToolResultMessage
from habitus.llm.scripted import calls, says
from habitus.memory.model import Engram, LessonKind
from tests.agent.conftest import Talk
from tests.agent.test_code_tools import ADD

pytestmark = pytest.mark.req("SK-21")

TEA = {"name": "Tea", "title": "Tea", "description": "Brews tea", "content": "1. Boil."}
REFUSAL = "This change of 'tea' (proposal 1) was rejected by ann: we only drink coffee here."


def results(session: Session) -> list[str]:
    return [message.content for message in session.history.messages if isinstance(message, ToolResultMessage)]


def beside(ask: CompletionRequest) -> str:
    """What stands beside the last request of the person."""
    asked = [message for message in ask.messages if isinstance(message, PersonMessage)][-1]
    return "\n".join(part.text for part in asked.parts if isinstance(part, TextContent))


@pytest.mark.req("AG-09")
async def test_the_reason_reaches_the_next_turn_of_the_conversation_once(talk: Talk, habitus: Habitus) -> None:
    session, model = talk([calls("create_skill", TEA), *[says("ok")] * 3])
    await session.turn("keep how tea is made")
    review.reject_items(habitus, ids=("1",), reason="we only drink\ncoffee here")
    await session.turn("what now?")
    await session.turn("and now?")
    assert f"## Turned down by the person\n\n- {REFUSAL}" in beside(model.asked[2])
    assert "Turned down" not in beside(model.asked[3])
    assert all((ask.system, ask.tools) == (model.asked[0].system, model.asked[0].tools) for ask in model.asked)


@pytest.mark.full
async def test_the_reason_reaches_the_next_session_of_the_same_user_once(talk: Talk, habitus: Habitus) -> None:
    session, _ = talk([calls("create_skill", TEA), says("ok")])
    await session.turn("keep how tea is made")
    review.reject_items(habitus, ids=("1",), reason="we only drink coffee here")
    for user, is_told in (("bob", False), (None, True), (None, False)):
        options = {} if user is None else {"user": user}
        session, model = talk([says("ok")], **options)
        await session.turn("hello")
        assert (REFUSAL in beside(model.asked[0])) is is_told


async def test_the_same_change_is_refused_with_the_earlier_reason_and_another_is_not(
    talk: Talk, habitus: Habitus
) -> None:
    better = TEA | {"content": "1. Boil water.\n2. Wait."}
    again = [calls("create_skill", TEA), calls("create_skill", better), says("ok")]
    session, _ = talk([calls("create_skill", TEA), says("ok"), *again])
    await session.turn("keep how tea is made")
    review.reject_items(habitus, ids=("1",), reason="we only drink coffee here.")
    await session.turn("once more")
    refused, other = results(session)[1:]
    assert refused == f"Error: {REFUSAL} Do it another way, or ask the person what they want."
    assert '"proposal": 2' in other


@pytest.mark.full
async def test_a_tool_that_was_turned_down_is_refused_with_the_reason(talk: Talk, habitus: Habitus) -> None:
    session, _ = talk([calls("create_tool", ADD), says("ok"), calls("create_tool", ADD), says("ok")])
    await session.turn("I add all day")
    review.reject_items(habitus, ids=("1",), reason="a calculator does that")
    await session.turn("make it a tool")
    assert results(session)[1].startswith("Error: This change of 'add-up' (proposal 1) was rejected by ann: a calc")


RULE = {"text": "Deploy on Fridays only.", "kind": "always"}


@pytest.mark.some(1)
@pytest.mark.req("ME-04")
@pytest.mark.parametrize("kind", ["always", "when"])
async def test_why_a_rule_was_turned_down_reaches_the_agent_once_and_nobody_else(
    talk: Talk, habitus: Habitus, kind: str
) -> None:
    session, model = talk([calls("memorize", RULE | {"kind": kind}), *[says("ok")] * 3])
    await session.turn("we deploy on Fridays")
    (waiting,) = inbox.list_pending(habitus)
    review.reject_items(habitus, ids=(waiting.id,), reason="only\nthis month.")
    refusal = f"The {kind} entry 'Deploy on Fridays only.' ({waiting.id}) was rejected: only this month (ann)."
    other, others_model = talk([says("ok")], user="bob")
    await other.turn("hello")
    assert refusal not in beside(others_model.asked[0])
    await session.turn("what now?")
    await session.turn("and now?")
    assert f"## Turned down by the person\n\n- {refusal}" in beside(model.asked[2])
    assert "Turned down" not in beside(model.asked[3])


@pytest.mark.some(1)
@pytest.mark.req("ME-04")
@pytest.mark.parametrize("kind", ["always", "lesson"])
async def test_what_was_turned_down_does_not_come_back_as_something_else(
    talk: Talk, habitus: Habitus, kind: str
) -> None:
    session, _ = talk([calls("memorize", RULE), says("ok"), calls("memorize", RULE | {"kind": kind}), says("ok")])
    await session.turn("we deploy on Fridays")
    (waiting,) = inbox.list_pending(habitus)
    review.reject_items(habitus, ids=(waiting.id,), reason="only this month")
    await session.turn("remember it once more")
    assert '"status": "refused"' in results(session)[1]
    assert "rejected: only this month (ann)" in results(session)[1]
    assert inbox.list_pending(habitus) == ()
    assert habitus.memory.list_lessons() == ()
    assert habitus.memory.add("Deploy on Fridays only.", kind=kind).status.is_stored


@pytest.mark.full
@pytest.mark.req("ME-04")
async def test_the_opposite_of_what_was_turned_down_is_something_else(talk: Talk, habitus: Habitus) -> None:
    never = calls("memorize", RULE | {"kind": "never"})
    session, _ = talk([calls("memorize", RULE), says("ok"), never, says("ok")])
    await session.turn("we deploy on Fridays")
    review.reject_items(habitus, ids=(inbox.list_pending(habitus)[0].id,), reason="on the contrary")
    await session.turn("remember that")
    assert [item.subject.kind for item in inbox.list_pending(habitus) if isinstance(item.subject, Engram)] == [
        LessonKind.NEVER
    ]
