"""Scratchpads without an agent: run a cell in one, list them and their cells, reset or remove one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

from habitus.access import Access
from habitus.app.conversations import running_code
from habitus.app.home import Home, refuse_if_read_only
from habitus.app.use_cases.declaration import argument, option, use_case
from habitus.errors import InvalidOptions
from habitus.sandbox.model import Cell

ScratchpadName = Annotated[str, argument("A scratchpad.")]


@dataclass(frozen=True, kw_only=True)
class ExecuteCellRequest:
    name: ScratchpadName
    code: Annotated[str | None, argument("Python; '-' reads standard input.")] = None
    description: Annotated[str, option("What the cell does.", "-d")] = ""
    estimate: Annotated[float | None, option("Estimated seconds; sets the time limit.")] = None
    idle: Annotated[float, option("Stop the process after this many seconds without a cell.", least=0.1)] = 1800.0


@use_case("tools scratchpad exec", access=Access.OWNER, example={"name": "trial", "code": "print(x * 2)"})
def execute_cell(home: Home, request: ExecuteCellRequest) -> Cell:
    """Run a cell. Variables stay until the scratchpad is reset, removed, or idle for half an hour."""
    return execute_cell_streaming(home, request, lambda printed: None)


def execute_cell_streaming(home: Home, request: ExecuteCellRequest, on_output: Callable[[str], None]) -> Cell:
    """Run a cell, and pass its output to `on_output` while it runs."""
    if request.code is None:
        raise InvalidOptions("Give the code, or a file with --file, or '-' for standard input.")
    return running_code.execute_cell(
        home,
        request.name,
        request.code,
        description=request.description,
        estimated_s=request.estimate,
        idle_s=request.idle,
        on_output=on_output,
    )


@dataclass(frozen=True, kw_only=True)
class ListScratchpadsResult:
    pads: Sequence[running_code.ScratchpadStatus]


@use_case("tools scratchpad list", access=Access.OWNER)
def list_scratchpads(home: Home) -> ListScratchpadsResult:
    """List the scratchpads, and whether their variables are still in memory."""
    return ListScratchpadsResult(pads=running_code.list_scratchpads(home.settings))


@dataclass(frozen=True, kw_only=True)
class ListCellsResult:
    name: str
    cells: Sequence[Cell]


@use_case("tools scratchpad view", access=Access.OWNER, example={"name": "trial"})
def list_cells(home: Home, name: ScratchpadName) -> ListCellsResult:
    """Show the cells that ran since the scratchpad was created or reset, with their output."""
    return ListCellsResult(name=name, cells=running_code.list_scratchpad_cells(home.settings, name))


@use_case("tools scratchpad reset", access=Access.OWNER, example={"name": "trial"})
def reset_scratchpad(home: Home, name: ScratchpadName) -> running_code.ResetScratchpadResult:
    """Drop the variables and cells; files and packages stay."""
    return running_code.reset_scratchpad(home, name)


@dataclass(frozen=True, kw_only=True)
class RemoveScratchpadResult:
    removed: str


@use_case("tools scratchpad remove", access=Access.OWNER, example={"name": "trial"})
def remove_scratchpad(home: Home, name: ScratchpadName) -> RemoveScratchpadResult:
    """Delete a scratchpad with its files and packages. This can't be undone."""
    refuse_if_read_only(home)
    asyncio.run(running_code.remove_scratchpad(home, name))
    return RemoveScratchpadResult(removed=name)
