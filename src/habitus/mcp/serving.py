"""Serves MCP clients: lists and calls tools, and notifies of changes.

Each client has a conversation, with a turn that is open from its first call to its last.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import get_args

import mcp_types as types
from mcp.server.session import ServerSession
from mcp.server.subscriptions import ResourcesListChanged, ResourceUpdated, SubscriptionBus, ToolsListChanged

from habitus.agent.choosing.exposures import ExposureAssigner
from habitus.agent.hosted_turn import AsyncHostTurn, Watch
from habitus.agent.session import generate_turn_or_session_id
from habitus.agent.tools.registry import Tool
from habitus.agent.user_input import SubmittedRequest
from habitus.app import Habitus, read_settings
from habitus.app.conversations.hosting import HostDrivenConversations, HostTurnRequest
from habitus.app.conversations.sessions import open_skill_version_assigner
from habitus.app.library.layers import get_library_revision
from habitus.app.library.publishing import LoadableSkillReader
from habitus.app.operating.people import UserAccount, UserRole, open_user_accounts
from habitus.app.review.inbox import list_pending
from habitus.app.sharing.availability import ReadinessReport, check_readiness, is_shared_database_back
from habitus.errors import Refused, UserError, did_you_mean
from habitus.events import ToolResult
from habitus.evidence.model import UnitRandomizer
from habitus.mcp import offered_tools
from habitus.mcp.prompting import get_completion_target, render_prompt
from habitus.mcp.server_options import McpServerOptions
from habitus.mcp.skills import McpSkillResources
from habitus.skills.choosing.selection import RequestUser
from habitus.skills.layers.listing import LibrarySnapshot
from habitus.skills.names import BUILT_IN_TOOLS
from habitus.sql.outage import OutageGuard
from habitus.text import clean_to_one_line

log = logging.getLogger(__name__)
# The most characters of a failed call's result that are logged.
_MAX_LOGGED_CHARS = 300
# Of all clients of a person together.
_MAX_WATCHED_FILES = 1000


def open_mcp_service(scope: McpServerOptions, bus: SubscriptionBus) -> McpHomeService:
    """Open the home and return the service; raise `NotFound` for an unknown layer."""
    settings = read_settings(scope.home)
    if scope.layers:
        settings = settings.model_copy(update={"layers": scope.layers})
    habitus = Habitus.open(settings.for_server() if scope.is_http else settings)
    try:
        for layer in scope.layers:
            # Raises an error that names the existing layers.
            habitus.skills.get_layer(layer)
        return McpHomeService(habitus, scope, bus)
    except BaseException:
        habitus.close()
        raise


def check_home_readiness(scope: McpServerOptions, is_stand_in: bool) -> ReadinessReport:
    """Return whether the home can serve, and what is degraded."""
    return check_readiness(read_settings(scope.home), is_offline=is_stand_in)


class McpHomeService:
    """The home served to the clients of one person."""

    def __init__(self, habitus: Habitus, scope: McpServerOptions, bus: SubscriptionBus) -> None:
        self._habitus = habitus
        self._scope = scope
        self._bus = bus
        self._user = habitus.get_user(scope.user or None)
        self.people = open_user_accounts(habitus)
        self.skills = McpSkillResources(LoadableSkillReader(habitus, self._user))
        self._clients: dict[str, McpClientConversation] = {}
        # The files of skills whose changes clients want to hear of, with the digest they last had.
        self._watched_files: dict[str, str] = {}
        self._mark: Hashable = None
        self._looked_at = 0.0
        # Calls since the last garbage collection.
        self._calls = 0
        # A second caller waits until the first has notified all clients.
        self._one_look = asyncio.Lock()
        self._is_closed = False
        self._watching: asyncio.Task[None] | None = None

    def is_serving_snapshot_although_database_is_back(self) -> bool:
        """Return whether this serves an offline snapshot although the database is back."""
        return self._habitus.is_offline and is_shared_database_back(self._habitus.settings)

    def make_service_for_person(self, person: UserAccount) -> McpHomeService:
        """Return a service on the same home for one of its users."""
        theirs = self._habitus.as_user(person.name, is_admin=person.role is UserRole.ADMIN)
        return McpHomeService(theirs, replace(self._scope, person=person, user=""), self._bus)

    async def list_tools(self, client: str, session: ServerSession) -> types.ListToolsResult:
        """List the tools that the client is offered and remember what it has seen."""
        known = self._get_or_create_client_conversation(client, session)
        known.listed_tools = await self._list_offered_tools(known)
        return types.ListToolsResult(tools=list(known.listed_tools.values()))

    async def _list_offered_tools(self, client: McpClientConversation) -> Mapping[str, types.Tool]:
        return {
            tool.name: offered_tools.make_mcp_tool(tool)
            for tool in await client.list_tools()
            if offered_tools.is_tool_offered(tool, self._scope)
        }

    async def call_tool(
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
            known = self._get_or_create_client_conversation(client, session)
            if not await self._can_call_tool(params.name, known):
                return await self._make_unknown_tool_result(params.name, known)
            # Changes made elsewhere must be visible to the call, but checking on each one is too slow.
            if self._one_look.locked() or loop.time() - self._looked_at >= self._scope.poll_interval_s:
                await self.notify_if_changed()
            result = await known.run_tool(params.name, params.arguments or {}, watch)
        except UserError as error:
            return offered_tools.make_error_result(f"{error.message} {error.hint}".strip())
        if result is None:
            return await self._make_unknown_tool_result(params.name, known)
        said = "" if result.outcome.is_ok else f": {clean_to_one_line(result.content)[:_MAX_LOGGED_CHARS]}"
        took = f"{params.name} took {(loop.time() - began) * 1000:.0f} ms"
        await known.send_log_message("warning" if said else "info", f"{took}{said}")
        declared = (known.listed_tools or {}).get(params.name)
        # The call may have changed skills itself, so its client should hear at once.
        if params.name not in BUILT_IN_TOOLS or not offered_tools.is_read_only_tool(declared):
            await self.notify_if_changed()
        return offered_tools.make_tool_result(result, declared)

    async def _can_call_tool(self, name: str, client: McpClientConversation) -> bool:
        """Return whether the client may call the tool: anybody a listed one, an admin also unlisted code."""
        is_built_in = name in BUILT_IN_TOOLS
        if not is_built_in and offered_tools.is_client_allowed_unlisted_code(self._scope):
            return True
        # Built-in tools never change, so the list the client has is enough.
        listed = client.listed_tools if is_built_in else None
        return name in (listed or await self._list_offered_tools(client))

    async def _make_unknown_tool_result(self, name: str, client: McpClientConversation) -> types.CallToolResult:
        """Return an error that suggests only tools this client has."""
        offered = list(await self._list_offered_tools(client))
        near = did_you_mean(name, offered) or f"There are: {', '.join(offered)}."
        return offered_tools.make_error_result(f"There is no tool '{name}'. {near}")

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> types.GetPromptResult:
        """Return a prompt with its arguments filled in."""
        home = self._habitus
        return await asyncio.to_thread(
            lambda: render_prompt(name, arguments, list_pending(home), self._describe_skill_for_prompt)
        )

    async def complete_argument(self, params: types.CompleteRequestParams) -> types.CompleteResult:
        """Return completions for an argument of a prompt or a resource address."""
        blank, skill = get_completion_target(params)
        return await self.skills.complete_argument(blank, params.argument.value, skill)

    async def subscribe(self, client: str, session: ServerSession, uris: Collection[str]) -> types.EmptyResult:
        """Tell the client from now on when one of these files of skills changes."""
        known, new = self._get_or_create_client_conversation(client, session), set(uris) - self._watched_files.keys()
        if len(self._watched_files) + len(new) > _MAX_WATCHED_FILES:
            raise Refused(f"At most {_MAX_WATCHED_FILES:,} resources can be subscribed to.")
        # What changes from now on is noticed as a change.
        await self.notify_if_changed()
        for uri in new:
            self._watched_files[uri] = await self.skills.compute_skill_file_digest(uri)
        known.subscribed_files.update(uris)
        return types.EmptyResult()

    async def unsubscribe(self, client: str, session: ServerSession, uri: str) -> types.EmptyResult:
        """Say nothing more about this file of a skill."""
        self._get_or_create_client_conversation(client, session).subscribed_files.discard(uri)
        return types.EmptyResult()

    def set_client_log_level(self, client: str, session: ServerSession, level: types.LoggingLevel) -> None:
        """Set from which level on the client gets log messages."""
        self._get_or_create_client_conversation(client, session).log_level = level

    def _describe_skill_for_prompt(self, prompt: str, skill: str) -> str:
        """Return what a prompt tells of a skill; empty if it is not about one."""
        # Both import numerical libraries, which only these prompts need.
        if prompt == "improve_skill":
            from habitus.app.learning.improving import build_drafter_prompt_from_practice

            return build_drafter_prompt_from_practice(self._habitus, skill)
        if prompt == "draft_tasks":
            from habitus.app.tasks.drafting import describe_skill_for_task_drafter

            return describe_skill_for_task_drafter(self._habitus, skill)
        return ""

    def get_skill_resources_for_client(self, client: str, session: ServerSession) -> McpSkillResources:
        """Return the skills as this client reads them: of those that are compared, the versions of its conversation."""
        home, known = self._habitus, self._get_or_create_client_conversation(client, session)
        if known.skills is None:
            outage = OutageGuard()
            pins = open_skill_version_assigner(home, known.id, UnitRandomizer(), outage, ExposureAssigner())

            def pin(seen: LibrarySnapshot) -> LibrarySnapshot:
                if pins is None:
                    return seen
                outage.reset_outage_for_turn()
                return outage.read_or_default(
                    lambda: pins.apply_pins_to_snapshot(seen, home.skills, self._user.name), seen
                )

            known.skills = McpSkillResources(LoadableSkillReader(home, self._user, pin))
        return known.skills

    async def disconnect_client(self, client: str) -> None:
        """End the conversation of a client."""
        if (gone := self._clients.pop(client, None)) is not None:
            await gone.end_conversation()

    async def close(self) -> None:
        """End all conversations and close the home."""
        self._is_closed = True
        if self._watching is not None:
            self._watching.cancel()
        for client in list(self._clients):
            await self.disconnect_client(client)
        await asyncio.to_thread(self._habitus.close)

    def _get_or_create_client_conversation(self, client: str, session: ServerSession) -> McpClientConversation:
        """Return the state of a client, created on its first request."""
        if self._is_closed:
            raise Refused("Habitus is stopping.", hint="Start it again.")
        if self._watching is None:
            self._watching = asyncio.get_running_loop().create_task(self._poll_for_changes_and_collect_garbage())
        if client not in self._clients:
            self._clients[client] = McpClientConversation(
                self._habitus.hosted_conversations,
                self._user,
                session,
                idle_s=self._scope.turn_idle_s,
                most_calls=self._scope.max_calls_per_turn,
            )
        self._clients[client].session = session
        return self._clients[client]

    async def _poll_for_changes_and_collect_garbage(self) -> None:
        """Check for changes made elsewhere while any client is connected, and collect garbage between calls."""
        while True:
            # Collected late, cycles fragment the heap, which then grows for weeks.
            if self._calls >= self._scope.max_calls_per_turn:
                self._calls = 0
                gc.collect()
            try:
                await self.notify_if_changed()
            # Watching must survive any single failure, such as a database that is briefly away.
            except Exception:
                log.warning("Could not look for changes; the next look will.", exc_info=True)
            await asyncio.sleep(self._scope.poll_interval_s)

    async def notify_if_changed(self) -> None:
        """Tell the clients which lists to fetch again if something changed."""
        async with self._one_look:
            self._looked_at = asyncio.get_running_loop().time()
            mark = await asyncio.to_thread(get_library_revision, self._habitus)
            is_news, self._mark = self._mark not in (None, mark), mark
            if not is_news:
                return
            await self._bus.publish(ResourcesListChanged())
            changed = [
                uri
                for uri, digest in self._watched_files.items()
                if await self._update_file_digest_and_compare(uri, digest)
            ]
            for uri in changed:
                await self._bus.publish(ResourceUpdated(uri=uri))
            for client in list(self._clients.values()):
                await client.session.send_resource_list_changed()
                for uri in client.subscribed_files.intersection(changed):
                    await client.session.send_resource_updated(uri)
                await self._notify_if_tools_changed(client)

    async def _update_file_digest_and_compare(self, uri: str, digest: str) -> bool:
        self._watched_files[uri] = await self.skills.compute_skill_file_digest(uri)
        return self._watched_files[uri] != digest

    async def _notify_if_tools_changed(self, client: McpClientConversation) -> None:
        """Notify a client if its list of tools differs from the one it has."""
        if client.listed_tools is None or client not in self._clients.values():
            # The client never listed its tools, or has left meanwhile.
            return
        now = await self._list_offered_tools(client)
        if now != client.listed_tools:
            client.listed_tools = now
            await client.session.send_tool_list_changed()
            await self._bus.publish(ToolsListChanged())


# Least severe first.
LOG_LEVELS: Sequence[types.LoggingLevel] = get_args(types.LoggingLevel)


class McpClientConversation:
    """The conversation of one client.

    A turn begins with a call. It ends when the model reports the outcome, after a while without calls, after many
    calls,
    or when the client leaves.
    """

    def __init__(
        self,
        hosting: HostDrivenConversations,
        user: RequestUser,
        session: ServerSession,
        *,
        idle_s: float,
        most_calls: int,
    ) -> None:
        self.id = generate_turn_or_session_id()
        # The latest session, for notifications.
        self.session = session
        # The tools as the client has last seen them; None if it never asked.
        self.listed_tools: Mapping[str, types.Tool] | None = None
        # The skills as files; None until the client reads one.
        self.skills: McpSkillResources | None = None
        # The files of skills whose changes the client wants to hear of.
        self.subscribed_files: set[str] = set()
        # From this level on the client wants log messages.
        self.log_level: types.LoggingLevel | None = None
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

    async def list_tools(self) -> Sequence[Tool]:
        """Return the tools of this conversation."""
        async with self._one_at_a_time:
            return await self._hosting.list_offered_tools(self._build_host_turn_request(""))

    async def run_tool(self, name: str, arguments: Mapping[str, object], watch: Watch) -> ToolResult | None:
        """Run a tool in the open turn; None if there is no such tool."""
        turn = await self._get_or_open_turn(name, arguments)
        try:
            if not turn.has(name):
                return None
            result = await turn.run(name, arguments, watch=watch)
        finally:
            self._running -= 1
            self._start_idle_timer_if_no_call_runs()
        if turn.is_judged or (self._calls >= self._most_calls and not self._running):
            await self._end_turn(turn)
        return result

    async def send_log_message(self, level: types.LoggingLevel, text: str) -> None:
        """Send a log message if the client asked for this level; the later protocol has no way to ask."""
        if self.log_level is not None and LOG_LEVELS.index(level) >= LOG_LEVELS.index(self.log_level):
            params = types.LoggingMessageNotificationParams(level=level, data=text, logger="habitus")
            await self.session.send_notification(types.LoggingMessageNotification(params=params))

    async def end_conversation(self) -> None:
        """End the conversation; a call that arrives later starts no new turn."""
        self._has_left = True
        await self._end_turn(self._turn)
        async with self._one_at_a_time:
            await self._hosting.end_conversation(self.id)

    async def _get_or_open_turn(self, name: str, arguments: Mapping[str, object]) -> AsyncHostTurn:
        """Return the open turn, or open one."""
        async with self._one_at_a_time:
            if self._timer is not None:
                self._timer.cancel()
            if self._has_left:
                raise Refused("This client has disconnected.")
            if self._turn is None:
                # What is searched for first is the nearest to a request that a server gets to hear.
                said = str(arguments.get("query", "")) if name == "search_skills" else ""
                self._turn = await self._hosting.open_turn(self._build_host_turn_request(said)).__aenter__()
                self._calls = 0
            self._running += 1
            self._calls += 1
            return self._turn

    def _build_host_turn_request(self, text: str) -> HostTurnRequest:
        return HostTurnRequest(
            user_input=SubmittedRequest(text=text),
            user=self._user,
            conversation=self.id,
            source_type="mcp",
            shows_prompt=False,
        )

    def _start_idle_timer_if_no_call_runs(self) -> None:
        """Start the idle timer once no call is running."""
        if self._running or self._turn is None:
            return
        turn, loop = self._turn, asyncio.get_running_loop()
        self._timer = loop.call_later(self._idle_s, lambda: self._start_turn_end_task(turn))

    def _start_turn_end_task(self, turn: AsyncHostTurn) -> None:
        """End the turn in a task of its own; the set keeps it from being garbage-collected."""
        task = asyncio.get_running_loop().create_task(self._end_turn(turn, only_if_idle=True))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end_turn(self, turn: AsyncHostTurn | None, *, only_if_idle: bool = False) -> None:
        """End the turn unless it has ended already or, with `only_if_idle`, is busy again."""
        async with self._one_at_a_time:
            if turn is None or self._turn is not turn or (only_if_idle and self._running):
                return
            if self._timer is not None:
                self._timer.cancel()
            self._turn = None
            await turn.close()
