"""The MCP server: maps each request to its handler. The home is opened after the handshake."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, cast

import mcp_types as types
from anyio import AsyncFile
from mcp.server import NotificationOptions, Server
from mcp.server.context import ServerRequestContext
from mcp.server.models import InitializationOptions
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError

from habitus.errors import UserError
from habitus.mcp.greeting import VERSIONS, Greeting, Rehearsal
from habitus.mcp.prompting import FILES_OF_SKILLS, PROMPTS, text_of
from habitus.mcp.scope import Scope

if TYPE_CHECKING:
    from habitus.app.operating.people import Person
    from habitus.app.sharing.availability import Readiness
    from habitus.mcp.serving import Serving

SKILLS = "io.modelcontextprotocol/skills"

Context = ServerRequestContext[Any, Any]
_ASKED_EVERY_S = 1.0


class Behind:
    """Opens the home on the first request that needs it, because importing it takes a second."""

    def __init__(self, scope: Scope, is_stand_in: Callable[[], bool] = lambda: False) -> None:
        """`is_offline` says whether the web server beside it works on an offline snapshot."""
        self._is_stand_in = is_stand_in
        self.bus = InMemorySubscriptionBus()
        self._scope = scope
        self._one_at_a_time = asyncio.Lock()
        self._serving: dict[Person | None, Serving] = {}
        # Services on the offline snapshot; their clients may still be finishing.
        self._left: list[Serving] = []
        self._asked_at = time.monotonic()

    async def __call__(self, person: Person | None = None) -> Serving:
        """Return the service as this person may use it; None is the owner."""
        async with self._one_at_a_time:
            await self._leave_copy()
            if None not in self._serving:
                self._serving[None] = await asyncio.to_thread(self._open)
            if person is not None and person not in self._serving:
                self._serving[person] = await asyncio.to_thread(self._serving[None].as_person, person)
        return self._serving[person]

    async def _leave_copy(self) -> None:
        """Reopen the home if the database is back; probes at most once a second."""
        own = self._serving.get(None)
        if own is None or time.monotonic() - self._asked_at < _ASKED_EVERY_S:
            return
        self._asked_at = time.monotonic()
        if await asyncio.to_thread(own.is_outdated):
            self._left += self._serving.values()
            self._serving = {}

    def _open(self) -> Serving:
        serving: Serving = importlib.import_module("habitus.mcp.serving").open_serving(self._scope, self.bus)
        return serving

    async def person(self, token: str) -> Person | None:
        """Return the user with this token, or None."""

        serving = await self()
        return await asyncio.to_thread(serving.people.with_token, token)

    async def readiness(self) -> Readiness:
        """Return whether the home can serve, and what is degraded."""

        def look() -> Readiness:
            serving = importlib.import_module("habitus.mcp.serving")
            found: Readiness = serving.readiness_of(self._scope, self._is_stand_in())
            return found

        return await asyncio.to_thread(look)

    async def check(self) -> Behind:
        """Return itself; raise `NotFound` for an unknown layer before a client connects."""
        if self._scope.layers:
            await self()
        return self

    async def leave(self, person: Person | None, client: str) -> None:
        """End the conversation of a client that has gone."""
        if person in self._serving:
            await self._serving[person].leave(client)

    async def close(self) -> None:
        """Close all services, last the one whose connections the others share."""
        for serving in reversed(
            [*self._left, *self._serving.values()]
        ):  # last the one whose connections the others use
            await serving.close()


class HabitusServer(Server[Any]):
    """An MCP server that announces changing lists on every transport."""

    def create_initialization_options(self, *given: Any, **more: Any) -> InitializationOptions:
        """Return the options with change notifications for tools and resources."""
        # The HTTP transport of the SDK passes no options, which would switch notifications off.
        changing = NotificationOptions(tools_changed=True, resources_changed=True)
        return super().create_initialization_options(changing, *given[1:], **more)


def make_server(behind: Behind) -> Server[Any]:
    """Return an MCP server whose handlers call the lazily opened home."""

    async def list_tools(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return await (await behind(person_of(ctx))).tools(client_of(ctx), ctx.session)

    async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        return await (await behind(person_of(ctx))).call(client_of(ctx), ctx.session, params)

    async def list_resources(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        return await (await behind(person_of(ctx))).skills.resources(params.cursor if params else None)

    async def templates(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=[FILES_OF_SKILLS])

    async def read_resource(ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        return await (await behind(person_of(ctx))).skills.read(str(params.uri))

    async def list_prompts(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=PROMPTS)

    async def get_prompt(ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        return await (await behind(person_of(ctx))).prompt(params.name, params.arguments or {})

    async def complete(ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        return await (await behind(person_of(ctx))).complete(params)

    async def set_level(ctx: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        (await behind(person_of(ctx))).set_level(client_of(ctx), ctx.session, params.level)
        return types.EmptyResult()

    async def list_skills(ctx: Context, params: types.PaginatedRequestParams) -> dict[str, Any]:
        return await (await behind(person_of(ctx))).skills.entries(params.cursor)

    async def get_skill(ctx: Context, params: OfOne) -> dict[str, Any]:
        return await (await behind(person_of(ctx))).skills.entry(params.uri)

    async def read_directory(ctx: Context, params: OfOne) -> dict[str, Any]:
        return await (await behind(person_of(ctx))).skills.directory(params.uri)

    server = HabitusServer(
        "habitus",
        version=version("habitus"),
        title="Habitus",
        description="Procedural memory: skills that agents learn, prove and keep.",
        instructions=text_of("instructions"),
        on_list_tools=_with_client_errors(list_tools),
        on_call_tool=_with_client_errors(call_tool),
        on_list_resources=_with_client_errors(list_resources),
        on_list_resource_templates=templates,
        on_read_resource=_with_client_errors(read_resource),
        on_list_prompts=list_prompts,
        on_get_prompt=_with_client_errors(get_prompt),
        on_completion=_with_client_errors(complete),
        on_subscriptions_listen=ListenHandler(behind.bus),
    )
    server.extensions[SKILLS] = {"directoryRead": True}
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, _with_client_errors(set_level))
    server.add_request_handler("skills/list", types.PaginatedRequestParams, _with_client_errors(list_skills))
    server.add_request_handler("skills/get", OfOne, _with_client_errors(get_skill))
    server.add_request_handler("resources/directory/read", OfOne, _with_client_errors(read_directory))
    return server


class OfOne(types.PaginatedRequestParams):
    """Parameters that name a skill or a directory of it."""

    uri: str


def person_of(ctx: Context) -> Person | None:
    """Return who sent the request, as the token check found; None on a pipe is the owner."""
    person: Person | None = None if ctx.request is None else ctx.request.state.person
    return person


def client_of(ctx: Context) -> str:
    """Return an id of the client: one per pipe; over HTTP the session, or else the client's name."""
    if ctx.request is None:
        return "pipe"
    params = ctx.session.client_params
    return ctx.request.headers.get("mcp-session-id") or (params.client_info.name if params else "") or "http"


