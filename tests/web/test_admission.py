"""Few requests are worked on at once; one that waits for something else keeps nobody out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from habitus.web import admission
from habitus.web.admission import AdmissionMiddleware

SCOPE: dict[str, Any] = {"type": "http"}


async def receive() -> Any:
    raise AssertionError("nothing is read")


async def send(message: Any) -> None:
    raise AssertionError("nothing is sent")


class Room:
    """An application whose requests stay until they are let go; it counts them."""

    def __init__(self) -> None:
        self.inside = self.most = self.began = 0
        self.opened = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.began += 1
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            await (asyncio.sleep(0.001) if scope.get("short") else self.opened.wait())
            if scope.get("fails"):
                raise RuntimeError("the application failed")
        finally:
            self.inside -= 1


@pytest.mark.req("SC-07")
def test_short_requests_run_a_few_at_a_time_and_all_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_SLOT_S", 60.0)

    async def scenario() -> Room:
        room = Room()
        app = AdmissionMiddleware(room)
        asked = [app({**SCOPE, "short": True, "fails": number % 3 == 0}, receive, send) for number in range(50)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert [isinstance(answer, RuntimeError) for answer in answers] == [number % 3 == 0 for number in range(50)]
        return room

    room = asyncio.run(scenario())
    assert (room.began, room.most) == (50, admission._MAX_AT_ONCE)


@pytest.mark.req("SC-07")
def test_requests_that_wait_for_something_else_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_SLOT_S", 0.01)

    async def scenario() -> None:
        room = Room()
        app = AdmissionMiddleware(room)
        waiting = [asyncio.create_task(app(SCOPE, receive, send)) for _ in range(5 * admission._MAX_AT_ONCE)]
        await asyncio.wait_for(app({**SCOPE, "short": True}, receive, send), 10)
        assert room.inside == len(waiting)
        cancelled, *rest = waiting
        cancelled.cancel()
        room.opened.set()
        await asyncio.gather(*rest)
        # Each slot was given back exactly once: no more than before run at a time.
        room.most = 0
        monkeypatch.setattr(admission, "_SLOT_S", 60.0)
        await asyncio.gather(*(app({**SCOPE, "short": True}, receive, send) for _ in range(50)))
        assert room.most == admission._MAX_AT_ONCE

    asyncio.run(scenario())
