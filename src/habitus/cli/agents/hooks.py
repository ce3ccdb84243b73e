"""`habitus jobs hooks`: the background process that answers the hooks of connected agents; the first hook starts it."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated

import typer

from habitus.app import read_settings
from habitus.app.other_agents.connecting import write_hook_command_file_or_get_warning
from habitus.app.other_agents.hook_server import IDLE_S, run_hook_daemon
from habitus.cli import output


def serve_hooks(
    context: typer.Context,
    idle: Annotated[
        float, typer.Option("--idle", min=0.1, help="Stop after this many seconds without a hook.")
    ] = IDLE_S,
    note: Annotated[bool, typer.Option("--note", help="Only record for the plugin how its hooks are run.")] = False,
) -> None:
    """Answer the hooks of connected agents; the first hook starts it in the background."""
    if note:
        if said := write_hook_command_file_or_get_warning(read_settings(context.find_root().obj), os.environ):
            output.print_line(said)
        return
    asyncio.run(run_hook_daemon(read_settings(context.find_root().obj), idle_s=idle))
