"""Serves MCP clients: lists and calls tools, and notifies of changes.

Each client has a conversation, with a turn that is open from its first call to its last.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import get_args

import mcp_types as types
from mcp.server.session import ServerSession
from mcp.server.subscriptions import ResourcesListChanged, SubscriptionBus, ToolsListChanged

from habitus.agent.hosted_turn import AsyncHostTurn, Watch
from habitus.agent.session import new_id
from habitus.agent.tools.registry import Tool
from habitus.agent.user_input import Asking
from habitus.app import Habitus, read_settings
from habitus.app.conversations.hosting import Hosting, HostRequest
from habitus.app.library.layers import revision
from habitus.app.library.publishing import Publisher
from habitus.app.operating.people import Person, Role, open_people
from habitus.app.review.inbox import waiting
from habitus.app.sharing.availability import Readiness, is_back, readiness
from habitus.errors import Refused, UserError, did_you_mean
from habitus.events import ToolResult
from habitus.mcp.offered_tools import as_result, as_tool, is_admin, is_offered, only_looks, refusal
from habitus.mcp.prompting import blank_of, prompt
from habitus.mcp.scope import Scope
from habitus.mcp.skills import SkillResources
from habitus.skills.choosing.selection import User
from habitus.skills.names import BUILT_IN_TOOLS
from habitus.text import one_line

log = logging.getLogger(__name__)
# The most characters of a failed call's result that are logged.
_MOST_LOGGED = 300


def open_serving(scope: Scope, bus: SubscriptionBus) -> Serving:
    """Open the home and return the service; raise `NotFound` for an unknown layer."""
    settings = read_settings(scope.home)
    if scope.layers:
        settings = settings.model_copy(update={"layers": scope.layers})
    habitus = Habitus.open(settings.for_many() if scope.serves_many else settings)
    try:
        for layer in scope.layers:
            # Raises an error that names the existing layers.
            habitus.skills.layer(layer)
        return Serving(habitus, scope, bus)
    except BaseException:
        habitus.close()
        raise


def readiness_of(scope: Scope, is_stand_in: bool) -> Readiness:
    """Return whether the home can serve, and what is degraded."""
    return readiness(read_settings(scope.home), is_stand_in=is_stand_in)


class Serving:
    """The home served to the clients of one person."""

    def __init__(self, habitus: Habitus, scope: Scope, bus: SubscriptionBus) -> None:
        self._habitus = habitus
        self._scope = scope
        self._bus = bus
        self._user = habitus.user(scope.user or None)
        self.people = open_people(habitus)
        self.skills = SkillResources(Publisher(habitus, self._user))
        self._clients: dict[str, Client] = {}
        self._mark: Hashable = None
        self._looked_at = 0.0
        # Calls since the last garbage collection.
        self._calls = 0
        # A second caller waits until the first has notified all clients.
        self._one_look = asyncio.Lock()
        self._is_closed = False
        self._watching: asyncio.Task[None] | None = None

    def is_outdated(self) -> bool:
        """Return whether this serves an offline snapshot although the database is back."""
        return self._habitus.is_stand_in and is_back(self._habitus.settings)

    def as_person(self, person: Person) -> Serving:
        """Return a service on the same home for one of its users."""
        theirs = self._habitus.as_user(person.name, is_admin=person.role is Role.ADMIN)
        return Serving(theirs, replace(self._scope, person=person, user=""), self._bus)

    async def tools(self, client: str, session: ServerSession) -> types.ListToolsResult:
        """List the tools that the client is offered and remember what it has seen."""
        known = self._client_of(client, session)
        known.listed = await self._offered_tools(known)
        return types.ListToolsResult(tools=list(known.listed.values()))

    async def _offered_tools(self, client: Client) -> Mapping[str, types.Tool]:
        return {tool.name: as_tool(tool) for tool in await client.tools() if is_offered(tool, self._scope)}

    async def call(
        self, client: str, session: ServerSession, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """Call a tool and return its result; errors are results that the model can read."""
        loop, steps = asyncio.get_running_loop(), 0
        began = loop.time()
        self._calls += 1

        def watch(text: str) -> None:
            nonlocal steps
            steps += 1
            asyncio.run_coroutine_threadsafe(session.report_progress(steps, message=text), loop)

        try:
            known = self._client_of(client, session)
            if not await self._may_call(params.name, known):
                return await self._unknown(params.name, known)
            # Changes made elsewhere must be visible to the call, but checking on each one is too slow.
            if self._one_look.locked() or loop.time() - self._looked_at >= self._scope.look_s:
                await self.look()
            result = await known.run(params.name, params.arguments or {}, watch)
        except UserError as error:
            return refusal(f"{error.message} {error.hint}".strip())
        if result is None:
            return await self._unknown(params.name, known)
        said = "" if result.outcome.is_ok else f": {one_line(result.content)[:_MOST_LOGGED]}"
        took = f"{params.name} took {(loop.time() - began) * 1000:.0f} ms"
        await known.log("warning" if said else "info", f"{took}{said}")
        declared = (known.listed or {}).get(params.name)
        # The call may have changed skills itself, so its client should hear at once.
        if params.name not in BUILT_IN_TOOLS or not only_looks(declared):
            await self.look()
        return as_result(result, declared)

    async def _may_call(self, name: str, client: Client) -> bool:
        """Return whether the client may call the tool: anybody a listed one, an admin also unlisted code."""
        is_built_in = name in BUILT_IN_TOOLS
        if not is_built_in and is_admin(self._scope):
            return True
        # Built-in tools never change, so the list the client has is enough.
        listed = client.listed if is_built_in else None
        return name in (listed or await self._offered_tools(client))

    async def _unknown(self, name: str, client: Client) -> types.CallToolResult:
        """Return an error that suggests only tools this client has."""
        offered = list(await self._offered_tools(client))
        near = did_you_mean(name, offered) or f"There are: {', '.join(offered)}."
        return refusal(f"There is no tool '{name}' here. {near}")

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> types.GetPromptResult:
        """Return a prompt with its arguments filled in."""
        home = self._habitus
        return await asyncio.to_thread(lambda: prompt(name, arguments, waiting(home), self._practice))

    async def complete(self, params: types.CompleteRequestParams) -> types.CompleteResult:
        """Return completions for an argument of a prompt or a resource address."""
        blank, skill = blank_of(params)
        return await self.skills.complete(blank, params.argument.value, skill)

    def set_level(self, client: str, session: ServerSession, level: types.LoggingLevel) -> None:
        """Set from which level on the client gets log messages."""
        self._client_of(client, session).level = level

    def _practice(self, skill: str) -> str:
        # Imports numerical libraries, which only this prompt needs.
        from habitus.app.learning.improving import describe_practice

        return describe_practice(self._habitus, skill)

    async def leave(self, client: str) -> None:
        """End the conversation of a client."""
        if (gone := self._clients.pop(client, None)) is not None:
            await gone.leave()

    async def close(self) -> None:
        """End all conversations and close the home."""
        self._is_closed = True
        if self._watching is not None:
            self._watching.cancel()
        for client in list(self._clients):
            await self.leave(client)
        await asyncio.to_thread(self._habitus.close)

    def _client_of(self, client: str, session: ServerSession) -> Client:
        """Return the state of a client, created on its first request."""
        if self._is_closed:
            raise Refused("Habitus is stopping.", hint="Start it again.")
        if self._watching is None:
            self._watching = asyncio.get_running_loop().create_task(self._watch())
        if client not in self._clients:
            self._clients[client] = Client(
                self._habitus.hosting,
                self._user,
                session,
                idle_s=self._scope.idle_s,
                most_calls=self._scope.most_calls,
            )
        self._clients[client].session = session
        return self._clients[client]

    async def _watch(self) -> None:
        """Check for changes made elsewhere while any client is connected, and collect garbage between calls."""
        while True:
            # Collected late, cycles fragment the heap, which then grows for weeks.
            if self._calls >= self._scope.most_calls:
                self._calls = 0
                gc.collect()
            try:
                await self.look()
            # Watching must survive any single failure, such as a database that is briefly away.
            except Exception:
                log.warning("Could not look for changes; the next look will.", exc_info=True)
            await asyncio.sleep(self._scope.look_s)

    async def look(self) -> None:
        """Tell the clients which lists to fetch again if something changed."""
        async with self._one_look:
            self._looked_at = asyncio.get_running_loop().time()
            mark = await asyncio.to_thread(revision, self._habitus)
            is_news, self._mark = self._mark not in (None, mark), mark
            if not is_news:
                return
            await self._bus.publish(ResourcesListChanged())
            for client in list(self._clients.values()):
                await client.session.send_resource_list_changed()
                await self._tell_of_tools(client)

    async def _tell_of_tools(self, client: Client) -> None:
        """Notify a client if its list of tools differs from the one it has."""
        if client.listed is None or client not in self._clients.values():
            # The client never listed its tools, or has left meanwhile.
            return
        now = await self._offered_tools(client)
        if now != client.listed:
            client.listed = now
            await client.session.send_tool_list_changed()
            await self._bus.publish(ToolsListChanged())


# Least severe first.
LEVELS: Sequence[types.LoggingLevel] = get_args(types.LoggingLevel)


class Client:
    """The conversation of one client.

    A turn begins with a call. It ends when the model reports the outcome, after a while without calls, after many
    calls,
    or when the client leaves.
    """

    def __init__(self, hosting: Hosting, user: User, session: ServerSession, *, idle_s: float, most_calls: int) -> None:
        self.id = new_id()
        # The latest session, for notifications.
        self.session = session
        # The tools as the client has last seen them; None if it never asked.
        self.listed: Mapping[str, types.Tool] | None = None
        # From this level on the client wants log messages.
        self.level: types.LoggingLevel | None = None
        self._hosting = hosting
        self._user = user
        self._idle_s = idle_s
        self._most_calls = most_calls
        self._turn: AsyncHostTurn | None = None
        self._running = 0
        # Calls in this turn.
        self._calls = 0
        self._has_left = False
        # Serialises opening and ending of turns.
        self._one_at_a_time = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()

    async def tools(self) -> Sequence[Tool]:
        """Return the tools of this conversation."""
        async with self._one_at_a_time:
            return await self._hosting.offered_tools(self._request(""))

    async def run(self, name: str, arguments: Mapping[str, object], watch: Watch) -> ToolResult | None:
        """Run a tool in the open turn; None if there is no such tool."""
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
        """Send a log message if the client asked for this level; the later protocol has no way to ask."""
        if self.level is not None and LEVELS.index(level) >= LEVELS.index(self.level):
            params = types.LoggingMessageNotificationParams(level=level, data=text, logger="habitus")
            await self.session.send_notification(types.LoggingMessageNotification(params=params))

    async def leave(self) -> None:
        """End the conversation; a call that arrives later starts no new turn."""
        self._has_left = True
        await self._end(self._turn)
        async with self._one_at_a_time:
            await self._hosting.leave(self.id)

    async def _begun(self, name: str, arguments: Mapping[str, object]) -> AsyncHostTurn:
        """Return the open turn, or open one."""
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
        """Start the idle timer once no call is running."""
        if self._running or self._turn is None:
            return
        turn, loop = self._turn, asyncio.get_running_loop()
        self._timer = loop.call_later(self._idle_s, lambda: self._later(turn))

    def _later(self, turn: AsyncHostTurn) -> None:
        """End the turn in a task of its own; the set keeps it from being garbage-collected."""
        task = asyncio.get_running_loop().create_task(self._end(turn, only_if_idle=True))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end(self, turn: AsyncHostTurn | None, *, only_if_idle: bool = False) -> None:
        """End the turn unless it has ended already or, with `only_if_idle`, is busy again."""
        async with self._one_at_a_time:
            if turn is None or self._turn is not turn or (only_if_idle and self._running):
                return
            if self._timer is not None:
                self._timer.cancel()
            self._turn = None
            await turn.close()