def _with_client_errors(
    handler: Callable[[Context, Any], Awaitable[Any]],
) -> Callable[[Context, Any], Awaitable[Any]]:
    """Wrap a handler to report user errors to the client with message and hint."""

    async def answer(ctx: Context, params: Any) -> Any:
        try:
            return await handler(ctx, params)
        except UserError as error:
            raise MCPError(code=types.INVALID_PARAMS, message=f"{error.message} {error.hint}".strip()) from None

    return answer


async def serve_pipe(scope: Scope, greeting: Greeting) -> None:
    """Serve one client on standard input and output until it disconnects."""
    behind = await Behind(scope).check()
    greeting.take_over()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, lambda: loop.create_task(_stop(behind)))
    try:
        await _serve(behind, greeting)
    except* BrokenPipeError:
        # The client left before it got its answer.
        pass
    finally:
        await behind.close()


async def rehearse(scope: Scope, file: str) -> None:
    """Send the first requests of every protocol version, to cache their answers."""
    behind = Behind(scope)
    try:
        for version in VERSIONS:
            await _serve(behind, Rehearsal(file, version))
    finally:
        await behind.close()


async def _serve(behind: Behind, greeting: Greeting) -> None:
    server, ends = make_server(behind), cast("AsyncFile[str]", AsyncFile(cast("Any", greeting)))
    async with stdio_server(ends, ends) as (read, write):
        await server.run(read, write, server.create_initialization_options())


async def _stop(behind: Behind) -> None:
    """Close the home and end the process."""
    try:
        await behind.close()
    finally:
        # A thread blocks on standard input and can't be stopped; 143 is the exit code for SIGTERM.
        os._exit(143)
