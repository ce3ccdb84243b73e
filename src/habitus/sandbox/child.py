"""One sandboxed process as seen from outside: started, in its group, with a line to talk over, and surely ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import struct
import tempfile
from collections.abc import Sequence
from itertools import count
from typing import IO, Any

from habitus.errors import HabitusError
from habitus.sandbox.cgroups import Cgroups, Group
from habitus.sandbox.inside.wire import pack, unpack
from habitus.sandbox.isolation import Launch
from habitus.sandbox.model import MIB, Limits

Message = dict[str, Any]
_LONGEST_MESSAGE = 16 * MIB
_TIDY_S, _MOMENT_S = 3.0, 0.2
_numbers = count()


class Gone(HabitusError):
    """The process ended, or said something it never would by itself."""


class Child:
    """Owns the process, its group and our end of the line; `close` leaves none of them behind."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        line: socket.socket,
        group: Group | None,
        noise: IO[bytes],
        *,
        tidies_up: bool,
    ) -> None:
        self._tidies_up = tidies_up
        self.process = process
        self.group = group
        self._line = line
        self._noise = noise
        self._loop = asyncio.get_running_loop()

    @property
    def is_alive(self) -> bool:
        return self.process.returncode is None

    async def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        data = pack(message)
        try:
            if fds:
                # One byte is never split, so the descriptors surely arrive with the message they belong to.
                socket.send_fds(self._line, [data[:1]], list(fds))
                data = data[1:]
            await self._loop.sock_sendall(self._line, data)
        except OSError as error:
            raise Gone(self.last_words()) from error

    async def receive(self) -> Message:
        (length,) = struct.unpack(">I", await self._exactly(4))
        if length > _LONGEST_MESSAGE:
            raise Gone("It sent a message that is too long.")
        try:
            return unpack(await self._exactly(length))
        except (ValueError, RecursionError) as error:
            raise Gone("It sent a message that is none.") from error

    async def first_message(self) -> tuple[Message, int]:
        """The first message and, as our kernel counts, the process that sent it."""
        sender = self.process.pid
        if hasattr(socket, "SO_PASSCRED"):
            self._line.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            head, ancillary = await self._peek()
            for _, kind, data in ancillary:
                if kind == socket.SCM_CREDENTIALS:
                    sender = struct.unpack("3i", data)[0]
            self._line.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
            if not head:
                raise Gone(self.last_words())
        return await self.receive(), sender

    async def _peek(self) -> tuple[bytes, list[tuple[int, int, bytes]]]:
        readable = asyncio.Event()
        self._loop.add_reader(self._line, readable.set)
        try:
            await readable.wait()
        finally:
            self._loop.remove_reader(self._line)
        head, ancillary, _, _ = self._line.recvmsg(1, 1024, socket.MSG_PEEK)
        return head, ancillary

    async def _exactly(self, wanted: int) -> bytes:
        parts = []
        while wanted:
            try:
                part = await self._loop.sock_recv(self._line, min(wanted, MIB))
            except OSError as error:
                raise Gone(self.last_words()) from error
            if not part:
                raise Gone(self.last_words())
            parts.append(part)
            wanted -= len(part)
        return b"".join(parts)

    def last_words(self) -> str:
        """What the process, or bubblewrap in its place, complained about."""
        with contextlib.suppress(ValueError):
            self._noise.seek(0)
            lines = self._noise.read(64_000).decode(errors="replace").strip().splitlines()
            return lines[-1] if lines else ""
        return ""

    def end(self) -> None:
        """Begin to end it: whoever waits for its next message hears that it is gone."""
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(ProcessLookupError):
            if self._tidies_up:
                self.process.terminate()
            else:
                self.process.kill()

    async def close(self) -> None:
        """End it and everything it started; returns when all are gone."""
        self._line.close()
        if self._tidies_up and self.is_alive:
            with contextlib.suppress(ProcessLookupError):
                self.process.terminate()
        # Idle, it ends by itself when the line does, and takes its namespace with it in good order.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.process.wait(), _TIDY_S if self._tidies_up else _MOMENT_S)
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
        await self.process.wait()
        self._noise.close()
        await self._end_group()

    async def _end_group(self) -> None:
        deadline = self._loop.time() + _TIDY_S
        while self.group and not self.group.close() and self._loop.time() < deadline:
            await asyncio.sleep(0.005)


async def start(launch: Launch, cgroups: Cgroups | None, limits: Limits, *, give: Sequence[int] = ()) -> Child:
    """Start the planned process and send it its first message. `give` are more descriptors it inherits."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    group = _group(cgroups, limits)
    doors = group.open() if group else []
    noise = tempfile.TemporaryFile()  # noqa: SIM115 (the child object owns and closes it)
    try:
        process = await asyncio.create_subprocess_exec(
            *launch.argv,
            *map(str, [theirs.fileno(), *give, *doors]),
            env=launch.env,
            cwd="/",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=noise,
            pass_fds=[theirs.fileno(), *give, *doors],
            start_new_session=True,
        )
    except BaseException:
        ours.close()
        noise.close()
        if group:
            group.close()
        raise
    finally:
        theirs.close()
        for fd in doors:
            os.close(fd)
    child = Child(process, ours, group, noise, tidies_up=launch.tidies_up)
    try:
        await child.send(launch.spec)
    except BaseException:
        await child.close()
        raise
    return child


def _group(cgroups: Cgroups | None, limits: Limits) -> Group | None:
    if cgroups is None:
        return None
    # A little more than the code may have: the process that serves it needs some for itself.
    return Group(cgroups, f"{next(_numbers)}", memory=limits.memory + 48 * MIB, processes=limits.processes + 4)


_LAST_SIGNAL = 64


def ending(exit_code: int | None) -> str:
    """An exit code in words. Above 128 it is how a wrapper reports the signal that ended the process."""
    if exit_code is None:
        return "it stopped answering"
    number = -exit_code if exit_code < 0 else exit_code - 128
    return f"ended by {signal_name(number)}" if 0 < number <= _LAST_SIGNAL else f"exit code {exit_code}"


def signal_name(number: int) -> str:
    """The usual name. Real-time signals are counted from the first; C libraries keep two or three for themselves."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN{number - signal.SIGRTMIN:+d}" if number >= 32 else f"signal {number}"


def error_told(printed: str) -> str:
    """What a program says went wrong, where it prints an object whose `status` is "error"; nothing otherwise."""
    try:
        told = json.loads(printed)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(told, dict) or told.get("status") != "error":
        return ""
    reason = told.get("error") or told.get("message") or "no reason given"
    words = reason if isinstance(reason, str) else _json_text(reason)
    return " ".join(words.split())[:500]


def _json_text(reason: object) -> str:
    try:
        return json.dumps(reason, ensure_ascii=False)
    except RecursionError:
        return "more than can be written down"
