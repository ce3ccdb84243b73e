"""Scratchpads without an agent: run a cell in a pad that stays, look at pads, start one anew, delete one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from habitus.app.home import Home
from habitus.errors import Invalid, NotFound, did_you_mean
from habitus.sandbox import scratchpads
from habitus.sandbox.inside import folders
from habitus.sandbox.runtimes.base import check_name
from habitus.settings import Settings

RanCell = Mapping[str, Any]  # a cell as it is kept on disk: the fields of `Cell`


@dataclass(frozen=True, kw_only=True, slots=True)
class PadState:
    name: str
    running: bool  # whether its variables are still there
    cells: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ResetPad:
    name: str
    was_running: bool
    forgotten_cells: int


def execute(
    home: Home,
    name: str,
    code: str,
    *,
    description: str = "",
    estimated_s: float | None = None,
    idle_s: float,
    said: Callable[[str], None],
) -> RanCell:
    """Run a cell; `said` hears what it prints meanwhile. A keeper holds the pad until it was idle for so long."""
    home.refuse_if_read_only()
    folder = _folder(home.settings, name)
    habitus_at_home = [sys.executable, "-m", "habitus", "--home", str(home.settings.home)]
    scratchpads.ensure_running(folder, [*habitus_at_home, "pad", "keep", folder.name, "--idle", str(idle_s)])
    request = {"exec": code, "description": description, "estimated_s": estimated_s}
    answer = scratchpads.ask(folder, request, said=said)
    if "cell" not in answer:
        raise Invalid(str(answer.get("error", "The cell did not run.")), mend="")
    cell: RanCell = answer["cell"]
    return cell


async def keep(home: Home, name: str, idle_s: float) -> None:
    """Be the process that holds a pad."""
    folder = _folder(home.settings, name)
    await scratchpads.keep(home.scratchpads(), folder, redactor=home.redactor, idle_s=idle_s)


def pads(home: Home) -> tuple[PadState, ...]:
    top = _top(home.settings)
    return tuple(
        PadState(name=name, running=scratchpads.is_running(top / name), cells=len(scratchpads.cells(top / name)))
        for name in _names(home.settings)
    )


def cells(home: Home, name: str) -> Sequence[RanCell]:
    """What ran since the pad was made or reset."""
    return scratchpads.cells(existing(home, name))


def reset(home: Home, name: str) -> ResetPad:
    """Forget the variables and cells; files and packages stay."""
    home.refuse_if_read_only()
    folder = existing(home, name)
    was_running = scratchpads.stop(folder)
    return ResetPad(name=name, was_running=was_running, forgotten_cells=scratchpads.forget_cells(folder))


async def remove(home: Home, name: str) -> None:
    """Delete a pad with its files and packages, wherever they are."""
    folder = existing(home, name)
    scratchpads.stop(folder)
    pads = home.scratchpads()
    with suppress(NotFound):  # it never got as far as to have any there
        await pads.remove(name)
    await pads.close()
    if folder.exists():
        folders.remove(str(folder))


def existing(home: Home, name: str) -> Path:
    """The folder of a pad that is there."""
    folder, names = _folder(home.settings, name), _names(home.settings)
    if folder.name not in names:
        near = did_you_mean(name, names) or "See 'habitus pad list'."
        raise NotFound(f"There is no scratchpad '{name}'.", mend=near)
    return folder


def _folder(settings: Settings, name: str) -> Path:
    return _top(settings) / check_name(name)


def _names(settings: Settings) -> list[str]:
    found = _top(settings).iterdir() if _top(settings).is_dir() else ()
    return sorted(pad.name for pad in found if (pad / "lock").is_file() or scratchpads.knows(pad))


def _top(settings: Settings) -> Path:
    return settings.home / "pads"
