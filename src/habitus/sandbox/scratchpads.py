"""Scratchpads: named, stateful Python processes in which an agent tries things out, cell by cell.

`run_cell` is the dispatcher: the one place where running a cell and watching it meet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

from habitus.errors import HabitusError, NotFound, Refused, did_you_mean
from habitus.sandbox.model import Cell, Timeouts, timeouts_for
from habitus.sandbox.pad import Pad
from habitus.sandbox.runtimes.base import Runtime, check_name
from habitus.sandbox.services import Services
from habitus.sandbox.venvs import package_for
from habitus.text import encodable

log = logging.getLogger(__name__)

MayInstall = Callable[[str], Awaitable[bool]]


class CellObserver(Protocol):
    """Somebody who watches cells. It must not wait: what takes long belongs in the background."""

    def on_pre_execute(self, cell: Cell) -> None: ...

    def on_post_execute(self, cell: Cell) -> None: ...


async def run_cell(pad: Pad, cell: Cell, observers: Sequence[CellObserver] = ()) -> Cell:
    """Run one cell; observers see it before and after, whatever comes of it."""
    for observer in observers:
        _fire(observer.on_pre_execute, cell)
    done = await pad.execute(cell)
    for observer in observers:
        _fire(observer.on_post_execute, done)
    return done


def _fire(hook: Callable[[Cell], None], cell: Cell) -> None:
    try:
        hook(cell)
    except Exception:
        log.warning("A cell observer failed; the cell is not affected.", exc_info=True)


class Scratchpads:
    """The pads of one session, by name. Closing ends their processes; environments and files stay."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        services: Services | None = None,
        keep_made: Path | None = None,
        may_install: MayInstall | None = None,
        begin_with: Callable[[], Sequence[str]] = tuple,
        timeouts: Callable[[float | None], Timeouts] = timeouts_for,
        output_chars: int = 10_000,
        grace_s: float = 3.0,
    ) -> None:
        self._runtime = runtime
        self._services = services or {}
        self._may_install = may_install
        self._begin_with = begin_with
        self._timeouts = timeouts
        self._output_chars = output_chars
        self._grace_s = grace_s
        self._keep_made = keep_made
        self._pads: dict[str, Pad] = {}

    async def exec(
        self,
        name: str,
        code: str,
        *,
        description: str = "",
        estimated_s: float | None = None,
        observers: Sequence[CellObserver] = (),
        watch: Callable[[str], None] | None = None,
    ) -> Cell:
        """Run code in the pad of that name, which is made if it is new. `watch` is told what it prints meanwhile.

        Where a folder was given for it, what the cell made for a person to open is kept there.
        """
        if name not in self._pads:
            await self._begin(check_name(name))
        pad = self._pad(name)
        pad.watch = watch
        cell = Cell(code=encodable(code), description=encodable(description), estimated_s=estimated_s)
        try:
            return await run_cell(pad, cell, observers)
        finally:
            pad.watch = None

    async def _begin(self, name: str) -> None:
        """Give a pad the packages it begins with; without an index it begins without them."""
        if packages := await asyncio.to_thread(self._begin_with):
            try:
                await self._runtime.install(name, packages)
            except HabitusError as error:
                log.warning("Scratchpad %s begins without %s: %s", name, ", ".join(packages), error)

    def cancel(self, name: str) -> None:
        """Stop the cell that runs in the pad; its `exec` returns it with an error that begins `Cancelled`."""
        self._known(name).cancel()

    def view(self, name: str) -> tuple[Cell, ...]:
        """The cells that ran since the pad was opened or reset."""
        return tuple(self._known(name).cells)

    def dump(self, name: str) -> str:
        """The pad as one Markdown text: each cell, what it printed, what went wrong."""
        cells = self._known(name).cells
        return "\n\n".join(
            [f"# Scratchpad {name}", *(_as_markdown(number, cell) for number, cell in enumerate(cells, 1))]
        )

    async def reset(self, name: str) -> None:
        """Forget the variables and cells; keep the packages and files."""
        await self._known(name).close()
        del self._pads[name]

    async def remove(self, name: str) -> None:
        """Forget everything about the pad."""
        pad = self._pads.pop(name, None)
        if pad:
            await pad.close()
        await self._runtime.remove(name)

    async def install(self, name: str, requirements: Sequence[str]) -> str:
        """Add packages to the pad's environment, if that is allowed; a running pad can import them at once."""
        for requirement in requirements:
            if self._may_install is not None and not await self._may_install(requirement):
                raise Refused(f"Nobody allowed installing '{requirement}'.", mend="Do without it, or ask the person.")
        return await self._runtime.install(check_name(name), requirements)

    async def names(self) -> list[str]:
        return sorted({*self._pads, *await self._runtime.names()})

    async def close(self) -> None:
        while self._pads:
            await self._pads.popitem()[1].close()
        await self._runtime.close()

    def _pad(self, name: str) -> Pad:
        if name not in self._pads:
            self._pads[check_name(name)] = Pad(
                name,
                self._runtime,
                services=self._services,
                timeouts=self._timeouts,
                output_chars=self._output_chars,
                grace_s=self._grace_s,
                on_missing=self._install_missing,
                keep_made=self._keep_made,
            )
        return self._pads[name]

    def _known(self, name: str) -> Pad:
        if name not in self._pads:
            raise NotFound(f"No scratchpad '{name}' is open.", mend=did_you_mean(name, self._pads))
        return self._pads[name]

    async def _install_missing(self, name: str, module: str) -> str | None:
        """Install what an import missed, if that is allowed; a message when it was done."""
        package = package_for(module)
        if self._may_install is None or not await self._may_install(package):
            return None
        try:
            await self._runtime.install(name, [package])
        except HabitusError as error:
            log.info("Could not install %s: %s", package, error)
            return None
        return f"Installed {package} and ran the cell again."


def _as_markdown(number: int, cell: Cell) -> str:
    parts = [f"## Cell {number}" + (f": {cell.description}" if cell.description else ""), _fenced(cell.code, "python")]
    for title, text in [("Output", cell.stdout), ("Stderr", cell.stderr), ("Error", cell.error or "")]:
        if text.strip():
            parts += [f"{title}:", _fenced(text)]
    parts += [f"- progress: {line}" for line in cell.progress]
    parts += [f"- {line}" for line in cell.logs]
    return "\n\n".join(parts)


def _fenced(text: str, language: str = "") -> str:
    """A fence that is longer than any in the text."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
