"""Runs scratchpads on this machine, in the sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from habitus.errors import NotFound, Refused, did_you_mean
from habitus.locks import acquire_lock
from habitus.sandbox.child import (
    Message,
    OutputCapture,
    PipeReader,
    ProcessGone,
    SandboxProcess,
    describe_exit_code,
    start_sandbox_process,
)
from habitus.sandbox.files import MadeFilesTracker
from habitus.sandbox.guard import ResourceGuard
from habitus.sandbox.inside import folders
from habitus.sandbox.isolation import JailOptions, get_current_interpreter, plan_launch
from habitus.sandbox.machine import MachineCapabilities
from habitus.sandbox.model import MIB, Permissions, SandboxLimits
from habitus.sandbox.runtimes.base import check_scratchpad_name
from habitus.sandbox.venvs import EnvironmentCache

_START_S = 30.0


class LocalRuntime:
    """Keeps each scratchpad in `folder/<name>/`: `venv` (read-only inside), `files`, its package list and a lock.

    The lock file names its `owner`; runtimes with the same owner may share the scratchpad. `given` is a folder that the
    code of every scratchpad may read.
    """

    def __init__(
        self,
        machine: MachineCapabilities,
        folder: Path,
        environments: EnvironmentCache,
        *,
        permissions: Permissions,
        limits: SandboxLimits,
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

    async def start_worker(self, name: str) -> LocalWorker:
        """Start the worker of a scratchpad, creating its folder and environment if needed."""
        pad = self._lock_scratchpad(name)
        venv, files = pad / "venv", pad / "files"
        files.mkdir(exist_ok=True)
        if self._given:
            # A bind mount needs a source that exists.
            self._given.mkdir(parents=True, exist_ok=True, mode=0o700)
        jail = JailOptions(
            interpreter=get_current_interpreter(venv),
            permissions=self._permissions,
            limits=self._limits,
            folder=files,
            given=self._given,
        )
        await self._environments.create_mutable_environment(venv)
        plan = plan_launch(self._machine, jail, "worker", scratch=files, allow_weaker=self._allow_weaker)
        out, their_out = os.pipe()
        err, their_err = os.pipe()
        try:
            child = await start_sandbox_process(
                plan, self._machine.cgroups, self._limits, inherited_fds=[their_out, their_err]
            )
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
                await worker.wait_until_ready()
        except BaseException as error:
            why = await worker.close()
            if isinstance(error, TimeoutError):
                raise ProcessGone(f"no answer within {_START_S:g} s") from error
            if isinstance(error, ProcessGone):
                raise ProcessGone(str(error) or why) from error
            raise
        return worker

    async def install_scratchpad_packages(self, name: str, requirements: Sequence[str]) -> str:
        """Install packages for a scratchpad and return a sentence about the result."""
        pad = self._lock_scratchpad(name)
        return await self._environments.install_packages(pad / "venv", requirements)

    async def delete_scratchpad(self, name: str) -> None:
        """Delete a scratchpad with its files; `NotFound` if there is none."""
        names = await self.list_stored_scratchpad_names()
        if check_scratchpad_name(name) not in names:
            raise NotFound(f"No scratchpad '{name}'.", hint=did_you_mean(name, names))
        pad = self._lock_scratchpad(name)
        # The lock goes last, so that no other process takes a scratchpad that is half deleted.
        await asyncio.to_thread(folders.remove_folder, str(pad), last="lock")
        if name in self._locks:
            os.close(self._locks.pop(name))

    async def list_stored_scratchpad_names(self) -> list[str]:
        """Return the names of the scratchpads on disk, sorted."""
        if not self._folder.is_dir():
            return []
        return sorted(pad.name for pad in self._folder.iterdir() if (pad / "lock").is_file())

    async def close(self) -> None:
        """Release the locks."""
        while self._locks:
            os.close(self._locks.popitem()[1])

    def _lock_scratchpad(self, name: str) -> Path:
        """Return the scratchpad's folder, locked against every other process until we close."""
        pad = self._folder / check_scratchpad_name(name)
        if name in self._locks:
            return pad
        pad.mkdir(parents=True, exist_ok=True, mode=0o700)
        held = acquire_lock(pad / "lock")
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
        os.write(held, self._owner.encode())
        self._locks[name] = held
        return pad


class LocalWorker:
    """A worker in the local sandbox: messages over a socket, output over two pipes, interrupts by signal."""

    def __init__(self, child: SandboxProcess, out: int, err: int, files: Path, limits: SandboxLimits) -> None:
        self._child = child
        self._limits = limits
        self._guard = ResourceGuard(child, files, limits)
        self._files = files
        self._made: MadeFilesTracker | None = None
        self._taps = (PipeReader(out, _discard_output), PipeReader(err, _discard_output))
        self._pidfd: int | None = None
        self._is_ending = False

    async def wait_until_ready(self) -> None:
        """Wait for the first message and start the guard."""
        _, sender = await self._child.receive_first_message_with_sender()
        if sys.platform == "linux":
            with contextlib.suppress(OSError):
                # A pidfd can't hit another process that was later given the same number.
                self._pidfd = os.pidfd_open(sender)
        self._guard.start()
        self._made = await asyncio.to_thread(MadeFilesTracker, self._files)

    @property
    def is_alive(self) -> bool:
        return self._child.is_alive

    def redirect_output(self, out: OutputCapture | None, err: OutputCapture | None) -> None:
        for tap, capture in zip(self._taps, (out, err), strict=True):
            tap.sink = capture.feed if capture else _discard_output
        if out:
            self._guard.on_cell_started()
        else:
            self._guard.on_cell_finished()

    async def send(self, message: Message) -> None:
        await self._child.send(message)

    async def receive(self) -> Message:
        try:
            return await self._child.receive()
        except ProcessGone:
            self._is_ending = True
            raise

    def deliver_printed_output(self) -> None:
        for tap in self._taps:
            tap.drain()

    async def interrupt(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            if sys.platform == "linux" and self._pidfd is not None:
                signal.pidfd_send_signal(self._pidfd, signal.SIGINT)
            else:
                self._child.process.send_signal(signal.SIGINT)

    async def update_given_files_and_report_failures(self) -> str:
        """Return "": the folder is mounted, so there is nothing to copy."""
        return ""

    async def copy_newly_made_files(self, place: Path) -> tuple[str, ...]:
        return await asyncio.to_thread(self.made_files_tracker.copy_new_files, place)

    @property
    def made_files_tracker(self) -> MadeFilesTracker:
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
        if self._child.group and self._child.group.count_memory_kills():
            verdict = f"it used more than {self._limits.memory // MIB} MiB of memory"
        self._guard.stop()
        await self._child.close()
        for tap in self._taps:
            tap.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
        return verdict or describe_exit_code(code)


def _discard_output(data: bytes) -> None:
    """Discard output printed between cells."""
