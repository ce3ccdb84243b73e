"""A session with a real language model: its words are nonsense, everything around them holds."""

from __future__ import annotations

import pytest

from habitus.agent.stream import NoticeEvent, ReplyDelta, TurnResult
from habitus.app import Habitus
from habitus.events import OutcomeKind
from habitus.llm.providers import open_provider_model

pytestmark = pytest.mark.req("AG-01", "AG-02")
MODEL = "openai:smollm2"


@pytest.mark.full
async def test_it_streams_an_answer_can_be_cancelled_and_goes_on(habitus: Habitus, real_address: str) -> None:
    async with habitus.session(open_provider_model(MODEL, {}, base_url=real_address)) as session:
        stream = session.turn_stream("Tell me a long story about a fox.")
        async for seen in stream:
            if isinstance(seen, ReplyDelta):
                break
        await stream.aclose()
        done = await session.turn("Say hello.")
    assert done.reply.strip()
    assert done.usage.input_tokens > 500
    assert len(habitus.journal.list_session_turns(session.id)) == 2


@pytest.mark.full
async def test_a_request_it_can_t_read_is_said_in_one_line(habitus: Habitus, real_address: str) -> None:
    async with habitus.session(open_provider_model(MODEL, {}, base_url=real_address)) as session:
        seen = [event async for event in session.turn_stream("hello " * 4000)]
    done = seen[-1]
    assert isinstance(done, TurnResult)
    assert done.outcome.kind is OutcomeKind.INFRA
    notices = [event.text for event in seen if isinstance(event, NoticeEvent)]
    assert notices == [done.outcome.reason]
    assert "\n" not in notices[0]
