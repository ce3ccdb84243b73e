"""`habitus pad …`: renders results and holds a scratchpad's process; `use_cases/pads.py` does the work.

A scratchpad's variables live in a background process, its cells in the home.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

import typer

from habitus.app import Habitus
from habitus.app.conversations import running_code
from habitus.app.conversations.running_code import ResetPad
from habitus.app.use_cases import pads
from habitus.app.use_cases.declaration import Nothing
from habitus.app.use_cases.pads import OnePad, PadCell, PadCells, PadList, RemovedPad
from habitus.cli import inputs, output
from habitus.cli.opening import open_habitus
from habitus.errors import Misused
from habitus.redact import taken_out
from habitus.sandbox.model import Cell

CodeFile = Annotated[str | None, typer.Option("--file", "-f", help="A file with the code.")]


def perform_execute(habitus: Habitus, wanted: PadCell, file: CodeFile = None, as_json: bool = False) -> Cell:
    """Run a cell from the argument, a file or standard input, printing its output as it arrives."""
    if (wanted.code is None) == (file is None):
        raise Misused("Give the code, or a file with --file, or '-' for standard input.")
    path = file if file is not None else "-" if wanted.code == "-" else None
    cell = wanted if path is None else replace(wanted, code=inputs.read_text(path))
    # With --json the output is part of the result, so nothing is printed on the way.
    said: Callable[[str], None] = (lambda text: None) if as_json else (lambda text: output.write(output.clean(text)))
    return pads.execute_aloud(habitus, cell, said)


def execute(context: typer.Context, wanted: PadCell, done: Cell) -> None:
    for line in done.logs:
        output.complain(line)
    if done.error:
        output.complain(done.error)
    output.tell_taken_out(taken_out(done.stdout))


def list_pads(context: typer.Context, wanted: Nothing, done: PadList) -> None:
    rows = [(pad.name, "running" if pad.running else "asleep", pad.cells) for pad in done.pads]
    empty = "There are no scratchpads yet. Start one: habitus pad exec NAME 'print(1)'"
    output.rows_or(empty, ("name", "process", "cells"), rows)


def view(context: typer.Context, wanted: OnePad, done: PadCells) -> None:
    shown = [_describe_cell(number, cell) for number, cell in enumerate(done.cells, 1)]
    output.say("\n\n".join(shown) or "No cell ran yet.")


def _describe_cell(number: int, cell: Cell) -> str:
    title = f"# cell {number}" + (f": {cell.description}" if cell.description else "")
    parts = [title, cell.code.rstrip(), cell.stdout.rstrip(), cell.stderr.rstrip(), cell.error or ""]
    return "\n".join(part for part in parts if part)


def reset(context: typer.Context, wanted: OnePad, done: ResetPad) -> None:
    forgotten = output.count_of(done.forgotten_cells, "cell")
    output.say(f"{done.name} starts anew; {forgotten} forgotten. Its files and packages stay.")


def confirm_remove(habitus: Habitus, wanted: OnePad, say: Callable[..., None]) -> str:
    habitus.refuse_if_read_only()
    return f"Delete {running_code.existing(habitus.settings, wanted.name)} for good?"


def remove(context: typer.Context, wanted: OnePad, done: RemovedPad) -> None:
    output.say(f"{done.removed} is gone.")


def keep(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A scratchpad.")],
    idle: Annotated[float, typer.Option("--idle", min=0.1, help="Seconds without a cell after which it ends.")] = 1800,
) -> None:
    """Keep a scratchpad's process running; 'exec' starts it in the background."""
    with open_habitus(context) as habitus:
        asyncio.run(running_code.keep(habitus, name, idle))
