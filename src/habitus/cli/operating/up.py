"""`habitus up`: the web page, REST and MCP over HTTP in one process on this machine."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
import uvicorn
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from habitus import operating_system, tracing
from habitus.app import Habitus
from habitus.app.operating.housekeeping import remove_abandoned_solver_folders
from habitus.app.operating.identity_provider import IdentityProvider, find_sign_in_problems
from habitus.app.operating.jobs import run_background_worker
from habitus.app.operating.people import open_user_accounts
from habitus.cli import output
from habitus.cli.opening import open_habitus
from habitus.cli.operating.secrets import unlock_vault
from habitus.cli.operating.server_processes import ServerProcessOptions, run_server_processes
from habitus.errors import NotFound
from habitus.mcp import http as mcp_http
from habitus.mcp.server import LazyHome
from habitus.mcp.server_options import McpServerOptions as McpScope
from habitus.settings import Settings
from habitus.skills.sources.discovery import INDEX_PATH, WELL_KNOWN_PATH
from habitus.web.app import make_web_app
from habitus.web.home_pool import HomePool
from habitus.web.metrics import METRICS_PATH, MetricsMiddleware, PrometheusMetrics
from habitus.web.security import load_sign_in_service
from habitus.web.streams import StreamEndingMiddleware

_ONLY_PROCESS = ServerProcessOptions()
# Requests in progress get this long to finish on shutdown.
_SHUTDOWN_TIMEOUT_S = 3
# Then the process ends whatever still runs; every write is safe against a kill.
_EXIT_TIMEOUT_S = 4.5


def start_web_server(
    context: typer.Context,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 picks a free one.")] = 8765,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; other than 127.0.0.1, people have to sign in.")
    ] = "127.0.0.1",
    name: Annotated[
        list[str] | None, typer.Option("--name", help="A further host:port it is reached by; may be repeated.")
    ] = None,
    open_reading: Annotated[bool, typer.Option("--open-reading", help="Allow reading without signing in.")] = False,
    publish: Annotated[
        Path | None, typer.Option("--publish", help="Serve a folder of 'skills publish' to everyone.", exists=True)
    ] = None,
    with_jobs: Annotated[
        bool, typer.Option("--jobs/--no-jobs", help="Also run schedules and jobs, not only those of this home's files.")
    ] = True,
    workers: Annotated[int, typer.Option("--workers", min=1, max=64, help="Processes that share the port.")] = 1,
    inherited: Annotated[str, typer.Option("--inherited", hidden=True)] = "",
) -> None:
    """Start the web page: see, edit and review what your agents learned. Ctrl-C stops it."""
    home: Path | None = context.find_root().obj
    if workers > 1:
        run_server_processes(context, host, port, workers, with_jobs=with_jobs)
        return
    process = ServerProcessOptions.parse_inherited_socket_and_number(inherited)
    with open_habitus(context, is_server=True) as habitus:
        unlock_vault(habitus)
        place = ServerAddress(
            host=host, port=port, extra_names=tuple(name or ()), open_reading=open_reading, published_site=publish
        )
        with (
            closing(HomePool(habitus)) as desks,
            # Of several processes of one home, the first one has its jobs.
            run_background_worker(lambda: desks.owner_home, only_own_home=not with_jobs)
            if process.is_first_process
            else nullcontext(),
        ):
            announce = output.print_line if process.is_first_process else _skip_address_announcement
            asyncio.run(serve_web_and_mcp(desks, home, place, announce, process=process))
    # The process ends here; collecting garbage first takes longer than stopping.
    gc.freeze()


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerAddress:
    """The address to listen on; `extra_names` are further names with their ports, for the Host header check."""

    host: str
    port: int
    extra_names: tuple[str, ...] = ()
    # Anybody who reaches the server may read shared data, but nothing personal.
    open_reading: bool = False
    # A published skill site, readable by anybody who reaches the server.
    published_site: Path | None = None

    @property
    def is_public(self) -> bool:
        """Whether other machines can reach the address."""
        return not _is_loopback(self.host)


def _create_first_sign_in_link(home: Habitus) -> str:
    """Return a one-time link for the first user; nothing if somebody can sign in, or another replica has made one."""
    return "" if home.is_offline else open_user_accounts(home).create_first_admin_link(home.clock())


def _skip_address_announcement(text: str) -> None:
    """Announce nothing, because another process has said it."""


def _warn_of_sign_in_problems(settings: Settings, provider: IdentityProvider) -> None:
    for problem in find_sign_in_problems(settings, provider):
        output.print_line_to_stderr(f"habitus: {problem}")


def _is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the host."""
    with suppress(ValueError):
        address = ipaddress.ip_address(host)
        # The socket is IPv4 only, so ::1 is treated like any other address.
        return address.is_loopback and address.version == 4
    return host == "localhost"


