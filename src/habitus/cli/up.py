"""`habitus up`: the web page, REST and MCP over HTTP, in one process on this machine."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from habitus.app import Habitus
from habitus.cli import output
from habitus.cli.opening import opened
from habitus.errors import Refused
from habitus.mcp import http as mcp_http
from habitus.mcp.scope import Scope as McpScope
from habitus.mcp.server import Behind
from habitus.web.app import make_app
from habitus.web.security import keys_of

_CLOSING_S = 5


def up(
    context: typer.Context,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Where; 0 finds one.")] = 8765,
    host: Annotated[str, typer.Option("--host", help="Only names of this machine.")] = "127.0.0.1",
) -> None:
    """Open the web page: see, edit and review what your agents learned. Ctrl-C stops it."""
    if not _is_here(host):
        raise Refused(
            f"Whoever reaches {host} could read your skills, because nobody signs in there.",
            mend=f"Leave --host out; from another machine: ssh -L {port}:127.0.0.1:{port} THIS-MACHINE.",
        )
    home: Path | None = context.find_root().obj
    with opened(context) as habitus:
        asyncio.run(serve(habitus, home, host, port, output.say))


def _is_here(host: str) -> bool:
    """Whether only this machine can reach it."""
    with suppress(ValueError):
        address = ipaddress.ip_address(host)
        return address.is_loopback and address.version == 4
    return host == "localhost"


async def serve(habitus: Habitus, home: Path | None, host: str, port: int, say: Callable[[str], None]) -> None:
    """Serve until somebody stops it; `say` tells the address and the link that signs in."""
    keys, scope = keys_of(habitus.place), McpScope(home=home)
    behind = Behind(scope)
    with mcp_http.listening(host, port) as door:
        port = door.getsockname()[1]
        names = [f"{name}:{port}" for name in dict.fromkeys((host, "127.0.0.1", "localhost"))]
        agents = mcp_http.guarded_app(behind, port, scope, keys.bearer)
        both = Both(pages=make_app(habitus, keys, names), agents=agents)
        say(f"Habitus is at http://{names[0]}")
        say(f"Sign in with this link, which works once: http://{names[0]}/enter?key={keys.new_link()}")
        say(f"Programs send 'Authorization: Bearer {keys.bearer}'; agents connect to http://{names[0]}{mcp_http.PATH}")
        config = uvicorn.Config(both, log_level="warning", lifespan="on", timeout_graceful_shutdown=_CLOSING_S)
        try:
            await Server(config).serve(sockets=[door])
        finally:
            await behind.close()


@dataclass(frozen=True, kw_only=True, slots=True)
class Both:
    """Two applications at one address."""

    pages: ASGIApp
    agents: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_agents = scope["type"] == "lifespan" or scope["path"] == mcp_http.PATH
        await (self.agents if is_agents else self.pages)(scope, receive, send)


class Server(uvicorn.Server):
    """Stops when it is told to, and leaves it to us to close what is open."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(NotImplementedError, RuntimeError):  # a thread that is not the main one hears none
                loop.add_signal_handler(number, self._stop)
        yield

    def _stop(self) -> None:
        self.should_exit = True
