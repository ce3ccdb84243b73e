"""Warm calls: a tool runs in a fresh, locked-in copy of a Python that is already there, in a few milliseconds.

A tool gets its payload as JSON in `sys.argv[1]`; above 64 KiB that is `-` and the payload comes on standard input. Its
exit code, what it printed and what it complained about are the result.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

from habitus.events import infra
from habitus.sandbox.child import Gone, Message
from habitus.sandbox.egress import VARIABLES, Egress
from habitus.sandbox.fork_server import ForkServer
from habitus.sandbox.interpreter import this_interpreter
from habitus.sandbox.isolation import Jail, rlimits
from habitus.sandbox.machine import Machine
from habitus.sandbox.model import KIB, Limits, Permissions, ToolRun
from habitus.sandbox.services import NO_SERVICES, Services
from habitus.text import encodable

LONGEST_ARGUMENT = 64 * KIB


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """Code to run, with what it needs and what it was granted."""

    code: str
    venv: Path | None = None
    permissions: Permissions = field(default_factory=Permissions)
    limits: Limits = field(default_factory=Limits)
    given: Path | None = None  # a folder it may read


class Warm:
    """Keeps fork servers, one set per environment, and hands each call to one that is free.

    A server takes one call at a time, so that the bounds of its group are the bounds of the call.
    """

    def __init__(
        self, machine: Machine, folder: Path, *, at_once: int = 4, keep: int = 8, allow_weaker: bool = False
    ) -> None:
        self._machine = machine
        self._folder = folder
        self._keep = keep
        self._allow_weaker = allow_weaker
        self._turns = asyncio.Semaphore(at_once)
        self._idle: list[ForkServer] = []
        self._all: set[ForkServer] = set()

    async def __aenter__(self) -> Warm:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def can_bound_network(self) -> bool:
        """Whether a call has a loopback of its own, so that it can be let out to some hosts only."""
        return self._machine.bubblewrap is not None

    async def call(
        self,
        program: Program,
        payload: object,
        *,
        env: Mapping[str, str] | None = None,
        services: Services = NO_SERVICES,
    ) -> ToolRun:
        """Run a tool with its payload, by the protocol above."""
        text = json.dumps(payload, ensure_ascii=False)
        if encodable(text) != text:
            text = json.dumps(payload)  # half a character has no bytes, but JSON can spell it
        data = text.encode()
        if len(data) <= LONGEST_ARGUMENT:
            return await self.run(program, [text], env=env, services=services)
        return await self.run(program, ["-"], stdin=data, env=env, services=services)

    async def run(
        self,
        program: Program,
        arguments: Sequence[str] = (),
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        services: Services = NO_SERVICES,
        egress: Egress | None = None,
    ) -> ToolRun:
        """Run any program. Of `env` only the names it was granted reach it; `egress` answers for its hosts."""
        granted = {name: value for name, value in (env or {}).items() if name in program.permissions.env}
        if egress is not None and self.can_bound_network:
            granted |= VARIABLES
        else:
            egress = None
        message: Message = {
            "name": "tool.py",
            "code": program.code,
            "argv": list(arguments),
            "env": granted,
            "wall_s": program.limits.wall_s,
            "rlimits": rlimits(self._machine, program.limits),
        }
        began = time.perf_counter()
        async with self._turns:
            try:
                server = await self._take(program)
            except Gone as gone:
                return ToolRun(outcome=infra(f"The sandbox did not start: {gone}"))
            try:
                run = await server.call(message, stdin, program.limits, services, egress)
            except BaseException:
                await self._drop(server)
                raise
            await self._give_back(server)
        return replace(run, seconds=time.perf_counter() - began)

    async def close(self) -> None:
        """End every server and whatever runs in it."""
        self._idle.clear()
        for server in list(self._all):
            await self._drop(server)

    async def _take(self, program: Program) -> ForkServer:
        jail = _shared_jail(program)
        for server in reversed(self._idle):
            if server.jail == jail:
                self._idle.remove(server)
                if server.is_alive:
                    return server
                await self._drop(server)
                break
        server = await ForkServer.start(self._machine, jail, self._folder, allow_weaker=self._allow_weaker)
        self._all.add(server)
        return server

    async def _give_back(self, server: ForkServer) -> None:
        if not server.is_alive:
            await self._drop(server)
            return
        self._idle.append(server)
        while len(self._idle) > self._keep:
            await self._drop(self._idle.pop(0))

    async def _drop(self, server: ForkServer) -> None:
        self._all.discard(server)
        await server.close()


def _shared_jail(program: Program) -> Jail:
    """What calls that may share a server have in common: not the limits that each call sets for itself."""
    default = Limits()
    limits = replace(
        program.limits,
        wall_s=default.wall_s,
        cpu_s=default.cpu_s,
        output_chars=default.output_chars,
        file_size=default.file_size,
        open_files=default.open_files,
    )
    return Jail(
        interpreter=this_interpreter(program.venv),
        permissions=program.permissions,
        limits=limits,
        given=program.given,
    )
