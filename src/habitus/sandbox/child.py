"""One sandboxed process as seen from outside: started, put in its control group, and reliably ended.

Its output is read as it comes, up to a limit; its questions to the host come over a separate socket.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import json
import os
import signal
import socket
import struct
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import IO, Any

from habitus.errors import HabitusError
from habitus.sandbox.inside.wire import pack, unpack
from habitus.sandbox.isolation import LaunchPlan
from habitus.sandbox.machine import CgroupFolders, ControlGroup
from habitus.sandbox.model import KIB, MIB, SandboxLimits

Message = dict[str, Any]
_LONGEST_MESSAGE = 16 * MIB
# An idle process ends within milliseconds; one that must end its own children needs longer.
_TIDY_S, _MOMENT_S = 3.0, 0.2
_numbers = count()


class ProcessGone(HabitusError):
    """The process ended, or sent something that our code in it never would."""


class SandboxProcess:
    """Owns a sandboxed process, its control group and our end of its socket; `close` releases all three."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        line: socket.socket,
        group: ControlGroup | None,
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
        """Send a message, optionally with descriptors."""
        data = pack(message)
        try:
            if fds:
                # One byte is never split, so the descriptors surely arrive with the message they belong to.
                if sys.platform == "win32":
                    raise NotImplementedError
                socket.send_fds(self._line, [data[:1]], list(fds))
                data = data[1:]
            await self._loop.sock_sendall(self._line, data)
        except OSError as error:
            raise ProcessGone(self.read_last_stderr_line()) from error

    async def receive(self) -> Message:
        """Return the next message; `ProcessGone` if there is none or it is malformed."""
        (length,) = struct.unpack(">I", await self._receive_exactly(4))
        if length > _LONGEST_MESSAGE:
            raise ProcessGone("It sent a message that is too long.")
        try:
            return unpack(await self._receive_exactly(length))
        except (ValueError, RecursionError) as error:
            raise ProcessGone("It sent a message that is none.") from error

    async def receive_first_message_with_sender(self) -> tuple[Message, int]:
        """Return the first message and the id of its sender as our kernel counts it."""
        sender = self.process.pid
        if sys.platform == "linux":
            # Inside a process namespace the worker has another id than outside, which is where we signal it.
            self._line.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            head, ancillary = await self._peek_sender_credentials()
            for _, kind, data in ancillary:
                if kind == socket.SCM_CREDENTIALS:
                    sender = struct.unpack("3i", data)[0]
            self._line.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
            if not head:
                raise ProcessGone(self.read_last_stderr_line())
        return await self.receive(), sender

    async def _peek_sender_credentials(self) -> tuple[bytes, list[tuple[int, int, bytes]]]:
        readable = asyncio.Event()
        self._loop.add_reader(self._line, readable.set)
        try:
            await readable.wait()
        finally:
            self._loop.remove_reader(self._line)
        if sys.platform == "win32":
            raise NotImplementedError
        head, ancillary, _, _ = self._line.recvmsg(1, 1024, socket.MSG_PEEK)
        return head, ancillary

    async def _receive_exactly(self, wanted: int) -> bytes:
        try:
            found = await _receive_exactly(self._loop, self._line, wanted)
        except OSError as error:
            raise ProcessGone(self.read_last_stderr_line()) from error
        if len(found) < wanted:
            raise ProcessGone(self.read_last_stderr_line())
        return found

    def read_last_stderr_line(self) -> str:
        """Return the last line that the process, or bubblewrap in its place, wrote to stderr."""
        with contextlib.suppress(ValueError):
            self._noise.seek(0)
            return get_last_line(self._noise.read(64_000).decode(errors="replace"))
        return ""

    def begin_termination(self) -> None:
        """Start ending the process: a pending `receive` raises `ProcessGone`."""
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(ProcessLookupError):
            if self._tidies_up:
                self.process.terminate()
            else:
                self.process.kill()

    async def close(self) -> None:
        """End the process and everything it started, and wait until all are gone."""
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
        await self._close_control_group()

    async def _close_control_group(self) -> None:
        deadline = self._loop.time() + _TIDY_S
        while self.group and not self.group.close() and self._loop.time() < deadline:
            await asyncio.sleep(0.005)


