"""Scratchpads: named, stateful Python processes in which an agent tries things out, cell by cell.

`run_cell` runs a cell and notifies its observers. The second half is the daemon that keeps a scratchpad alive between
commands.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import io
import json
import logging
import os
import selectors
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from habitus import operating_system, resident_process
from habitus.errors import HabitusError, NotFound, Refused, StorageFailed, did_you_mean
from habitus.locks import hold_lock
from habitus.redact import Redactor
from habitus.resident_process import connect_to_process, get_lock_path, open_private_file, serve_until_idle
from habitus.sandbox.child import HostServices
from habitus.sandbox.model import Cell, CellTimeouts, compute_cell_timeouts
from habitus.sandbox.runtimes.base import ScratchpadRuntime, check_scratchpad_name
from habitus.sandbox.scratchpad import ScratchpadRunner
from habitus.sandbox.venvs import guess_package_name
from habitus.text import replace_surrogates

log = logging.getLogger(__name__)

InstallPolicy = Callable[[str], Awaitable[bool]]


class CellObserver(Protocol):
    """Watches cells. It must not block: slow work belongs in the background."""

    def on_pre_execute(self, cell: Cell) -> None: ...

    def on_post_execute(self, cell: Cell) -> None: ...


async def run_cell(pad: ScratchpadRunner, cell: Cell, observers: Sequence[CellObserver] = ()) -> Cell:
    """Run one cell and notify the observers before and after, whatever the result."""
    for observer in observers:
        _notify_observer(observer.on_pre_execute, cell)
    done = await pad.execute_cell(cell)
    for observer in observers:
        _notify_observer(observer.on_post_execute, done)
    return done


def _notify_observer(hook: Callable[[Cell], None], cell: Cell) -> None:
    try:
        hook(cell)
    # An observer only watches: its failure must not fail the cell.
    except Exception:
        log.warning("A cell observer failed; the cell is not affected.", exc_info=True)


class SessionScratchpads:
    """The scratchpads of one session, by name. Closing ends their processes; environments and files stay."""

    def __init__(
        self,
        runtime: ScratchpadRuntime,
        *,
        services: HostServices | None = None,
        keep_made: Path | None = None,
        may_install: InstallPolicy | None = None,
        initial_packages: Callable[[], Sequence[str]] = tuple,
        timeouts: Callable[[float | None], CellTimeouts] = compute_cell_timeouts,
        output_chars: int = 10_000,
        grace_s: float = 3.0,
    ) -> None:
        self._runtime = runtime
        self._may_install = may_install
        self._begin_with = initial_packages
        self._pads: dict[str, ScratchpadRunner] = {}
        self._make_pad = functools.partial(
            ScratchpadRunner,
            runtime=runtime,
            services=services or {},
            timeouts=timeouts,
            output_chars=output_chars,
            grace_s=grace_s,
            on_missing=self._install_missing_package,
            keep_made=keep_made,
        )

    async def execute_code(
        self,
        name: str,
        code: str,
        *,
        description: str = "",
        estimated_s: float | None = None,
        observers: Sequence[CellObserver] = (),
        watch: Callable[[str], None] | None = None,
    ) -> Cell:
        """Run code in the scratchpad of that name, creating it if needed. `watch` receives its output meanwhile.

        Files that the cell made for a person to open are copied to `keep_made`, if that was given.
        """
        if name not in self._pads:
            await self._install_initial_packages(check_scratchpad_name(name))
        pad = self._get_or_create_scratchpad(name)
        pad.watch = watch
        cell = Cell(code=replace_surrogates(code), description=replace_surrogates(description), estimated_s=estimated_s)
        try:
            return await run_cell(pad, cell, observers)
        finally:
            pad.watch = None

    async def _install_initial_packages(self, name: str) -> None:
        """Install the initial packages of a scratchpad; if that fails, it starts without them."""
        if packages := await asyncio.to_thread(self._begin_with):
            try:
                await self._runtime.install_scratchpad_packages(name, packages)
            except HabitusError as error:
                log.warning("Scratchpad %s begins without %s: %s", name, ", ".join(packages), error)

    def cancel_cell_of_scratchpad(self, name: str) -> None:
        """Stop the cell that runs in the scratchpad; its error then begins with `Cancelled`."""
        self._get_open_scratchpad(name).stop_running_cell()

    def list_cells(self, name: str) -> tuple[Cell, ...]:
        """Return the cells that ran since the scratchpad was opened or reset."""
        return tuple(self._get_open_scratchpad(name).cells)

    def render_markdown(self, name: str) -> str:
        """Render the scratchpad as one Markdown document: each cell with its output and error."""
        cells = self._get_open_scratchpad(name).cells
        return "\n\n".join(
            [f"# Scratchpad {name}", *(_render_cell(number, cell) for number, cell in enumerate(cells, 1))]
        )

    async def drop_variables_and_cells(self, name: str) -> None:
        """Drop the variables and cells; keep the packages and files."""
        # One that was just reset is not open any more, and may be reset again.
        if name not in self._pads and name in await self._runtime.list_stored_scratchpad_names():
            return
        await self._get_open_scratchpad(name).close()
        del self._pads[name]

    async def close_and_delete_scratchpad(self, name: str) -> None:
        """Delete everything of the scratchpad."""
        pad = self._pads.pop(name, None)
        if pad:
            await pad.close()
        await self._runtime.delete_scratchpad(name)

    async def install_allowed_packages(self, name: str, requirements: Sequence[str]) -> str:
        """Install packages if that is allowed; a running scratchpad can import them at once."""
        for requirement in requirements:
            if self._may_install is not None and not await self._may_install(requirement):
                raise Refused(f"Installing '{requirement}' was not allowed.", hint="Do without it, or ask the person.")
        return await self._runtime.install_scratchpad_packages(check_scratchpad_name(name), requirements)

    async def list_open_and_stored_names(self) -> list[str]:
        """Return the names of open and stored scratchpads, sorted."""
        return sorted({*self._pads, *await self._runtime.list_stored_scratchpad_names()})

    async def close(self) -> None:
        """End the processes of all scratchpads."""
        while self._pads:
            await self._pads.popitem()[1].close()
        await self._runtime.close()

    def _get_or_create_scratchpad(self, name: str) -> ScratchpadRunner:
        if name not in self._pads:
            self._pads[name] = self._make_pad(check_scratchpad_name(name))
        return self._pads[name]

    def _get_open_scratchpad(self, name: str) -> ScratchpadRunner:
        if name not in self._pads:
            raise NotFound(f"No scratchpad '{name}' is open.", hint=did_you_mean(name, self._pads))
        return self._pads[name]

    async def _install_missing_package(self, name: str, module: str) -> str | None:
        """Install the package of a failed import if that is allowed; return a message, or None if not."""
        package = guess_package_name(module)
        if self._may_install is None or not await self._may_install(package):
            return None
        try:
            await self._runtime.install_scratchpad_packages(name, [package])
        except HabitusError as error:
            log.info("Could not install %s: %s", package, error)
            return None
        return f"Installed {package} and ran the cell again."


def _render_cell(number: int, cell: Cell) -> str:
    parts = [
        f"## Cell {number}" + (f": {cell.description}" if cell.description else ""),
        _render_fence(cell.code, "python"),
    ]
    for title, text in [("Output", cell.stdout), ("Stderr", cell.stderr), ("Error", cell.error or "")]:
        if text.strip():
            parts += [f"{title}:", _render_fence(text)]
    parts += [f"- progress: {line}" for line in cell.progress]
    parts += [f"- {line}" for line in cell.logs]
    return "\n\n".join(parts)


def _render_fence(text: str, language: str = "") -> str:
    """Fence a text with more backticks than it contains."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


