"""Runs scratchpads on this machine, in the sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from habitus.errors import NotFound, Refused, did_you_mean
from habitus.locks import take
from habitus.sandbox.child import Capture, Child, Gone, Message, Tap, ending, start
from habitus.sandbox.files import Made
from habitus.sandbox.guard import Guard
from habitus.sandbox.inside import folders
from habitus.sandbox.isolation import Jail, launch, this_interpreter
from habitus.sandbox.machine import Machine
from habitus.sandbox.model import MIB, Limits, Permissions
from habitus.sandbox.runtimes.base import check_name
from habitus.sandbox.venvs import Environments

_START_S = 30.0


class LocalRuntime:
    """Keeps each scratchpad in `folder/<name>/`: `venv` (read-only inside), `files`, its package list and a lock.

    The lock file names its `owner`; runtimes with the same owner may share the scratchpad. `given` is a folder that the
    code of every scratchpad may read.
    """

    def __init__(
        self,
        machine: Machine,
        folder: Path,
        environments: Environments,
        *,
        permissions: Permissions,
        limits: Limits,
        allow_weaker: bool = False,
        owner: str = "",
        given: Path | None = None,
    ) -> None:
        self._machine = machine
        self._owner = owner or f"{os.getpid()}-{os.urandom(4).hex()}"
        self._folder = folder
        self._environments = environments
        self._permissions = permissions
        self._limits = limits
        self._allow_weaker = allow_weaker
        self._given = given
        self._locks: dict[str, int] = {}

    async def start(self, name: str) -> LocalWorker:
        """Start the worker of a scratchpad, creating its folder and environment if needed."""
        pad = self._own(name)
        venv, files = pad / "venv", pad / "files"
        files.mkdir(exist_ok=True)
        if self._given:
            # A bind mount needs a source that exists.
            self._given.mkdir(parents=True, exist_ok=True, mode=0o700)
        jail = Jail(
            interpreter=this_interpreter(venv),
            permissions=self._permissions,
            limits=self._limits,
            folder=files,
            given=self._given,
        )
        await self._environments.make_own(venv)
        plan = launch(self._machine, jail, "worker", scratch=files, allow_weaker=self._allow_weaker)
        out, their_out = os.pipe()
        err, their_err = os.pipe()
        try:
            child = await start(plan, self._machine.cgroups, self._limits, give=[their_out, their_err])
        except BaseException:
            os.close(out)
            os.close(err)
            raise
        finally:
            os.close(their_out)
            os.close(their_err)
        worker = LocalWorker(child, out, err, files, self._limits)
        try:
            async with asyncio.timeout(_START_S):
                await worker.greet()
        except BaseException as error:
            why = await worker.close()
            if isinstance(error, TimeoutError):
                raise Gone(f"no answer within {_START_S:g} s") from error
            if isinstance(error, Gone):
                raise Gone(str(error) or why) from error
            raise
        return worker

    async def install(self, name: str, requirements: Sequence[str]) -> str:
        """Install packages for a scratchpad and return a sentence about the result."""
        pad = self._own(name)
        return await self._environments.install(pad / "venv", requirements)

    async def remove(self, name: str) -> None:
        """Delete a scratchpad with its files; `NotFound` if there is none."""
        names = await self.names()
        if check_name(name) not in names:
            raise NotFound(f"No scratchpad '{name}'.", hint=did_you_mean(name, names))
        pad = self._own(name)
        # The lock goes last, so that no other process takes a scratchpad that is half deleted.
        await asyncio.to_thread(folders.remove, str(pad), last="lock")
        if name in self._locks:
            os.close(self._locks.pop(name))

    async def names(self) -> list[str]:
        """Return the names of the scratchpads on disk, sorted."""
        if not self._folder.is_dir():
            return []
        return sorted(pad.name for pad in self._folder.iterdir() if (pad / "lock").is_file())

    async def close(self) -> None:
        """Release the locks."""
        while self._locks:
            os.close(self._locks.popitem()[1])

    def _own(self, name: str) -> Path:
        """Return the scratchpad's folder, locked against every other process until we close."""
        pad = self._folder / check_name(name)
        if name in self._locks:
            return pad
        pad.mkdir(parents=True, exist_ok=True, mode=0o700)
        held = take(pad / "lock")
        if held is None:
            owner = (pad / "lock").read_text("utf-8", errors="replace").strip()
            if owner == self._owner:
                # Another connection of the same session holds the lock.
                return pad
            raise Refused(
                f"Scratchpad '{name}' is in use by another process ({owner or 'unknown'}).",
                hint="Use another name, or close it there.",
            )
        os.ftruncate(held, 0)
        os.pwrite(held, self._owner.encode(), 0)
        self._locks[name] = held
        return pad


class LocalWorker:
    """A worker in the local sandbox: messages over a socket, output over two pipes, interrupts by signal."""

    def __init__(self, child: Child, out: int, err: int, files: Path, limits: Limits) -> None:
        self._child = child
        self._limits = limits
        self._guard = Guard(child, files, limits)
        self._files = files
        self._made: Made | None = None
        self._taps = (Tap(out, _ignore), Tap(err, _ignore))
        self._pidfd: int | None = None
        self._is_ending = False

    async def greet(self) -> None:
        """Wait for the first message and start the guard."""
        _, sender = await self._child.first_message()
        with contextlib.suppress(OSError, AttributeError):
            # A pidfd can't hit another process that was later given the same number.
            self._pidfd = os.pidfd_open(sender)
        self._guard.start()
        self._made = await asyncio.to_thread(Made, self._files)

    @property
    def is_alive(self) -> bool:
        return self._child.is_alive

    def listen(self, out: Capture | None, err: Capture | None) -> None:
        for tap, capture in zip(self._taps, (out, err), strict=True):
            tap.sink = capture.feed if capture else _ignore
        if out:
            self._guard.work()
        else:
            self._guard.rest()

    async def send(self, message: Message) -> None:
        await self._child.send(message)

    async def receive(self) -> Message:
        try:
            return await self._child.receive()
        except Gone:
            self._is_ending = True
            raise

    def settle(self) -> None:
        for tap in self._taps:
            tap.drain()

    async def interrupt(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._pidfd is not None:
                signal.pidfd_send_signal(self._pidfd, signal.SIGINT)
            else:
                self._child.process.send_signal(signal.SIGINT)

    async def give(self) -> str:
        """Return "": the folder is mounted, so there is nothing to copy."""
        return ""

    async def keep_made(self, place: Path) -> tuple[str, ...]:
        return await asyncio.to_thread(self.made_files.keep, place)

    @property
    def made_files(self) -> Made:
        """The tracker of files made by cells."""
        assert self._made is not None, "it has not greeted yet"
        return self._made

    async def close(self) -> str:
        if self._is_ending:
            # Its own exit code, a moment later, says more than our kill would.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._child.process.wait(), 1.0)
        code = self._child.process.returncode
        verdict = self._guard.verdict
        if self._child.group and self._child.group.memory_kills():
            verdict = f"it used more than {self._limits.memory // MIB} MiB of memory"
        self._guard.stop()
        await self._child.close()
        for tap in self._taps:
            tap.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
        return verdict or ending(code)


def _ignore(data: bytes) -> None:
    """Discard output printed between cells."""