async def start_sandbox_process(
    launch: LaunchPlan, cgroups: CgroupFolders | None, limits: SandboxLimits, *, inherited_fds: Sequence[int] = ()
) -> SandboxProcess:
    """Start the planned process and send its first message. `inherited_fds` are more descriptors to inherit."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    group = _create_control_group(cgroups, limits)
    doors = group.open_group_joining_descriptors() if group else []
    noise = tempfile.TemporaryFile()  # noqa: SIM115 (the child object owns and closes it)
    try:
        process = await asyncio.create_subprocess_exec(
            *launch.argv,
            *map(str, [theirs.fileno(), *inherited_fds, *doors]),
            env=launch.env,
            cwd="/",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=noise,
            pass_fds=[theirs.fileno(), *inherited_fds, *doors],
            # A Ctrl-C at our terminal must not reach the sandboxed process.
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
    child = SandboxProcess(process, ours, group, noise, tidies_up=launch.needs_termination)
    try:
        await child.send(launch.spec)
    except BaseException:
        await child.close()
        raise
    return child


def _create_control_group(cgroups: CgroupFolders | None, limits: SandboxLimits) -> ControlGroup | None:
    if cgroups is None:
        return None
    # A little more than the code may have: the process that serves it needs some for itself.
    return ControlGroup(cgroups, f"{next(_numbers)}", memory=limits.memory + 48 * MIB, processes=limits.processes + 4)


def get_last_line(text: str) -> str:
    """Return the last line of a text, shortened; empty if there is none."""
    lines = text.strip().splitlines()
    return lines[-1].strip()[:500] if lines else ""


_LAST_SIGNAL = 64


def describe_exit_code(exit_code: int | None) -> str:
    """Describe an exit code in words. A wrapper reports the signal that ended a process as 128 plus its number."""
    if exit_code is None:
        return "it stopped answering"
    number = -exit_code if exit_code < 0 else exit_code - 128
    return f"ended by {get_signal_name(number)}" if 0 < number <= _LAST_SIGNAL else f"exit code {exit_code}"


def get_signal_name(number: int) -> str:
    """Return the usual name of a signal. C libraries reserve two or three real-time signals for themselves."""
    try:
        return signal.Signals(number).name
    except ValueError:
        if sys.platform == "linux" and number >= 32:
            return f"SIGRTMIN{number - signal.SIGRTMIN:+d}"
        return f"signal {number}"


def parse_reported_error(printed: str) -> str:
    """Return the error that a program reports, or "".

    A report is a JSON object whose `status` is "error": all of the output, or its last line.
    """
    told = _parse_json_object(printed)
    if told is None:
        _, _, last = printed.rstrip().rpartition("\n")
        told = _parse_json_object(last)
    if told is None or told.get("status") != "error":
        return ""
    reason = told.get("error") or told.get("message") or "no reason given"
    words = reason if isinstance(reason, str) else _to_json_text(reason)
    return " ".join(words.split())[:500]


def _parse_json_object(text: str) -> dict[str, object] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _to_json_text(reason: object) -> str:
    try:
        return json.dumps(reason, ensure_ascii=False)
    except RecursionError:
        return "more than can be written down"


_PIPE_ROOM = 1 << 16
# One read takes at most a full pipe, so no stream starves the others on the event loop.
_AT_ONCE = 1 << 16


class OutputCapture:
    """Keeps the first `limit` characters of a byte stream and counts the rest."""

    def __init__(self, limit: int, *, watch: Callable[[str], None] | None = None) -> None:
        self.limit = limit
        self._room = limit
        self._parts: list[str] = []
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._watch = watch
        self.cut = 0
        self.last_fed = 0.0

    def feed(self, data: bytes, *, final: bool = False) -> None:
        """Decode and keep data, up to the limit."""
        self.last_fed = time.monotonic()
        text = self._decoder.decode(data, final)
        kept = text[: self._room]
        self._room -= len(kept)
        self.cut += len(text) - len(kept)
        if kept:
            self._parts.append(kept)
            if self._watch:
                self._watch(kept)

    def add_skipped_character_count(self, count: int) -> None:
        """Count characters that were already left out closer to the source."""
        self.last_fed = time.monotonic()
        self.cut += count

    def get_text_with_cut_note(self) -> str:
        """Return the kept text, with a note that says how much is missing."""
        self.feed(b"", final=True)
        kept = "".join(self._parts)
        return f"{kept}\n[… {self.cut:,} more characters were cut]" if self.cut else kept


class _PipeEnd:
    """Our end of a pipe, which the event loop watches until it is closed."""

    def __init__(self, fd: int) -> None:
        if sys.platform != "win32":
            os.set_blocking(fd, False)
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._is_open = True

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._fd)
            self._loop.remove_writer(self._fd)
            os.close(self._fd)


class PipeReader(_PipeEnd):
    """Feeds the output of a pipe to a sink without waiting for the other end to close."""

    def __init__(self, fd: int, sink: Callable[[bytes], None]) -> None:
        super().__init__(fd)
        self.sink = sink
        self._loop.add_reader(fd, self._read_available)

    def _read_available(self) -> bool:
        """Read available data. False if there is no more."""
        try:
            data = os.read(self._fd, _AT_ONCE)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if data:
            self.sink(data)
            return True
        self.close()
        return False

    def drain(self) -> None:
        """Read data written before now, at most one full pipe: the other end may still be writing."""
        for _ in range(2 * _PIPE_ROOM // 4096):
            if not self._is_open or not self._read_available():
                return


class PipeWriter(_PipeEnd):
    """Writes bytes into a pipe as fast as they are read; a reader that stops reading is ignored."""

    def __init__(self, fd: int, data: bytes) -> None:
        super().__init__(fd)
        self._rest = memoryview(data)
        self._loop.add_writer(fd, self._write_available)

    def _write_available(self) -> None:
        try:
            with contextlib.suppress(BlockingIOError):
                self._rest = self._rest[os.write(self._fd, self._rest[:_AT_ONCE]) :]
        except OSError:
            self.close()
            return
        if not self._rest:
            self.close()


HostServices = Mapping[str, Callable[[Any], Awaitable[Any]]]
NO_SERVICES: HostServices = {}
# Questions come from untrusted code, so their size is bounded before they are read.
_LONGEST_QUESTION = 64 * KIB


async def answer_request_from_sandbox(services: HostServices, question: Message) -> Message:
    """Answer one question of sandboxed code, or return the reason why not."""
    service = services.get(str(question["ask"]))
    if service is None:
        return {"error": f"{question['ask']} is not offered here"}
    try:
        return {"answer": await service(question.get("argument"))}
    except HabitusError as error:
        return {"error": str(error)}


@asynccontextmanager
async def serve_requests_from_sandbox(services: HostServices) -> AsyncIterator[int]:
    """Yield a descriptor for the code that asks; its questions are answered until the block ends.

    The caller closes the descriptor after passing it on.
    """
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    work = asyncio.create_task(_answer_requests_until_hangup(ours, services))
    try:
        yield theirs.detach()
    finally:
        work.cancel()
        await asyncio.wait([work])
        ours.close()
    if not work.cancelled():
        work.result()


async def _answer_requests_until_hangup(line: socket.socket, services: HostServices) -> None:
    """Answer until the other side hangs up or sends something that is not a question."""
    loop = asyncio.get_running_loop()
    try:
        while (head := await _receive_exactly(loop, line, 4)) and (
            length := struct.unpack(">I", head)[0]
        ) <= _LONGEST_QUESTION:
            question = unpack(await _receive_exactly(loop, line, length))
            if "ask" not in question:
                return
            await loop.sock_sendall(line, pack(await answer_request_from_sandbox(services, question)))
    except (OSError, ValueError, RecursionError):
        return
    finally:
        line.close()


async def _receive_exactly(loop: asyncio.AbstractEventLoop, line: socket.socket, wanted: int) -> bytes:
    """Return exactly that many bytes, or b"" if the stream ends before."""
    found = bytearray()
    while len(found) < wanted and (part := await loop.sock_recv(line, min(wanted - len(found), MIB))):
        found += part
    return bytes(found) if len(found) == wanted else b""
