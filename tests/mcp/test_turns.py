"""Turns over MCP: begun by a call, ended by a report, by leaving or by silence, and journalled like any other."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from habitus.app import Habitus
from habitus.events import OutcomeKind
from habitus.journal.model import SkillPlacementKind, Turn
from habitus.skills.model import Stage
from tests.mcp.conftest import MODES, Connect, text_of


def kept(habitus: Habitus) -> list[Turn]:
    turns = [turn for id in habitus.journal.list_session_ids() for turn in habitus.journal.list_session_turns(id)]
    return sorted(turns, key=lambda turn: turn.started_on)


@pytest.mark.some(1)
@pytest.mark.req("CL-05")
@pytest.mark.parametrize("mode", MODES)
async def test_a_turn_begins_with_a_call_and_ends_with_the_report(
    habitus: Habitus, connect: Connect, mode: str
) -> None:
    async with connect(mode) as client:
        await client.list_tools()
        await client.list_prompts()
        assert kept(habitus) == []
        found = text_of(await client.call_tool("search_skills", {"query": "how is tea brewed?"}))
        assert "brew-tea" in found
        assert "1. Boil water." in text_of(await client.call_tool("recall_skill", {"name": "brew-tea"}))
        assert "1. Boil water." in text_of(await client.call_tool("recall_skill", {"name": "Brew_Tea"}))
        done = await client.call_tool("report_outcome", {"ok": True})
        assert done.structured_content == {"recorded": "ok", "weight": "weak: the model's own word"}
        (first,) = kept(habitus)
        assert first.ended_on is not None
        await client.call_tool("recall_skill", {"name": "brew-tea"})
        assert len(kept(habitus)) == 2
    first, second = kept(habitus)
    assert (first.request, first.source_type, first.user) == ("how is tea brewed?", "mcp", "ann")
    assert first.session == second.session
    (judged,) = first.outcomes
    assert (judged.kind, judged.source, judged.weight < 0.3) == (OutcomeKind.OK, "model", True)
    assert [(one.name, one.place) for one in first.selected] == [("brew-tea", SkillPlacementKind.LOADED)]
    (used,) = [one for one in first.exposures if one.is_used]
    assert (used.item, used.kind, used.is_steady) == ("brew-tea", "skill", False)
    assert (second.request, second.outcomes[0].kind) == ("", OutcomeKind.INFRA)
    assert second.ended_on is not None
    # The model's word about itself is no feedback.
    assert habitus.skills.read_counters("brew-tea")[Stage.STEPS].succeeded == 0


@pytest.mark.req("CL-05")
async def test_a_turn_with_many_calls_makes_room_for_the_next(habitus: Habitus, connect: Connect) -> None:
    async with connect(max_calls_per_turn=2) as client:
        for _ in range(5):
            await client.call_tool("recall_skill", {"name": "brew-tea"})
        assert [turn.ended_on is not None for turn in kept(habitus)] == [True, True, False]


class Ring:
    """Holds on to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.mark.req("CL-05")
async def test_cycles_are_freed_every_so_many_calls_so_that_memory_stays_flat_for_weeks(
    habitus: Habitus, connect: Connect
) -> None:
    gc.disable()  # it would come too late
    try:
        left = weakref.ref(Ring())
        async with connect(max_calls_per_turn=2, poll_interval_s=0.01) as client, asyncio.timeout(300):
            while left() is not None:
                await client.call_tool("recall_skill", {"name": "brew-tea"})
    finally:
        gc.enable()


@pytest.mark.req("CL-05")
async def test_a_turn_that_nobody_goes_on_with_is_over(habitus: Habitus, connect: Connect) -> None:
    async with connect(turn_idle_s=0.0) as client:
        await client.call_tool("recall_skill", {"name": "brew-tea"})
        async with asyncio.timeout(300):
            while not [turn for turn in kept(habitus) if turn.ended_on]:
                await asyncio.sleep(0.005)
        await client.call_tool("recall_skill", {"name": "brew-tea"})
    assert [turn.ended_on is not None for turn in kept(habitus)] == [True, True]


@pytest.mark.req("CL-05")
async def test_a_failed_report_says_what_failed_and_needs_a_reason(habitus: Habitus, connect: Connect) -> None:
    async with connect() as client:
        assert (await client.call_tool("report_outcome", {"ok": False})).is_error
        await client.call_tool("report_outcome", {"ok": False, "reason": "the kettle is broken"})
    (turn,) = kept(habitus)
    (judged,) = turn.outcomes
    assert (judged.kind, judged.reason) == (OutcomeKind.FAILED, "the kettle is broken")


@pytest.mark.req("CL-05")
async def test_progress_is_told_and_a_cancelled_call_leaves_the_client_usable(
    habitus: Habitus, connect: Connect
) -> None:
    seen: list[str | None] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        seen.append(message)

    cell = "import time\nfor n in range(3):\n    progress(f'step {n}')\ntime.sleep(seconds)"
    async with connect(profile="all") as client:
        quick, slow = ({"action": "exec", "code": cell.replace("seconds", text)} for text in ("0", "600"))
        done = await client.call_tool("scratchpad", quick, progress_callback=heard)
        assert not done.is_error, text_of(done)
        assert "step 2" in seen
        seen.clear()
        running = asyncio.create_task(client.call_tool("scratchpad", slow, progress_callback=heard))
        async with asyncio.timeout(300):
            while not seen:
                await asyncio.sleep(0.005)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert "brew-tea" in text_of(await client.call_tool("search_skills", {"query": "tea"}))
