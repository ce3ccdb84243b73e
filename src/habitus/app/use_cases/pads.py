"""Scratchpads without an agent: run a cell in one, list them and their cells, reset or remove one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from habitus.access import Access
from habitus.app.conversations import running_code
from habitus.app.conversations.running_code import PadState, ResetPad
from habitus.app.home import Home
from habitus.app.use_cases.declaration import Nothing, argument, option, use_case
from habitus.errors import Misused
from habitus.sandbox.model import Cell


def pad_name() -> str:
    """Declare the argument for a scratchpad's name."""
    name: str = argument("A scratchpad.")
    return name


@dataclass(frozen=True, kw_only=True)
class PadCell:
    name: str = pad_name()
    code: str | None = argument("Python; '-' reads standard input.", default=None)
    description: str = option("What the cell does.", "-d", default="")
    estimate: float | None = option("Seconds it may take; sets its limits.")
    idle: float = option("Seconds without a cell after which its process ends.", default=1800.0, least=0.1)


@use_case("pad exec", access=Access.OWNER, example=PadCell(name="trial", code="print(x * 2)"))
def execute(home: Home, wanted: PadCell) -> Cell:
    """Run a cell. Variables stay until the scratchpad is reset, removed, or idle for half an hour."""
    return execute_aloud(home, wanted, lambda printed: None)


def execute_aloud(home: Home, wanted: PadCell, said: Callable[[str], None]) -> Cell:
    """Run a cell, and pass its output to `on_output` while it runs."""
    if wanted.code is None:
        raise Misused("Give the code, or a file with --file, or '-' for standard input.")
    return running_code.execute(
        home,
        wanted.name,
        wanted.code,
        description=wanted.description,
        estimated_s=wanted.estimate,
        idle_s=wanted.idle,
        said=said,
    )


@dataclass(frozen=True, kw_only=True)
class PadList:
    pads: Sequence[PadState]


@use_case("pad list", access=Access.OWNER, example=Nothing())
def list_pads(home: Home, wanted: Nothing) -> PadList:
    """List the scratchpads, and whether their variables are still in memory."""
    return PadList(pads=running_code.pads(home.settings))


@dataclass(frozen=True, kw_only=True)
class OnePad:
    name: str = pad_name()


@dataclass(frozen=True, kw_only=True)
class PadCells:
    name: str
    cells: Sequence[Cell]


@use_case("pad view", access=Access.OWNER, example=OnePad(name="trial"))
def view(home: Home, wanted: OnePad) -> PadCells:
    """Show the cells that ran since the scratchpad was created or reset, with their output."""
    return PadCells(name=wanted.name, cells=running_code.cells(home.settings, wanted.name))


@use_case("pad reset", access=Access.OWNER, example=OnePad(name="trial"))
def reset(home: Home, wanted: OnePad) -> ResetPad:
    """Drop the variables and cells; files and packages stay."""
    return running_code.reset(home, wanted.name)


@dataclass(frozen=True, kw_only=True)
class RemovedPad:
    removed: str


@use_case("pad remove", access=Access.OWNER, example=OnePad(name="trial"))
def remove(home: Home, wanted: OnePad) -> RemovedPad:
    """Delete a scratchpad with its files and packages. This can't be undone."""
    home.refuse_if_read_only()
    asyncio.run(running_code.remove(home, wanted.name))
    return RemovedPad(removed=wanted.name)
