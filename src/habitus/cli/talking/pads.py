"""`habitus pad …`: scratchpads without an agent. Variables live in a process in the background, cells in the home."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer

from habitus.app.conversations import running_code as use_case
from habitus.app.conversations.running_code import RanCell
from habitus.cli import inputs, output
from habitus.cli.opening import open_habitus
from habitus.cli.options import AsJson, Yes
from habitus.redact import taken_out

Name = Annotated[str, typer.Argument(help="A scratchpad.")]
Idle = Annotated[float, typer.Option("--idle", min=0.1, help="Seconds without a cell after which its process ends.")]


def execute(
    context: typer.Context,
    name: Name,
    code: Annotated[str | None, typer.Argument(help="Python; '-' reads standard input.")] = None,
    file: Annotated[str | None, typer.Option("--file", "-f", help="A file with the code.")] = None,
    description: Annotated[str, typer.Option("--description", "-d", help="What the cell does.")] = "",
    estimate: Annotated[float | None, typer.Option("--estimate", help="Seconds it may take; sets its limits.")] = None,
    idle: Idle = 1800.0,
    as_json: AsJson = False,
) -> None:
    """Run a cell. Variables stay until the pad is reset, removed, or idle for half an hour."""
    if (code is None) == (file is None):
        raise typer.BadParameter("Give the code, or a file with --file, or '-' for standard input.")
    text = inputs.read_text(file) if file is not None else inputs.read_text("-") if code == "-" else str(code)
    said = (lambda text: None) if as_json else (lambda text: output.write(output.clean(text)))
    with open_habitus(context) as habitus:
        cell = use_case.execute(
            habitus, name, text, description=description, estimated_s=estimate, idle_s=idle, said=said
        )
    if as_json:
        output.print_json(cell)
    else:
        for line in cell["logs"]:
            output.complain(line)
        if cell["error"]:
            output.complain(cell["error"])
        output.tell_taken_out(taken_out(cell["stdout"]))
    if cell["error"]:
        raise typer.Exit(1)


def list_pads(context: typer.Context, as_json: AsJson = False) -> None:
    """Every scratchpad, and whether its variables are still there."""
    with open_habitus(context) as habitus:
        found = use_case.pads(habitus)
        rows = [(pad.name, "running" if pad.running else "asleep", pad.cells) for pad in found]
        empty = "There are no scratchpads yet. Start one: habitus pad exec NAME 'print(1)'"
        output.say_list(as_json, {"pads": found}, ("name", "process", "cells"), rows, empty=empty)


def view(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """The cells that ran since the pad was made or reset, with what they printed."""
    with open_habitus(context) as habitus:
        cells = use_case.cells(habitus, name)
        said = "\n\n".join(_show_cell(number, cell) for number, cell in enumerate(cells, 1)) or "No cell ran yet."
        output.say_done(context, as_json, {"name": name, "cells": cells}, said)


def _show_cell(number: int, cell: RanCell) -> str:
    title = f"# cell {number}" + (f": {cell['description']}" if cell["description"] else "")
    parts = [title, cell["code"].rstrip(), cell["stdout"].rstrip(), cell["stderr"].rstrip(), cell["error"] or ""]
    return "\n".join(part for part in parts if part)


def reset(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Forget the variables and cells; files and packages stay."""
    with open_habitus(context) as habitus:
        done = use_case.reset(habitus, name)
        forgotten = output.count_of(done.forgotten_cells, "cell")
        said = f"{name} starts anew; {forgotten} forgotten. Its files and packages stay."
        output.say_done(context, as_json, done, said)


def remove(
    context: typer.Context,
    name: Name,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete a scratchpad with its files and packages. There is no way back."""
    with open_habitus(context) as habitus:
        habitus.refuse_if_read_only()
        folder = use_case.existing(habitus, name)
        if not yes:
            if as_json or not sys.stdin.isatty():
                raise typer.BadParameter("Its files would be gone for good; say --yes.")
            if not typer.confirm(f"Delete {folder} for good?"):
                raise typer.Abort
        asyncio.run(use_case.remove(habitus, name))
        output.say_done(context, as_json, {"removed": name}, f"{name} is gone.")


def keep(context: typer.Context, name: Name, idle: Idle = 1800.0) -> None:
    """Hold a pad's process; started by 'exec', in the background."""
    with open_habitus(context) as habitus:
        asyncio.run(use_case.keep(habitus, name, idle))
