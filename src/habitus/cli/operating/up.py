"""`habitus up`: the web page, REST and MCP over HTTP in one process on this machine."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
import uvicorn
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from habitus import tracing
from habitus.app import Habitus
from habitus.app.operating.jobs import jobs_beside
from habitus.app.operating.people import open_people
from habitus.cli import output
from habitus.cli.opening import open_habitus
from habitus.cli.operating.config import describe_left
from habitus.cli.operating.secrets import unlock
from habitus.errors import NotFound, Refused
from habitus.mcp import http as mcp_http
from habitus.mcp.scope import Scope as McpScope
from habitus.mcp.server import Behind
from habitus.skills.sources.discovery import INDEX, PLACE
from habitus.web.app import make_app
from habitus.web.homes_by_person import Desks
from habitus.web.metrics import PATH, Measured, Metrics
from habitus.web.security import keys_of
from habitus.web.streams import Ending

# Requests in progress get this long to finish on shutdown.
_CLOSING_S = 30


def up(
    context: typer.Context,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Where; 0 finds one.")] = 8765,
    host: Annotated[
        str, typer.Option("--host", help="Another address of this machine, where people sign in.")
    ] = "127.0.0.1",
    name: Annotated[
        list[str] | None, typer.Option("--name", help="A name it is reached by, as host:port; may be repeated.")
    ] = None,
    open_reading: Annotated[
        bool, typer.Option("--open-reading", help="Whoever reaches it may look without signing in.")
    ] = False,
    publish: Annotated[
        Path | None,
        typer.Option("--publish", help="A folder of 'skills publish': anyone who reaches this reads it.", exists=True),
    ] = None,
    with_jobs: Annotated[bool, typer.Option("--jobs/--no-jobs", help="Do jobs too, and start what is due.")] = True,
) -> None:
    """Start the web page: see, edit and review what your agents learned. Ctrl-C stops it."""
    home: Path | None = context.find_root().obj
    with open_habitus(context, serves=True) as habitus:
        unlock(habitus)
        place = Place(host=host, port=port, names=tuple(name or ()), open_reading=open_reading, site=publish)
        _refuse_strangers(habitus, place)
        with (
            closing(Desks(habitus)) as desks,
            jobs_beside(lambda: desks.own) if with_jobs else nullcontext(),
        ):
            asyncio.run(serve(desks, home, place, output.say))
    # The process ends here; collecting garbage first takes longer than stopping.
    gc.freeze()


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """The address to listen on; `extra_names` are further names with their ports, for the Host header check."""

    host: str
    port: int
    names: tuple[str, ...] = ()
    # Anybody who reaches the server may read shared data, but nothing personal.
    open_reading: bool = False
    # A published skill site, readable by anybody who reaches the server.
    site: Path | None = None

    @property
    def is_public(self) -> bool:
        """Whether other machines can reach the address."""
        return not _is_here(self.host)


def _refuse_strangers(habitus: Habitus, place: Place) -> None:
    """Raise `Refused` if other machines can reach the address and no user can sign in."""
    people = open_people(habitus)
    if left := people.left_in_file():
        output.say(describe_left(people.file.path, left))
    if place.is_public and not people.list():
        raise Refused(
            f"Others reach {place.host}, and nobody can sign in there yet.",
            hint="Run 'habitus users add NAME --role admin' first, or leave --host out.",
        )


def _is_here(host: str) -> bool:
    """Return whether only this machine can reach the host."""
    with suppress(ValueError):
        address = ipaddress.ip_address(host)
        # The socket is IPv4 only, so ::1 is treated like any other address.
        return address.is_loopback and address.version == 4
    return host == "localhost"


async def serve(desks: Desks, home: Path | None, place: Place, say: Callable[[str], None]) -> None:
    """Serve until interrupted; `announce` receives the address and the sign-in link."""
    keys, scope = keys_of(desks.own), McpScope(home=home)
    metrics = Metrics(lambda: desks.own) if desks.own.settings.web.metrics else None
    behind = Behind(scope, lambda: desks.own.is_stand_in)
    with mcp_http.listening(place.host, place.port) as door:
        port = door.getsockname()[1]
        # The first name is printed as the address, so names given by the person come first.
        names = [*place.names, *(f"{name}:{port}" for name in dict.fromkeys((place.host, "127.0.0.1", "localhost")))]
        agents = mcp_http.guarded_app(behind, names, scope, keys.bearer)
        site = None if place.site is None else _published_site(place.site)
        both = Both(pages=make_app(desks, keys, names, open_reading=place.open_reading), agents=agents, site=site)
        say(f"Habitus is at http://{names[0]}")
        say(f"Sign in with this link, which works once: http://{names[0]}/enter?key={keys.new_link()}")
        if site is not None:
            who = "whoever reaches this address" if place.is_public else "everybody on this machine"
            say(f"Skills are published at http://{names[0]}/{INDEX}, for {who}")
        say(f"Programs send 'Authorization: Bearer {keys.bearer}'; agents connect to http://{names[0]}{mcp_http.PATH}")
        watched: ASGIApp = mcp_http.Watched(both, behind)
        if metrics is not None:
            # Outside the security check, so that refused requests are counted as well.
            watched = Measured(watched, metrics, keys.for_metrics)
            say(f"Prometheus reads http://{names[0]}{PATH} with 'Authorization: Bearer {keys.for_metrics}'")
        ending = Ending(watched)
        config = uvicorn.Config(
            ending,
            log_level="warning",
            lifespan="on",
            # A client could forge forwarded headers; the socket can't be forged.
            proxy_headers=False,
            timeout_graceful_shutdown=_CLOSING_S,
        )
        try:
            with nullcontext() if metrics is None else tracing.counting(metrics.count):
                await Server(config, ending).serve(sockets=[door])
        finally:
            await behind.close()


def _published_site(folder: Path) -> ASGIApp:
    """Return the application that serves published skills; raise `NotFound` if the folder has none."""
    if not (folder / INDEX).is_file():
        raise NotFound(f"There is no {folder / INDEX}.", hint=f"Write it: habitus skills publish {folder} NAME")
    return Mount(f"/{PLACE}", StaticFiles(directory=folder / PLACE))


@dataclass(frozen=True, kw_only=True, slots=True)
class Both:
    """Routes a request to the MCP app, the published site or the web pages."""

    pages: ASGIApp
    agents: ASGIApp
    site: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.site is not None and scope["type"] == "http" and scope["path"].startswith(f"/{PLACE}/"):
            await self.site(scope, receive, send)
            return
        # Only the MCP app has start-up and shutdown work, so lifespan events go there.
        is_agents = scope["type"] == "lifespan" or scope["path"] == mcp_http.PATH
        await (self.agents if is_agents else self.pages)(scope, receive, send)


class Server(uvicorn.Server):
    """A uvicorn server that ends open streams on shutdown and leaves closing the home to the caller."""

    def __init__(self, config: uvicorn.Config, ending: Ending) -> None:
        super().__init__(config)
        self._ending = ending

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGINT and SIGTERM; uvicorn would raise the signal again after shutdown."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            # Only the main thread can install signal handlers.
            with suppress(NotImplementedError, RuntimeError):
                loop.add_signal_handler(number, self._stop)
        yield

    def _stop(self) -> None:
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the open streams first, since uvicorn waits for them."""
        self._ending.end()
        await super().shutdown(sockets)
