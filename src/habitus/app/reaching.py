"""Reaching a database server: whether it answers at all in time, asked without taking a connection of it."""

from __future__ import annotations

import socket
import struct
import time

import sqlalchemy as sa

_PORT = 5432
_MAY_WE_ENCRYPT = struct.pack("!ii", 8, 80877103)  # a server answers with one letter, before anybody signs in


def silence(url: sa.URL, within: float) -> str:
    """Why a server can't be reached within these seconds; nothing where it answers, or where there is none."""
    if url.get_backend_name() != "postgresql":
        return ""
    problem = ""
    until = time.monotonic() + within
    for host, port in _places(url):
        try:
            with _connected(host, port, until) as line:
                line.settimeout(max(until - time.monotonic(), 0.001))
                line.sendall(_MAY_WE_ENCRYPT)
                if line.recv(1):
                    return ""
                problem = "it hung up"
        except TimeoutError:
            problem = f"no answer within {within * 1000:.0f} ms"
        except OSError as error:
            problem = error.strerror or str(error)
    return f"The database is away ({problem})."


def _places(url: sa.URL) -> list[tuple[str, int]]:
    """An address may name several servers, or the folder of a local one's socket."""
    hosts, ports = url.query.get("host", url.host or "localhost"), url.query.get("port", str(url.port or _PORT))
    named = hosts.split(",") if isinstance(hosts, str) else list(hosts)
    numbers = ports.split(",") if isinstance(ports, str) else list(ports)
    numbers += numbers[-1:] * (len(named) - len(numbers))
    places = zip(named, numbers, strict=False)
    return [(host.partition(":")[0] if host.count(":") == 1 else host, int(port)) for host, port in places]


def _connected(host: str, port: int, until: float) -> socket.socket:
    seconds = max(until - time.monotonic(), 0.001)
    if not host.startswith("/"):
        return socket.create_connection((host, port), timeout=seconds)
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.settimeout(seconds)
    try:
        line.connect(f"{host}/.s.PGSQL.{port}")
    except OSError:
        line.close()
        raise
    return line
