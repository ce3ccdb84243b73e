"""`habitus mcp`: serves an agent over MCP, on standard input and output or over HTTP."""

from __future__ import annotations

import asyncio
import gc
import sys
from typing import Annotated

import typer

from habitus.agent.tools.registry import parse_tool_profile
from habitus.cli import output
from habitus.cli.start import get_early_mcp_responder
from habitus.errors import Invalid, NotFound
from habitus.mcp.http import serve_mcp_http
from habitus.mcp.server import serve_stdio
from habitus.mcp.server_options import McpServerOptions


def serve_mcp(
    context: typer.Context,
    http: Annotated[bool, typer.Option("--http", help="Serve HTTP on this machine instead of a pipe.")] = False,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="With --http: the port; 0 picks a free one.")
    ] = 8765,
    tools: Annotated[
        str, typer.Option("--tools", help="default, read, or all; code of skills is always included.")
    ] = "default",
    user: Annotated[
        str,
        typer.Option("--user", help="User whose skills and lessons are served; default is the user in the settings."),
    ] = "",
    read_only: Annotated[bool, typer.Option("--read-only", help="Only tools that change nothing.")] = False,
    layers: Annotated[
        str, typer.Option("--layers", help="Serve only skills of these layers, for example user,project.")
    ] = "",
) -> None:
    """Serve skills, lessons and tools to an agent that speaks MCP, such as Claude Code."""
    chosen = tuple(name.strip() for name in layers.split(",") if name.strip())
    scope = McpServerOptions(
        home=context.find_root().obj, user=user, profile=tools, read_only=read_only, layers=chosen, is_http=http
    )
    # The command line turns garbage collection down for short commands; this one runs for weeks.
    gc.set_threshold(10_000, 10, 10)
    try:
        parse_tool_profile(tools)
        asyncio.run(
            serve_mcp_http(scope, port, output.print_line)
            if http
            else serve_stdio(scope, get_early_mcp_responder(*sys.argv[1:]))
        )
    except (Invalid, NotFound) as error:
        raise typer.BadParameter(f"{error.message} {error.hint}") from None
