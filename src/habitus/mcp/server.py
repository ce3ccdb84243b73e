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

from habitus import operating_system
from habitus.errors import UserError
from habitus.mcp.early_responder import EarlyResponder
from habitus.mcp.prompting import PROMPTS, SKILL_FILE_TEMPLATE, read_prompt_text
from habitus.mcp.server_options import McpServerOptions

if TYPE_CHECKING:
    from habitus.app.operating.people import UserAccount
    from habitus.app.sharing.availability import ReadinessReport
    from habitus.mcp.serving import McpHomeService
    from habitus.mcp.skills import McpSkillResources

SKILLS_EXTENSION = "io.modelcontextprotocol/skills"

RequestContext = ServerRequestContext[Any, Any]
_PROBE_INTERVAL_S = 1.0


class LazyHome:
    """Opens the home on the first request that needs it, because importing it takes a second."""

    def __init__(self, scope: McpServerOptions, is_offline: Callable[[], bool] = lambda: False) -> None:
        """`is_offline` says whether the web server beside it works on an offline snapshot."""
        self._is_stand_in = is_offline
        self.bus = InMemorySubscriptionBus()
        self._scope = scope
        self._one_at_a_time = asyncio.Lock()
        self._serving: dict[UserAccount | None, McpHomeService] = {}
        # Services on the offline snapshot; their clients may still be finishing.
        self._left: list[McpHomeService] = []
        self._asked_at = time.monotonic()

    async def __call__(self, person: UserAccount | None = None) -> McpHomeService:
        """Return the service as this person may use it; None is the owner."""
        async with self._one_at_a_time:
            await self._reopen_if_database_is_back()
            if None not in self._serving:
                self._serving[None] = await asyncio.to_thread(self._open_service)
            if person is not None and person not in self._serving:
                self._serving[person] = await asyncio.to_thread(self._serving[None].make_service_for_person, person)
        return self._serving[person]

    async def _reopen_if_database_is_back(self) -> None:
        """Reopen the home if the database is back; probes at most once a second."""
        own = self._serving.get(None)
        if own is None or time.monotonic() - self._asked_at < _PROBE_INTERVAL_S:
            return
        self._asked_at = time.monotonic()
        if await asyncio.to_thread(own.is_serving_snapshot_although_database_is_back):
            self._left += self._serving.values()
            self._serving = {}

    def _open_service(self) -> McpHomeService:
        serving: McpHomeService = importlib.import_module("habitus.mcp.serving").open_mcp_service(self._scope, self.bus)
        return serving

    async def find_person_by_token(self, token: str) -> UserAccount | None:
        """Return the user with this token, or None."""

        serving = await self()
        return await asyncio.to_thread(serving.people.find_account_by_token, token)

    async def check_readiness(self) -> ReadinessReport:
        """Return whether the home can serve, and what is degraded."""

        def look() -> ReadinessReport:
            serving = importlib.import_module("habitus.mcp.serving")
            found: ReadinessReport = serving.check_home_readiness(self._scope, self._is_stand_in())
            return found

        return await asyncio.to_thread(look)

    async def refuse_unknown_layers(self) -> LazyHome:
        """Return itself; raise `NotFound` for an unknown layer before a client connects."""
        if self._scope.layers:
            await self()
        return self

    async def disconnect_client(self, person: UserAccount | None, client: str) -> None:
        """End the conversation of a client that has gone."""
        if person in self._serving:
            await self._serving[person].disconnect_client(client)

    async def close(self) -> None:
        """Close all services, last the one whose connections the others share."""
        for serving in reversed(
            [*self._left, *self._serving.values()]
        ):  # last the one whose connections the others use
            await serving.close()


RequestHandler = Callable[[RequestContext, Any], Awaitable[Any]]


class ChangeAnnouncingMcpServer(Server[Any]):
    """An MCP server that announces changing lists on every transport."""

    def create_initialization_options(self, *given: Any, **more: Any) -> InitializationOptions:
        """Return the options with change notifications for tools and resources."""
        # The HTTP transport of the SDK passes no options, which would switch notifications off.
        changing = NotificationOptions(tools_changed=True, resources_changed=True)
        return super().create_initialization_options(changing, *given[1:], **more)


