"""Services of the host: what sandboxed code may ask, and the line of its own over which a tool asks it."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from habitus.errors import HabitusError
from habitus.sandbox.child import Message
from habitus.sandbox.inside.wire import pack, unpack
from habitus.sandbox.model import KIB

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
    """Until the other side is gone, or says something that is no question."""
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
    """That many bytes; fewer when the line ends before."""
    parts = b""
    while len(parts) < wanted and (part := await loop.sock_recv(line, wanted - len(parts))):
        parts += part
    return parts if len(parts) == wanted else b""
