"""`habitus tools scratchpad …`: renders results and holds a scratchpad's process; `use_cases/pads.py` does the work.

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
from habitus.app.home import refuse_if_read_only
from habitus.app.use_cases import pads
from habitus.cli import inputs, output
from habitus.cli.opening import open_habitus
from habitus.errors import InvalidOptions
from habitus.redact import count_redactions
from habitus.sandbox.model import Cell

CodeFileOption = Annotated[str | None, typer.Option("--file", "-f", help="A file with the code.")]


def perform_execute_cell(
    habitus: Habitus, request: pads.ExecuteCellRequest, file: CodeFileOption = None, as_json: bool = False
) -> Cell:
    """Run a cell from the argument, a file or standard input, printing its output as it arrives."""
    if (request.code is None) == (file is None):
        raise InvalidOptions("Give the code, or a file with --file, or '-' for standard input.")
    path = file if file is not None else "-" if request.code == "-" else None
    cell = request if path is None else replace(request, code=inputs.read_text_of_file_or_stdin(path))
    # With --json the output is part of the result, so nothing is printed on the way.
    said: Callable[[str], None] = (
        (lambda text: None) if as_json else (lambda text: output.write_stdout(output.strip_control_characters(text)))
    )
    return pads.execute_cell_streaming(habitus, cell, said)


def print_result_of_execute_cell(context: typer.Context, result: Cell) -> None:
    for line in result.logs:
        output.print_line_to_stderr(line)
    if result.error:
        output.print_line_to_stderr(result.error)
    output.print_redacted_secret_counts(count_redactions(result.stdout))


def print_result_of_list_scratchpads(context: typer.Context, result: pads.ListScratchpadsResult) -> None:
    rows = [(pad.name, "running" if pad.running else "stopped", pad.cells) for pad in result.pads]
    empty = "There are no scratchpads yet. Start one: habitus tools scratchpad exec NAME 'print(1)'"
    output.print_table_or_message(empty, ("name", "process", "cells"), rows)


def print_result_of_list_cells(context: typer.Context, result: pads.ListCellsResult) -> None:
    shown = [_render_cell_code_and_output(number, cell) for number, cell in enumerate(result.cells, 1)]
    output.print_line("\n\n".join(shown) or "No cells yet.")


def _render_cell_code_and_output(number: int, cell: Cell) -> str:
    title = f"# cell {number}" + (f": {cell.description}" if cell.description else "")
    parts = [title, cell.code.rstrip(), cell.stdout.rstrip(), cell.stderr.rstrip(), cell.error or ""]
    return "\n".join(part for part in parts if part)


def print_result_of_reset_scratchpad(context: typer.Context, result: running_code.ResetScratchpadResult) -> None:
    forgotten = output.format_quantity(result.forgotten_cells, "cell")
    output.print_line(f"{result.name} was reset; {forgotten} deleted. Its files and packages stay.")


def get_question_before_remove_scratchpad(habitus: Habitus, name: str, print_line: Callable[..., None]) -> str:
    refuse_if_read_only(habitus)
    return f"Delete {running_code.get_existing_scratchpad_folder(habitus.settings, name)} permanently?"


def print_result_of_remove_scratchpad(context: typer.Context, result: pads.RemoveScratchpadResult) -> None:
    output.print_line(f"{result.removed} was deleted.")


def hold_scratchpad_process(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A scratchpad.")],
    idle: Annotated[float, typer.Option("--idle", min=0.1, help="Stop after this many seconds without a cell.")] = 1800,
) -> None:
    """Keep a scratchpad's process running; 'exec' starts it in the background."""
    with open_habitus(context) as habitus:
        asyncio.run(running_code.run_scratchpad_process(habitus, name, idle))