def make_mcp_server(lazy_home: LazyHome) -> Server[Any]:
    """Return an MCP server whose handlers call the lazily opened home."""

    def serve(handle: Callable[[McpHomeService, RequestContext, Any], Awaitable[Any]]) -> RequestHandler:
        """Return a handler that calls the service of the person who asks, and reports user errors to the client."""

        async def answer(ctx: RequestContext, params: Any) -> Any:
            try:
                return await handle(await lazy_home(get_request_person(ctx)), ctx, params)
            except UserError as error:
                raise MCPError(code=types.INVALID_PARAMS, message=f"{error.message} {error.hint}".strip()) from None

        return answer

    def skills_of(home: McpHomeService, ctx: RequestContext) -> McpSkillResources:
        return home.get_skill_resources_for_client(get_client_id(ctx), ctx.session)

    async def list_templates(ctx: RequestContext, params: Any) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=[SKILL_FILE_TEMPLATE])

    async def list_prompts(ctx: RequestContext, params: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=PROMPTS)

    async def set_level(
        home: McpHomeService, ctx: RequestContext, params: types.SetLevelRequestParams
    ) -> types.EmptyResult:
        home.set_client_log_level(get_client_id(ctx), ctx.session, params.level)
        return types.EmptyResult()

    async def listen(ctx: RequestContext, params: types.SubscriptionsListenRequestParams) -> Any:
        # Who listens for lists alone must not wait for the home.
        if params.notifications.resource_subscriptions:
            await subscribe(ctx, params.notifications.resource_subscriptions)
        return await listening(ctx, params)

    subscribe = serve(lambda home, ctx, uris: home.subscribe(get_client_id(ctx), ctx.session, uris))
    unsubscribe = serve(lambda home, ctx, uri: home.unsubscribe(get_client_id(ctx), ctx.session, uri))
    listening = ListenHandler(lazy_home.bus)
    server = ChangeAnnouncingMcpServer(
        "habitus",
        version=version("habitus"),
        title="Habitus",
        description="Procedural memory: skills that agents learn, prove and keep.",
        instructions=read_prompt_text("instructions"),
        on_list_tools=serve(lambda home, ctx, params: home.list_tools(get_client_id(ctx), ctx.session)),
        on_call_tool=serve(lambda home, ctx, params: home.call_tool(get_client_id(ctx), ctx.session, params)),
        on_list_resources=serve(
            lambda home, ctx, params: skills_of(home, ctx).list_resources(params and params.cursor)
        ),
        on_list_resource_templates=list_templates,
        on_read_resource=serve(lambda home, ctx, params: skills_of(home, ctx).read_resource(str(params.uri))),
        on_list_prompts=list_prompts,
        on_get_prompt=serve(lambda home, ctx, params: home.get_prompt(params.name, params.arguments or {})),
        on_completion=serve(lambda home, ctx, params: home.complete_argument(params)),
        on_subscribe_resource=lambda ctx, params: subscribe(ctx, [str(params.uri)]),
        on_unsubscribe_resource=lambda ctx, params: unsubscribe(ctx, str(params.uri)),
        on_subscriptions_listen=listen,
    )
    server.extensions[SKILLS_EXTENSION] = {"directoryRead": True}
    list_skills = serve(lambda home, ctx, params: skills_of(home, ctx).list_manifests(params.cursor))
    get_skill = serve(lambda home, ctx, params: skills_of(home, ctx).get_manifest(params.uri))
    read_directory = serve(lambda home, ctx, params: skills_of(home, ctx).list_directory(params.uri))
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, serve(set_level))
    server.add_request_handler("skills/list", types.PaginatedRequestParams, list_skills)
    server.add_request_handler("skills/get", SkillUriParams, get_skill)
    server.add_request_handler("resources/directory/read", SkillUriParams, read_directory)
    return server


class SkillUriParams(types.PaginatedRequestParams):
    """Parameters that name a skill or a directory of it."""

    uri: str


def get_request_person(ctx: RequestContext) -> UserAccount | None:
    """Return who sent the request, as the token check found; None on a pipe is the owner."""
    person: UserAccount | None = None if ctx.request is None else ctx.request.state.person
    return person


def get_client_id(ctx: RequestContext) -> str:
    """Return an id of the client: one per pipe; over HTTP the session, or else the client's name."""
    if ctx.request is None:
        return "pipe"
    params = ctx.session.client_params
    return ctx.request.headers.get("mcp-session-id") or (params.client_info.name if params else "") or "http"


async def serve_stdio(scope: McpServerOptions, responder: EarlyResponder) -> None:
    """Serve one client on standard input and output until it disconnects."""
    behind = await LazyHome(scope).refuse_unknown_layers()
    responder.take_over_streams()
    loop = asyncio.get_running_loop()
    with operating_system.handle_signal(loop, signal.SIGTERM, lambda: loop.create_task(_close_home_and_exit(behind))):
        try:
            await _serve_streams(behind, responder)
        except* BrokenPipeError:
            # The client left before it got its answer.
            pass
        finally:
            await behind.close()


async def _serve_streams(behind: LazyHome, responder: EarlyResponder) -> None:
    server, ends = make_mcp_server(behind), cast("AsyncFile[str]", AsyncFile(cast("Any", responder)))
    async with stdio_server(ends, ends) as (read, write):
        await server.run(read, write, server.create_initialization_options())


async def _close_home_and_exit(behind: LazyHome) -> None:
    """Close the home and end the process."""
    try:
        await behind.close()
    finally:
        # A thread blocks on standard input and can't be stopped; 143 is the exit code for SIGTERM.
        os._exit(143)
