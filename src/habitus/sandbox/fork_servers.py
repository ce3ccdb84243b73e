"""Warm calls: runs a tool within milliseconds, in a confined fork of a Python process that is already running.

A tool gets its payload as JSON in `sys.argv[1]`; above 64 KiB that argument is `-` and the payload comes on standard
input. Its exit code, stdout and stderr are the result.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from habitus import operating_system
from habitus.events import OK, Outcome, build_failed_outcome, build_infrastructure_failure_outcome
from habitus.sandbox.child import (
    NO_SERVICES,
    HostServices,
    Message,
    OutputCapture,
    PipeReader,
    PipeWriter,
    ProcessGone,
    SandboxProcess,
    get_last_line,
    get_signal_name,
    serve_requests_from_sandbox,
    start_sandbox_process,
)
from habitus.sandbox.egress import PROXY_VARIABLES, EgressProxy
from habitus.sandbox.guard import ResourceGuard
from habitus.sandbox.inside import folders
from habitus.sandbox.isolation import JailOptions, build_rlimits, get_current_interpreter, plan_launch
from habitus.sandbox.machine import MachineCapabilities
from habitus.sandbox.model import KIB, MIB, Permissions, SandboxLimits, ToolRunResult
from habitus.text import replace_surrogates

# A cold Python with bubblewrap on a busy machine takes seconds, not minutes.
_START_S = 20.0
_GRACE_S = 5.0


class ForkServer:
    """Owns a fork server process; `is_alive` says whether it can take another call."""

    def __init__(self, jail: JailOptions, child: SandboxProcess, scratch: Path, *, is_on_disk: bool) -> None:
        self.jail = jail
        self._child = child
        self._scratch = scratch
        self._is_on_disk = is_on_disk  # no mount limits the size of a call's folder
        self._memory_kills = 0
        self._is_sound = True

    @classmethod
    async def start(
        cls, machine: MachineCapabilities, jail: JailOptions, folder: Path, *, allow_weaker: bool
    ) -> ForkServer:
        """Start a fork server and wait until it is ready; `ProcessGone` if it does not answer."""
        scratch = folder / f"call-{os.getpid()}-{os.urandom(6).hex()}"
        plan = plan_launch(machine, jail, "forkserver", scratch=scratch, allow_weaker=allow_weaker)
        scratch.mkdir(parents=True, mode=0o700)
        try:
            child = await start_sandbox_process(plan, machine.cgroups, jail.limits)
        except BaseException:
            scratch.rmdir()
            raise
        server = cls(jail, child, scratch, is_on_disk=plan.needs_termination)
        try:
            async with asyncio.timeout(_START_S):
                await child.receive()
        except BaseException as error:
            await server.close()
            if isinstance(error, TimeoutError):
                raise ProcessGone(f"no answer within {_START_S:g} s") from error
            raise
        return server

    @property
    def is_alive(self) -> bool:
        return self._is_sound and self._child.is_alive

    async def call(
        self,
        message: Message,
        stdin: bytes,
        limits: SandboxLimits,
        services: HostServices,
        egress: EgressProxy | None = None,
    ) -> ToolRunResult:
        """Run one call and return its captured output and outcome."""
        out, err = OutputCapture(limits.output_chars), OutputCapture(limits.output_chars)
        guard = ResourceGuard(self._child, self._scratch, limits)
        with contextlib.ExitStack() as held:
            taps, fds = _open_pipes(held, out, err, stdin)
            if self._is_on_disk:
                # Without a mount of its own nothing bounds the folder of a call, so the guard measures it meanwhile.
                held.callback(guard.stop)
                guard.start()
            async with contextlib.AsyncExitStack() as answered:
                fds.append(await answered.enter_async_context(serve_requests_from_sandbox(services)))
                if egress is not None:
                    fds.append(await answered.enter_async_context(egress.serve_requests()))
                reply = await self._send_call_and_receive_reply(message, fds, limits)
            # Output written just before the end may still be in the pipes.
            for tap in taps:
                tap.drain()
        outcome = self._determine_call_outcome(reply, limits, err)
        if guard.verdict or reply.get("folder_size", 0) > limits.folder_size:
            outcome = build_failed_outcome(f"Its folder grew beyond {limits.folder_size // MIB} MiB.")
        code = reply.get("exit_code")
        return ToolRunResult(
            outcome=outcome,
            stdout=out.get_text_with_cut_note(),
            stderr=err.get_text_with_cut_note(),
            exit_code=code,
            cut=out.cut + err.cut,
            timed_out=bool(reply.get("timed_out")),
        )

    async def _send_call_and_receive_reply(self, message: Message, fds: list[int], limits: SandboxLimits) -> Message:
        """Send the call and return the server's reply; empty if the server has died."""
        try:
            try:
                await self._child.send(message, fds)
            finally:
                for fd in fds:
                    os.close(fd)
            # The server enforces the limit itself; the extra time is for a server that hangs.
            async with asyncio.timeout(limits.wall_s + _GRACE_S):
                return await self._child.receive()
        except ProcessGone:
            self._is_sound = False
            return {}
        except TimeoutError:
            self._is_sound = False
            return {"timed_out": True}

    def _determine_call_outcome(self, reply: Message, limits: SandboxLimits, err: OutputCapture) -> Outcome:
        code = reply.get("exit_code")
        if sys.platform == "win32":
            raise NotImplementedError
        if code == 0 and not reply["timed_out"] and not reply["setup_error"]:
            return OK
        if reply.get("timed_out"):
            return build_infrastructure_failure_outcome(f"It was stopped after {limits.wall_s:g} s.")
        if reply.get("setup_error"):
            return build_infrastructure_failure_outcome(f"The sandbox could not be set up: {reply['setup_error']}")
        if code in (None, -signal.SIGKILL) and self._ran_out_of_memory():
            return build_failed_outcome(f"It used more than {limits.memory // MIB} MiB of memory.")
        if code is None:
            return build_infrastructure_failure_outcome("The sandbox ended unexpectedly; the next call gets a new one.")
        # The kernel ends a process at its CPU limit with SIGKILL; the measured time tells that apart from other kills.
        if code == -signal.SIGKILL and limits.cpu_s is not None and reply["cpu_s"] >= limits.cpu_s - 0.5:
            return build_failed_outcome(f"It used more than {limits.cpu_s} s of processor time.")
        if code < 0:
            return build_failed_outcome(f"It was ended by {get_signal_name(-code)}.")
        return build_failed_outcome(get_last_line(err.get_text_with_cut_note()) or f"It ended with exit code {code}.")

    def _ran_out_of_memory(self) -> bool:
        kills = self._child.group.count_memory_kills() if self._child.group else 0
        grew, self._memory_kills = kills > self._memory_kills, kills
        return grew

    async def close(self) -> None:
        """End the process and remove its scratch folder."""
        self._is_sound = False
        await self._child.close()
        with contextlib.suppress(OSError):
            await asyncio.to_thread(folders.remove_folder, str(self._scratch))