async def serve_web_and_mcp(
    homes: HomePool,
    home: Path | None,
    address: ServerAddress,
    announce: Callable[[str], None],
    *,
    process: ServerProcessOptions = _ONLY_PROCESS,
) -> None:
    """Serve until interrupted; `announce` receives the address and the sign-in link."""
    keys, scope = load_sign_in_service(homes.owner_home), McpScope(home=home)
    metrics = PrometheusMetrics(lambda: homes.owner_home) if homes.owner_home.settings.web.metrics else None
    behind = LazyHome(scope, lambda: homes.owner_home.is_offline)
    # Another process of this server, or another host, may get the next request.
    is_one_of_many = process.inherited_socket is not None or homes.owner_home.shared is not homes.owner_home.local
    await asyncio.to_thread(remove_abandoned_solver_folders, homes.owner_home.settings)
    with process.open_or_inherit_listening_socket(address.host, address.port) as door:
        port = door.getsockname()[1]
        # The first name is printed as the address, so names given by the person come first.
        page = homes.owner_home.settings.web.address
        own_names = [
            *address.extra_names,
            *(f"{name}:{port}" for name in dict.fromkeys((address.host, "127.0.0.1", "localhost"))),
        ]
        names = [*([page.partition("://")[2]] if page else []), *own_names]
        agents = mcp_http.make_guarded_app(behind, names, scope, keys.owner_token, is_stateless=is_one_of_many)
        site = None if address.published_site is None else _build_published_site_app(address.published_site)
        both = MountedAppsRouter(
            web_app=make_web_app(homes, keys, names, open_reading=address.open_reading),
            mcp_app=agents,
            published_site=site,
        )
        # What belongs to this home works at its own address alone, not at that of a balancer.
        own = page = page or f"http://{names[0]}"
        if is_one_of_many:
            own = f"http://{own_names[0]}".replace("//0.0.0.0:", "//127.0.0.1:")
        announce(f"Habitus is at {page}")
        announce(f"Sign in with this link, which works once: {own}/enter?key={keys.create_owner_sign_in_key()}")
        if (
            address.is_public
            and process.is_first_process
            and (first_link := _create_first_sign_in_link(homes.owner_home))
        ):
            announce(
                f"Nobody can sign in yet. This link makes the first admin, works once, and ends in 15 minutes: "
                f"{page}/enter?key={first_link}"
            )
        if site is not None:
            who = "everyone who can reach this address" if address.is_public else "everyone on this machine"
            announce(f"Skills are published at {page}/{INDEX_PATH}, for {who}")
        announce(
            f"Programs send 'Authorization: Bearer {keys.owner_token}'; agents connect to {own}{mcp_http.MCP_PATH}"
        )
        if process.is_first_process and (provider := keys.people.provider) is not None:
            # The server starts without the provider, which may be away for a moment.
            threading.Thread(
                target=_warn_of_sign_in_problems, args=(homes.owner_home.settings, provider), daemon=True
            ).start()
        watched: ASGIApp = mcp_http.HealthMiddleware(both, behind)
        if metrics is not None:
            # Outside the security check, so that refused requests are counted as well.
            watched = MetricsMiddleware(watched, metrics, keys.metrics_token)
            announce(f"Prometheus reads {own}{METRICS_PATH} with 'Authorization: Bearer {keys.metrics_token}'")
        ending = StreamEndingMiddleware(watched)
        config = uvicorn.Config(
            ending,
            log_level="warning",
            lifespan="on",
            # A client could forge forwarded headers; the socket can't be forged.
            proxy_headers=False,
            timeout_graceful_shutdown=_SHUTDOWN_TIMEOUT_S,
        )
        try:
            with (
                nullcontext()
                if metrics is None
                else tracing.forward_telemetry_counts_during_block(metrics.increment_counter)
            ):
                await StreamEndingServer(config, ending).serve(sockets=[door])
        finally:
            await behind.close()


def _build_published_site_app(folder: Path) -> ASGIApp:
    """Return the application that serves published skills; raise `NotFound` if the folder has none."""
    if not (folder / INDEX_PATH).is_file():
        raise NotFound(f"There is no {folder / INDEX_PATH}.", hint=f"Write it: habitus skills publish {folder} NAME")
    return Mount(f"/{WELL_KNOWN_PATH}", StaticFiles(directory=folder / WELL_KNOWN_PATH))


@dataclass(frozen=True, kw_only=True, slots=True)
class MountedAppsRouter:
    """Routes a request to the MCP app, the published site or the web pages."""

    web_app: ASGIApp
    mcp_app: ASGIApp
    published_site: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            self.published_site is not None
            and scope["type"] == "http"
            and scope["path"].startswith(f"/{WELL_KNOWN_PATH}/")
        ):
            await self.published_site(scope, receive, send)
            return
        # Only the MCP app has start-up and shutdown work, so lifespan events go there.
        is_agents = scope["type"] == "lifespan" or scope["path"] == mcp_http.MCP_PATH
        await (self.mcp_app if is_agents else self.web_app)(scope, receive, send)


class StreamEndingServer(uvicorn.Server):
    """A uvicorn server that ends open streams on shutdown and leaves closing the home to the caller."""

    def __init__(self, config: uvicorn.Config, ending: StreamEndingMiddleware) -> None:
        super().__init__(config)
        self._ending = ending

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGINT and SIGTERM; uvicorn would raise the signal again after shutdown."""
        loop = asyncio.get_running_loop()
        with ExitStack() as handled:
            for number in (signal.SIGINT, signal.SIGTERM):
                # Only the main thread can install signal handlers.
                with suppress(ValueError, RuntimeError):
                    handled.enter_context(operating_system.handle_signal(loop, number, self._request_exit_with_timeout))
            yield

    def _request_exit_with_timeout(self) -> None:
        if not self.should_exit:
            last = threading.Timer(_EXIT_TIMEOUT_S, os._exit, [0])
            last.daemon = True
            last.start()
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the open streams first, since uvicorn waits for them."""
        self._ending.end_streams()
        await super().shutdown(sockets)
