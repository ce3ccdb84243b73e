"""What the system prompt asks of the agent."""

from __future__ import annotations

import pytest

from habitus.llm.scripted import says
from tests.agent.conftest import Talk


@pytest.mark.req("AG-08")
async def test_the_prompt_asks_to_keep_procedures_to_hint_them_and_to_memorize_facts(talk: Talk) -> None:
    session, model = talk([says("ok")])
    await session.turn("remember this as a skill")
    kept = model.asked[0].system.partition("## What you keep")[2]
    for asked in ("After work of several steps", "told to remember", "attached Markdown file", "`create_skill`"):
        assert asked in kept
    assert "When the user corrects a procedure, change the skill with `update_skill`" in kept
    assert "of one line goes to `memorize`" in kept
