"""Length-prefixed JSON messages (four bytes of length, then the body), used on every socket into the sandbox."""

from __future__ import annotations

import json
import os
import struct
import sys

# A port on a call's own loopback, where the host proxies the granted hosts.
EGRESS_PORT = 3128

# Only for the type checker: these scripts start with every sandboxed process, and `typing` is slow to import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any, TypeAlias

    Message: TypeAlias = dict[str, Any]


def pack(message: Message) -> bytes:
    """Encode a message with its length prefix."""
    body = json.dumps(message, separators=(",", ":")).encode()
    return struct.pack(">I", len(body)) + body


def unpack(body: bytes) -> Message:
    """Decode the body of a message; an empty one if it is not an object."""
    message = json.loads(body)
    return message if isinstance(message, dict) else {}


def send(fd: int, message: Message) -> None:
    """Write a message to a descriptor."""
    rest = memoryview(pack(message))
    while rest:
        rest = rest[os.write(fd, rest) :]


def receive(fd: int) -> Message | None:
    """Return the next message, or None when the other side has hung up."""
    head = _read_exactly(fd, 4)
    if head is None:
        return None
    body = _read_exactly(fd, struct.unpack(">I", head)[0])
    return None if body is None else unpack(body)


def receive_with_fds(line: socket.socket) -> tuple[Message | None, list[int]]:
    """Return the next message, or None, with the descriptors that came with its first byte."""
    if sys.platform == "win32":
        raise NotImplementedError
    import socket

    head, fds, _, _ = socket.recv_fds(line, 1, 8)
    if not head:
        return None, fds
    rest = _read_exactly(line.fileno(), 3)
    body = None if rest is None else _read_exactly(line.fileno(), struct.unpack(">I", head + rest)[0])
    return (None if body is None else unpack(body)), fds


def _read_exactly(fd: int, count: int) -> bytes | None:
    parts = []
    while count:
        part = os.read(fd, min(count, 1 << 20))
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
