"""The keeper: a process in the background that holds one scratchpad, so that its variables outlive a command.

It listens on a socket in the pad's folder, takes one request at a time (a line of JSON), answers with lines of JSON,
writes each cell down, and ends when it is told to, has been idle for long, or its folder is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import io
import json
import os
import select
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from habitus import resident
from habitus.errors import HabitusError, StorageFailed
from habitus.locks import lock
from habitus.redact import Redactor
from habitus.resident import connected, in_background, listen, lock_file, private
from habitus.sandbox.scratchpads import Scratchpads

_START_S = 60.0
_NAME, _CELLS = "keeper", "cells.jsonl"


# The side of a command


def ask(folder: Path, request: dict[str, Any], *, said: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Put a request to the pad's keeper and wait for its answer; `said` hears what the cell prints meanwhile."""
    with connected(folder, _NAME) as line:
        line.sendall(json.dumps(request).encode() + b"\n")
        for answer in io.BufferedReader(_Interruptible(line)):
            message: dict[str, Any] = json.loads(answer)
            if "said" not in message:
                return message
            said(message["said"])
    raise StorageFailed("The scratchpad's keeper ended in the middle.", mend="Run the cell again.")


class _Interruptible(io.RawIOBase):
    """A line to read from. A Ctrl-C in the moment before Python begins to wait would be noticed only after the wait."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._poll = select.poll()
        self._poll.register(line, select.POLLIN)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._poll.poll(1000):
            pass  # here it is noticed
        return self._line.recv_into(buffer)


def is_running(folder: Path) -> bool:
    return resident.is_running(folder, _NAME)


def ensure_running(folder: Path, command: list[str]) -> None:
    """Start a keeper by this command where there is none. Of two, one finds the lock taken and goes."""
    if is_running(folder):
        return
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    log = folder / "keeper.log"
    keeper = in_background(command, log)
    deadline = time.monotonic() + _START_S
    while not is_running(folder):
        ended, status = os.waitpid(keeper, os.WNOHANG) if keeper else (0, 0)
        keeper = 0 if ended else keeper
        if status or time.monotonic() > deadline:
            words = log.read_text("utf-8", errors="replace").strip().splitlines()
            raise StorageFailed(f"The scratchpad did not start: {words[-1] if words else 'no answer'}", mend="")
        time.sleep(0.02)


def stop(folder: Path) -> bool:
    """End the keeper, if there is one, and wait until it has let go of the pad."""
    try:
        ask(folder, {"stop": True})
    except (OSError, StorageFailed):
        return False
    with lock(lock_file(folder, _NAME)):
        return True


def knows(folder: Path) -> bool:
    """Whether a keeper ever held the pad, whichever machine its files are on."""
    return lock_file(folder, _NAME).is_file()


def forget_cells(folder: Path) -> int:
    """Says how many there were."""
    count = len(cells(folder))
    (folder / _CELLS).unlink(missing_ok=True)
    return count


def cells(folder: Path) -> list[dict[str, Any]]:
    """The cells that ran since the pad was made or reset; a line that was cut off by a crash is left out."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for line in (folder / _CELLS).read_text(encoding="utf-8", errors="replace").split("\n"):
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
    return found


# The side of the keeper


async def keep(pads: Scratchpads, folder: Path, *, redactor: Redactor, idle_s: float) -> None:
    """Be the keeper of this pad until there is no more reason to."""
    keeper = _Keeper(pads, folder, redactor)
    await listen(folder, _NAME, keeper.answer, idle_s=idle_s, stop=keeper.done, close=pads.close)


class _Keeper:
    def __init__(self, pads: Scratchpads, folder: Path, redactor: Redactor) -> None:
        self._pads = pads
        self._redactor = redactor
        self._name = folder.name
        self._folder = folder
        self._turn = asyncio.Lock()
        self.done = asyncio.Event()
        self._notice = "The pad's process was started anew: earlier variables are gone." if cells(folder) else ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if request := await reader.readline():
            await self._serve(json.loads(request), reader, writer)

    async def _serve(self, request: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def say(message: dict[str, Any]) -> None:
            if not writer.is_closing():
                writer.write(json.dumps(message).encode() + b"\n")

        if request.get("stop"):
            self.done.set()
            say({"stopped": True})
            await writer.drain()
            return
        async with self._turn:
            leaving = asyncio.create_task(self._cancel_when_gone(reader))
            try:
                printed = self._redactor.stream()
                done = await self._cell(request, lambda text: say({"said": printed.feed(text)}))
                say({"said": printed.end()})
                say(done)
            except HabitusError as error:
                say({"error": str(error)})
            finally:
                leaving.cancel()
            await writer.drain()

    async def _cancel_when_gone(self, reader: asyncio.StreamReader) -> None:
        """Whoever asked sends nothing more: when their line ends, nobody waits for the cell."""
        await reader.read()
        with contextlib.suppress(HabitusError):
            self._pads.cancel(self._name)

    async def _cell(self, request: dict[str, Any], watch: Callable[[str], None]) -> dict[str, Any]:
        done = await self._pads.exec(
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
        with open(self._folder / _CELLS, "a", encoding="utf-8", opener=private) as file:
            file.write(json.dumps(kept, ensure_ascii=False) + "\n")
        return {"cell": kept}
