"""One sandboxed process as seen from outside: started, in its group, surely ended.

What it prints is read as it comes, within a bound; what it may ask its host comes over a line of its own.
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
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import IO, Any

from habitus.errors import HabitusError
from habitus.sandbox.inside.wire import pack, unpack
from habitus.sandbox.isolation import Launch
from habitus.sandbox.machine import Cgroups, Group
from habitus.sandbox.model import KIB, MIB, Limits

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
        try:
            found = await _exactly(self._loop, self._line, wanted)
        except OSError as error:
            raise Gone(self.last_words()) from error
        if len(found) < wanted:
            raise Gone(self.last_words())
        return found

    def last_words(self) -> str:
        """The last complaint of the process, or of bubblewrap in its place."""
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
    """The error a program reports, where it prints an object whose `status` is "error", or ends with a line that is
    one; nothing otherwise."""
    told = _json_object(printed)
    if told is None:
        _, _, last = printed.rstrip().rpartition("\n")
        told = _json_object(last)
    if told is None or told.get("status") != "error":
        return ""
    reason = told.get("error") or told.get("message") or "no reason given"
    words = reason if isinstance(reason, str) else _json_text(reason)
    return " ".join(words.split())[:500]


def _json_object(text: str) -> dict[str, object] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _json_text(reason: object) -> str:
    try:
        return json.dumps(reason, ensure_ascii=False)
    except RecursionError:
        return "more than can be written down"


_PIPE_ROOM = 1 << 16
_AT_ONCE = 1 << 16


class Capture:
    """The first `limit` characters of a stream of bytes, and how many more there were."""

    def __init__(self, limit: int, *, watch: Callable[[str], None] | None = None) -> None:
        self.limit = limit
        self._room = limit
        self._parts: list[str] = []
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._watch = watch
        self.cut = 0
        self.last_fed = 0.0

    def feed(self, data: bytes, *, final: bool = False) -> None:
        self.last_fed = time.monotonic()
        text = self._decoder.decode(data, final)
        kept = text[: self._room]
        self._room -= len(kept)
        self.cut += len(text) - len(kept)
        if kept:
            self._parts.append(kept)
            if self._watch:
                self._watch(kept)

    def skip(self, count: int) -> None:
        """Characters that somebody nearer to the source has already left out."""
        self.last_fed = time.monotonic()
        self.cut += count

    def text(self) -> str:
        """The kept text, with a mark that says how much was not kept."""
        self.feed(b"", final=True)
        kept = "".join(self._parts)
        return f"{kept}\n[… {self.cut:,} more characters were cut]" if self.cut else kept


class Tap:
    """Feeds one end of a pipe to whoever listens, without waiting for the other end to be closed."""

    def __init__(self, fd: int, sink: Callable[[bytes], None]) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self.sink = sink
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(fd, self._read)
        self._is_open = True

    def _read(self) -> bool:
        """Take what is there; whether there may be more."""
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
        """Take what was written before now: at most a pipe full, since somebody may still be writing."""
        for _ in range(2 * _PIPE_ROOM // 4096):
            if not self._is_open or not self._read():
                return

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._fd)
            os.close(self._fd)


class Feeder:
    """Writes bytes into a pipe as fast as they are taken; a reader that stops reading is none of our business."""

    def __init__(self, fd: int, data: bytes) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._rest = memoryview(data)
        self._loop = asyncio.get_running_loop()
        self._loop.add_writer(fd, self._write)
        self._is_open = True

    def _write(self) -> None:
        try:
            with contextlib.suppress(BlockingIOError):
                self._rest = self._rest[os.write(self._fd, self._rest[:_AT_ONCE]) :]
        except OSError:
            self.close()
            return
        if not self._rest:
            self.close()

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._loop.remove_writer(self._fd)
            os.close(self._fd)


Services = Mapping[str, Callable[[Any], Awaitable[Any]]]
NO_SERVICES: Services = {}
_LONGEST_QUESTION = 64 * KIB


async def answer(services: Services, question: Message) -> Message:
    """The answer to one question, or the reason why there is none."""
    service = services.get(str(question["ask"]))
    if service is None:
        return {"error": f"{question['ask']} is not offered here"}
    try:
        return {"answer": await service(question.get("argument"))}
    except HabitusError as error:
        return {"error": str(error)}


@asynccontextmanager
async def answering(services: Services) -> AsyncIterator[int]:
    """A descriptor for whoever asks, to be closed by whom it is given to; answered as long as the block lasts."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    work = asyncio.create_task(_answer_all(ours, services))
    try:
        yield theirs.detach()
    finally:
        work.cancel()
        await asyncio.wait([work])
        ours.close()
    if not work.cancelled():
        work.result()


async def _answer_all(line: socket.socket, services: Services) -> None:
    """Until the other side is gone, or says something that is not a question."""
    loop = asyncio.get_running_loop()
    try:
        while (head := await _exactly(loop, line, 4)) and (length := struct.unpack(">I", head)[0]) <= _LONGEST_QUESTION:
            question = unpack(await _exactly(loop, line, length))
            if "ask" not in question:
                return
            await loop.sock_sendall(line, pack(await answer(services, question)))
    except (OSError, ValueError, RecursionError):
        return
    finally:
        line.close()


async def _exactly(loop: asyncio.AbstractEventLoop, line: socket.socket, wanted: int) -> bytes:
    """Return that many bytes; none when the line ends before."""
    found = bytearray()
    while len(found) < wanted and (part := await loop.sock_recv(line, min(wanted - len(found), MIB))):
        found += part
    return bytes(found) if len(found) == wanted else b""
