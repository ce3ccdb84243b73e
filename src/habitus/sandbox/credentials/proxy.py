"""The proxy: a session's command lines on a Unix socket, for `habitus-skill` in its pads and tools.

One line of JSON in, `{"skill", "arguments", "stdin"}`, and one out, `{"stdout", "stderr", "code"}`. Whoever is somebody
else, and whatever is no such line, is refused and logged.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from pathlib import Path

from habitus.errors import HabitusError
from habitus.events import infra
from habitus.files import write_whole
from habitus.resident import bind_socket
from habitus.sandbox.credentials.calling import COMMAND, NO_SANDBOX, Answer, Caller
from habitus.sandbox.inside.habitus_skill import SOCKET
from habitus.sandbox.machine import INSIDE, base_python
from habitus.sandbox.model import MIB

LONGEST_LINE = MIB
_LINE_S, _MOST_AT_ONCE = 10.0, 16
_CLIENT = INSIDE / "habitus_skill.py"


class Proxy:
    """Lies in a folder that code may read, the command beside its socket. Opened by the first who needs it.

    `uid` is the only one who may ask, and the kernel says who does.
    """

    def __init__(self, caller: Caller, folder: Path, *, uid: int) -> None:
        self._caller = caller
        self._folder = folder
        self._uid = uid
        self._opening = asyncio.Lock()
        self._server: asyncio.Server | None = None
        self._own = 0
        self._asking: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        async with self._opening:
            if self._server is None:
                door = await asyncio.to_thread(self._open_socket)
                self._server = await asyncio.start_unix_server(self._serve_client, sock=door, limit=LONGEST_LINE)

    async def close(self) -> None:
        """Whoever still asks is not waited for."""
        async with self._opening:
            server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for task in self._asking:
            task.cancel()
        if self._asking:
            await asyncio.wait(self._asking)
        await asyncio.to_thread(self._remove_socket)

    def _open_socket(self) -> socket.socket:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        command = self._folder / COMMAND
        # The whole of it, because a call may have its own /tmp where our package lies.
        script = f"#!{base_python()} -IS\n{_CLIENT.read_text(encoding='utf-8')}\n\nmain()\n"
        write_whole(command, script.encode(), mode=0o500, durable=False)
        door = bind_socket(self._folder / SOCKET)
        self._own = (self._folder / SOCKET).stat().st_ino
        return door

    def _remove_socket(self) -> None:
        """The socket goes, unless another process of the same session has its own there by now."""
        place = self._folder / SOCKET
        with contextlib.suppress(FileNotFoundError):
            if place.stat().st_ino == self._own:
                place.unlink()

    async def _serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._asking.add(task)
        try:
            with contextlib.closing(writer), contextlib.suppress(OSError):
                try:
                    answer = await self._answer(reader, writer.get_extra_info("socket"))
                except HabitusError as error:
                    answer = Answer(stderr=f"{COMMAND}: {error}\n", code=NO_SANDBOX, outcome=infra(str(error)))
                writer.write(json.dumps(answer.as_message()).encode() + b"\n")
                await writer.drain()
        finally:
            self._asking.discard(task)

    async def _answer(self, reader: asyncio.StreamReader, line: socket.socket) -> Answer:
        if (uid := _uid_of(line)) != self._uid:
            return await self._caller.refuse(f"The user with the id {uid} may not ask here.")
        if len(self._asking) > _MOST_AT_ONCE:
            return await self._caller.refuse(f"More than {_MOST_AT_ONCE} ask at once.")
        try:
            async with asyncio.timeout(_LINE_S):
                question = await reader.readuntil(b"\n")
        except asyncio.LimitOverrunError:
            return await self._caller.refuse(f"It is longer than {LONGEST_LINE // MIB} MiB.")
        except (asyncio.IncompleteReadError, TimeoutError):
            return await self._caller.refuse("That is half a line.")
        return await self._answer_call(question, reader)

    async def _answer_call(self, question: bytes, reader: asyncio.StreamReader) -> Answer:
        """The call, for as long as whoever asked waits for it."""
        try:
            said = json.loads(question)
        except (ValueError, RecursionError):
            said = None
        call = asyncio.ensure_future(self._caller.answer_call(said))
        left = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait([call, left], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (call, left):
                task.cancel()
            await asyncio.wait([call, left])
        if call.cancelled():
            raise ConnectionResetError("whoever asked has gone")
        return call.result()


def _uid_of(line: socket.socket) -> int:
    _, uid, _ = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return int(uid)