def _open_pipes(
    stack: contextlib.ExitStack, out: OutputCapture, err: OutputCapture, stdin: bytes
) -> tuple[list[PipeReader], list[int]]:
    """Open the pipes of a call; return the readers of its output and its three standard descriptors."""
    taps, fds = [], []
    for capture in (out, err):
        ours, theirs = os.pipe()
        tap = PipeReader(ours, capture.feed)
        stack.callback(tap.close)
        taps.append(tap)
        fds.append(theirs)
    if stdin:
        theirs, ours = os.pipe()
        stack.callback(PipeWriter(ours, stdin).close)
    else:
        # No input is an empty one: an open pipe would let a tool wait forever.
        theirs = os.open(os.devnull, os.O_RDONLY | operating_system.O_PLAIN)
    return taps, [theirs, *fds]


LONGEST_ARGUMENT = 64 * KIB


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxedProgram:
    """Code to run, with its environment, permissions and limits."""

    code: str
    venv: Path | None = None
    permissions: Permissions = field(default_factory=Permissions)
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    given: Path | None = None  # a folder it may read


class ForkServerPool:
    """Keeps idle fork servers for each jail and gives every call a free one.

    A server runs one call at a time, so the limits of its control group are the limits of the call.
    """

    def __init__(
        self,
        machine: MachineCapabilities,
        folder: Path,
        *,
        max_concurrent: int = 4,
        max_idle: int = 8,
        allow_weaker: bool = False,
    ) -> None:
        self._machine = machine
        self._folder = folder
        self._keep = max_idle
        self._allow_weaker = allow_weaker
        self._turns = asyncio.Semaphore(max_concurrent)
        self._idle: list[ForkServer] = []
        self._all: set[ForkServer] = set()

    async def __aenter__(self) -> ForkServerPool:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    @property
    def can_filter_network(self) -> bool:
        """Whether a call has its own loopback, which is needed to allow only some hosts."""
        return self._machine.bubblewrap is not None

    async def call_tool(
        self,
        program: SandboxedProgram,
        payload: object,
        *,
        env: Mapping[str, str] | None = None,
        services: HostServices = NO_SERVICES,
    ) -> ToolRunResult:
        """Run a tool with a JSON payload."""
        text = json.dumps(payload, ensure_ascii=False)
        if replace_surrogates(text) != text:
            # Half a character has no bytes, but JSON can escape it.
            text = json.dumps(payload)
        data = text.encode()
        if len(data) <= LONGEST_ARGUMENT:
            return await self.run_program(program, [text], env=env, services=services)
        return await self.run_program(program, ["-"], stdin=data, env=env, services=services)

    async def run_program(
        self,
        program: SandboxedProgram,
        arguments: Sequence[str] = (),
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        services: HostServices = NO_SERVICES,
        egress: EgressProxy | None = None,
    ) -> ToolRunResult:
        """Run a program. Only the variables of `env` that it was granted reach it; `egress` proxies its hosts."""
        granted = {name: value for name, value in (env or {}).items() if name in program.permissions.env}
        if egress is not None and self.can_filter_network:
            granted |= PROXY_VARIABLES
        else:
            egress = None
        message: Message = {
            "name": "tool.py",
            "code": program.code,
            "argv": list(arguments),
            "env": granted,
            "wall_s": program.limits.wall_s,
            "rlimits": build_rlimits(self._machine, program.limits),
        }
        began = time.perf_counter()
        async with self._turns:
            try:
                server = await self._acquire_server(program)
            except ProcessGone as gone:
                return ToolRunResult(outcome=build_infrastructure_failure_outcome(f"The sandbox did not start: {gone}"))
            try:
                run = await server.call(message, stdin, program.limits, services, egress)
            except BaseException:
                await self._discard_server(server)
                raise
            await self._release_server(server)
        return replace(run, seconds=time.perf_counter() - began)

    async def close(self) -> None:
        """End every server and everything that runs in it."""
        self._idle.clear()
        for server in list(self._all):
            await self._discard_server(server)

    async def _acquire_server(self, program: SandboxedProgram) -> ForkServer:
        jail = _build_shared_jail_options(program)
        # The most recently used server is the likeliest to be in memory.
        for server in reversed(self._idle):
            if server.jail == jail:
                self._idle.remove(server)
                if server.is_alive:
                    return server
                await self._discard_server(server)
                break
        server = await ForkServer.start(self._machine, jail, self._folder, allow_weaker=self._allow_weaker)
        self._all.add(server)
        return server

    async def _release_server(self, server: ForkServer) -> None:
        if not server.is_alive:
            await self._discard_server(server)
            return
        self._idle.append(server)
        while len(self._idle) > self._keep:
            await self._discard_server(self._idle.pop(0))

    async def _discard_server(self, server: ForkServer) -> None:
        self._all.discard(server)
        await server.close()


def _build_shared_jail_options(program: SandboxedProgram) -> JailOptions:
    """Return the jail shared by the calls of one server, without the limits that each call sets for itself."""
    default = SandboxLimits()
    limits = replace(
        program.limits,
        wall_s=default.wall_s,
        cpu_s=default.cpu_s,
        output_chars=default.output_chars,
        file_size=default.file_size,
        open_files=default.open_files,
    )
    return JailOptions(
        interpreter=get_current_interpreter(program.venv),
        permissions=program.permissions,
        limits=limits,
        given=program.given,
    )