_START_S = 60.0
_NAME, _CELLS = "keeper", "cells.jsonl"


def send_request_to_daemon(
    folder: Path, request: dict[str, Any], *, on_output: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Send a request to the scratchpad's daemon and return its answer; `on_output` receives the output of the cell."""
    with connect_to_process(folder, _NAME) as line:
        line.sendall(json.dumps(request).encode() + b"\n")
        for answer in io.BufferedReader(_InterruptibleReader(line)):
            message: dict[str, Any] = json.loads(answer)
            if "said" not in message:
                return message
            on_output(message["said"])
    raise StorageFailed("The scratchpad's keeper ended in the middle.", hint="Run the cell again.")


class _InterruptibleReader(io.RawIOBase):
    """A readable socket on which Ctrl-C is noticed while waiting.

    A signal that arrives just before Python starts to wait would otherwise be noticed only afterwards.
    """

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._selector = selectors.DefaultSelector()
        self._selector.register(line, selectors.EVENT_READ)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._selector.select(1):
            # The signal is noticed here.
            pass
        return self._line.recv_into(buffer)


def is_daemon_running(folder: Path) -> bool:
    """Whether the daemon of this scratchpad runs."""
    return resident_process.is_process_running(folder, _NAME)


def ensure_daemon_running(folder: Path, command: list[str]) -> None:
    """Start a daemon with this command if none runs. Of two, the second finds the lock taken and exits."""
    if is_daemon_running(folder):
        return
    if sys.platform == "win32":
        raise NotImplementedError
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    log = folder / "keeper.log"
    keeper = operating_system.start_detached_process(command, log)
    deadline = time.monotonic() + _START_S
    while not is_daemon_running(folder):
        ended, status = os.waitpid(keeper, os.WNOHANG) if keeper else (0, 0)
        keeper = 0 if ended else keeper
        if status or time.monotonic() > deadline:
            words = log.read_text("utf-8", errors="replace").strip().splitlines()
            raise StorageFailed(f"The scratchpad did not start: {words[-1] if words else 'no answer'}", hint="")
        time.sleep(0.02)


def stop_daemon(folder: Path) -> bool:
    """Stop the daemon and wait until it has released the scratchpad. False if none runs."""
    try:
        send_request_to_daemon(folder, {"stop": True})
    except (OSError, StorageFailed):
        return False
    with hold_lock(get_lock_path(folder, _NAME)):
        return True


def has_had_daemon(folder: Path) -> bool:
    """Whether a daemon ever held the scratchpad, whichever machine its files are on."""
    return get_lock_path(folder, _NAME).is_file()


def delete_recorded_cells(folder: Path) -> int:
    """Delete the recorded cells and return their number."""
    count = len(read_recorded_cells(folder))
    (folder / _CELLS).unlink(missing_ok=True)
    return count


def read_recorded_cells(folder: Path) -> list[dict[str, Any]]:
    """Return the cells recorded since the scratchpad was created or reset; a line cut off by a crash is skipped."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for line in (folder / _CELLS).read_text(encoding="utf-8", errors="replace").split("\n"):
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
    return found


async def run_daemon(pads: SessionScratchpads, folder: Path, *, redactor: Redactor, idle_s: float) -> None:
    """Run the daemon of this scratchpad until it is stopped or idle."""
    keeper = _ScratchpadDaemon(pads, folder, redactor)
    await serve_until_idle(
        folder, _NAME, keeper.handle_connection, idle_s=idle_s, stop=keeper.stop_requested, close=pads.close
    )


class _ScratchpadDaemon:
    """Serves the requests of commands to one scratchpad."""

    def __init__(self, pads: SessionScratchpads, folder: Path, redactor: Redactor) -> None:
        self._pads = pads
        self._redactor = redactor
        self._name = folder.name
        self._folder = folder
        self._turn = asyncio.Lock()
        self.stop_requested = asyncio.Event()
        self._notice = (
            "The scratchpad was restarted: earlier variables are lost." if read_recorded_cells(folder) else ""
        )

    async def handle_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if request := await reader.readline():
            await self._handle_request(json.loads(request), reader, writer)

    async def _handle_request(
        self, request: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        def say(message: dict[str, Any]) -> None:
            if not writer.is_closing():
                writer.write(json.dumps(message).encode() + b"\n")

        if request.get("stop"):
            self.stop_requested.set()
            say({"stopped": True})
            await writer.drain()
            return
        async with self._turn:
            leaving = asyncio.create_task(self._cancel_when_client_hangs_up(reader))
            try:
                # A secret may be split between two pieces of output, which only a streaming redactor finds.
                printed = self._redactor.open_redacting_stream()
                done = await self._run_and_record_cell(request, lambda text: say({"said": printed.feed(text)}))
                say({"said": printed.end()})
                say(done)
            except HabitusError as error:
                say({"error": str(error)})
            finally:
                leaving.cancel()
            await writer.drain()

    async def _cancel_when_client_hangs_up(self, reader: asyncio.StreamReader) -> None:
        """Cancel the cell when the client hangs up: it sends nothing after its request."""
        await reader.read()
        with contextlib.suppress(HabitusError):
            self._pads.cancel_cell_of_scratchpad(self._name)

    async def _run_and_record_cell(self, request: dict[str, Any], watch: Callable[[str], None]) -> dict[str, Any]:
        done = await self._pads.execute_code(
            self._name,
            str(request["exec"]),
            description=str(request.get("description", "")),
            estimated_s=request.get("estimated_s"),
            watch=watch,
        )
        if self._notice:
            done = dataclasses.replace(done, logs=(self._notice, *done.logs))
            self._notice = ""
        kept = self._redactor.redact_value(dataclasses.asdict(done))
        with open(self._folder / _CELLS, "a", encoding="utf-8", opener=open_private_file) as file:
            file.write(json.dumps(kept, ensure_ascii=False) + "\n")
        return {"cell": kept}
