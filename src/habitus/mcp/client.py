"""One client of a server: its conversation, and the turn in it that is open between its first call and its last."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import get_args

import mcp_types as types
from mcp.server.session import ServerSession

from habitus.agent.hosted_turn import AsyncHostTurn, Watch
from habitus.agent.session import new_id
from habitus.agent.tools.registry import Tool
from habitus.agent.user_input import Asking
from habitus.app.conversations.hosting import Hosting, HostRequest
from habitus.errors import Refused
from habitus.events import ToolResult
from habitus.skills.selection import User

LEVELS: Sequence[types.LoggingLevel] = get_args(types.LoggingLevel)  # the least grave first


class Client:
    """A turn begins with a call. It ends when the model says how it went, when nobody calls for a while, when it has
    had many calls, or when the client leaves."""

    def __init__(self, hosting: Hosting, user: User, session: ServerSession, *, idle_s: float, most_calls: int) -> None:
        self.id = new_id()
        self.session = session  # the last, to send word to
        self.listed: Mapping[str, types.Tool] | None = None  # by name, the tools as it has seen them
        self.level: types.LoggingLevel | None = None  # from which on it wants to hear how calls went
        self._hosting = hosting
        self._user = user
        self._idle_s = idle_s
        self._most_calls = most_calls
        self._turn: AsyncHostTurn | None = None
        self._running = 0
        self._calls = 0  # in this turn
        self._has_left = False
        self._one_at_a_time = asyncio.Lock()  # for opening and ending
        self._timer: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()

    async def tools(self) -> Sequence[Tool]:
        async with self._one_at_a_time:
            return await self._hosting.offered_tools(self._request(""))

    async def run(self, name: str, arguments: Mapping[str, object], watch: Watch) -> ToolResult | None:
        """The result of a call; None where there is no such tool."""
        turn = await self._begun(name, arguments)
        try:
            if not turn.has(name):
                return None
            result = await turn.run(name, arguments, watch=watch)
        finally:
            self._running -= 1
            self._rest()
        if turn.is_judged or (self._calls >= self._most_calls and not self._running):
            await self._end(turn)
        return result

    async def log(self, level: types.LoggingLevel, text: str) -> None:
        """Tell it, where it has asked for word from such a level on; the later protocol has no way to ask."""
        if self.level is not None and LEVELS.index(level) >= LEVELS.index(self.level):
            params = types.LoggingMessageNotificationParams(level=level, data=text, logger="habitus")
            await self.session.send_notification(types.LoggingMessageNotification(params=params))

    async def leave(self) -> None:
        """The client has gone; a call of its that is read only now begins no other turn."""
        self._has_left = True
        await self._end(self._turn)
        async with self._one_at_a_time:
            await self._hosting.leave(self.id)

    async def _begun(self, name: str, arguments: Mapping[str, object]) -> AsyncHostTurn:
        async with self._one_at_a_time:
            if self._timer is not None:
                self._timer.cancel()
            if self._has_left:
                raise Refused("This client has left.")
            if self._turn is None:
                # What is searched for first is the nearest to a request that a server gets to hear.
                said = str(arguments.get("query", "")) if name == "search_skills" else ""
                self._turn = await self._hosting.turn(self._request(said)).__aenter__()
                self._calls = 0
            self._running += 1
            self._calls += 1
            return self._turn

    def _request(self, text: str) -> HostRequest:
        return HostRequest(
            asking=Asking(text=text), user=self._user, conversation=self.id, source_type="mcp", shows_prompt=False
        )

    def _rest(self) -> None:
        """Nothing runs any more: the turn waits for the next call, but not for ever."""
        if self._running or self._turn is None:
            return
        turn, loop = self._turn, asyncio.get_running_loop()
        self._timer = loop.call_later(self._idle_s, lambda: self._later(turn))

    def _later(self, turn: AsyncHostTurn) -> None:
        task = asyncio.get_running_loop().create_task(self._end(turn, only_if_idle=True))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end(self, turn: AsyncHostTurn | None, *, only_if_idle: bool = False) -> None:
        async with self._one_at_a_time:
            if turn is None or self._turn is not turn or (only_if_idle and self._running):
                return
            if self._timer is not None:
                self._timer.cancel()
            self._turn = None
            await turn.close()
