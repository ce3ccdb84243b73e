"""Egress by allow-list: a call without a network reaches only the hosts it was granted, through our proxy.

The call's network namespace has only a loopback. Before its code runs, a listening port is opened there and its socket
handed to us, so we answer from outside as an HTTP proxy inside. We resolve names ourselves; there is no DNS inside. We
can't read what passes through a TLS tunnel, so a granted host covers everything it serves.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from habitus.sandbox.inside.wire import EGRESS_PORT
from habitus.sandbox.model import KIB

_LONGEST_HEAD = 64 * KIB
_HEAD_S, _CONNECT_S = 30.0, 30.0
_USUAL_PORTS = (80, 443)
# Refused targets are reported to a person; a scan of thousands of hosts must not be.
_MOST_REFUSED = 20
_PROXY = f"http://127.0.0.1:{EGRESS_PORT}"
PROXY_VARIABLES = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), _PROXY)


@dataclass(frozen=True, kw_only=True, slots=True)
class EgressTarget:
    """The host a request wants to reach, and the bytes to send there first."""

    host: str
    port: int
    # Empty for a tunnel, whose content passes unread.
    first: bytes = b""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class EgressProxy:
    """The proxy of one call. `refused` lists the targets that it asked for and may not reach."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self.refused: list[str] = []
        self._hosts = tuple(hosts)
        self._lines: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serve_requests(self) -> AsyncIterator[int]:
        """Yield the descriptor over which the call hands us its socket; serve requests until the block ends."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        work = asyncio.create_task(self._receive_socket_and_accept_connections(ours))
        try:
            yield theirs.detach()
        finally:
            for task in (work, *self._lines):
                task.cancel()
            await asyncio.wait([work, *self._lines])
            ours.close()

    async def _receive_socket_and_accept_connections(self, line: socket.socket) -> None:
        readable = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(line, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(line)
        # There is none if the call ended before it sent one.
        if sys.platform == "win32":
            raise NotImplementedError
        _, descriptors, _, _ = socket.recv_fds(line, 1, 1)
        for descriptor in descriptors:
            with socket.socket(fileno=descriptor) as listener, contextlib.suppress(OSError):
                listener.setblocking(False)
                while True:
                    accepted, _ = await loop.sock_accept(listener)
                    task = asyncio.create_task(self._handle_connection(accepted))
                    self._lines.add(task)
                    task.add_done_callback(self._lines.discard)

    async def _handle_connection(self, accepted: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=accepted, limit=_LONGEST_HEAD)
        with contextlib.closing(writer), contextlib.suppress(OSError, asyncio.IncompleteReadError):
            try:
                async with asyncio.timeout(_HEAD_S):
                    target = parse_request_target(await reader.readuntil(b"\r\n\r\n"))
            except (ValueError, asyncio.LimitOverrunError, TimeoutError):
                writer.write(_build_http_response(400, "This proxy takes CONNECT, and requests for http:// addresses."))
                return
            if not is_target_granted(target, self._hosts):
                self._record_refusal(target)
                writer.write(_build_http_response(403, f"{target} was not granted to this command line."))
                return
            try:
                async with asyncio.timeout(_CONNECT_S):
                    there, to_there = await _connect_to_target(target)
            except (OSError, UnicodeError, TimeoutError) as error:
                writer.write(
                    _build_http_response(502, f"{target} can't be reached: {str(error) or 'it does not answer'}.")
                )
                return
            with contextlib.closing(to_there):
                if target.first:
                    to_there.write(target.first)
                else:
                    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await asyncio.gather(_relay_bytes_one_way(reader, to_there), _relay_bytes_one_way(there, writer))

    def _record_refusal(self, target: EgressTarget) -> None:
        if len(self.refused) < _MOST_REFUSED and str(target) not in self.refused:
            self.refused.append(str(target))


def parse_request_target(head: bytes) -> EgressTarget:
    """Parse the target from the head of a request; `ValueError` if it is nothing a proxy supports."""
    first, *fields = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    method, address, version = first.split(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(version)
    if method == "CONNECT":
        url = urlsplit(f"//{address}")
        if url.port is None or url.path or url.query or url.username is not None:
            raise ValueError(address)
        return EgressTarget(host=_normalize_host(url.hostname), port=url.port)
    url = urlsplit(address)
    if url.scheme != "http":
        raise ValueError(address)
    host, port = _normalize_host(url.hostname), url.port or 80
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    # The host is taken from the address alone, and a second request on this connection would go unchecked.
    ours = ("host", "connection", "proxy-connection", "proxy-authorization")
    kept = [field for field in fields if field.partition(":")[0].strip().lower() not in ours]
    lines = [f"{method} {path} {version}", f"Host: {url.netloc.rpartition('@')[2]}", "Connection: close", *kept]
    return EgressTarget(host=host, port=port, first="\r\n".join([*lines, "", ""]).encode("latin-1"))


def is_target_granted(target: EgressTarget, hosts: Sequence[str]) -> bool:
    """Whether a host is granted by name or by a `*.` suffix. Without a port, 80 and 443 are granted."""
    return any(_is_covered_by_grant(granted, target) for granted in hosts)


def _is_covered_by_grant(granted: str, target: EgressTarget) -> bool:
    try:
        named = urlsplit(f"//{granted}")
        host, ports = _normalize_host(named.hostname), _USUAL_PORTS if named.port is None else (named.port,)
    except ValueError:
        # The grant does not name a host.
        return False
    if target.port not in ports:
        return False
    if host.startswith("*."):
        # A granted domain must not cover an address that merely ends alike.
        return target.host.endswith(host[1:]) and not _is_ip_address(target.host)
    return target.host == host


def _normalize_host(host: str | None) -> str:
    if not host:
        raise ValueError("no host")
    return host.lower().rstrip(".")


async def _connect_to_target(target: EgressTarget) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first of its addresses that answers. A name that resolves to this machine is refused."""
    found = await asyncio.get_running_loop().getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    addresses = [str(place[0]) for *_, place in found]
    if not _is_ip_address(target.host) and target.host != "localhost":
        # Otherwise a granted name could be pointed at services that listen only on this machine.
        addresses = [address for address in addresses if not _is_local_address(address)]
    trouble: OSError = ConnectionRefusedError("its name leads to this machine itself")
    for address in addresses:
        try:
            return await asyncio.open_connection(address, target.port, limit=_LONGEST_HEAD)
        except OSError as error:
            trouble = error
    raise trouble


def _is_ip_address(host: str) -> bool:
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(host.partition("%")[0])
        return True
    return False


def _is_local_address(address: str) -> bool:
    found = ipaddress.ip_address(address.partition("%")[0])
    inner = getattr(found, "ipv4_mapped", None) or found
    return bool(inner.is_loopback or inner.is_link_local or inner.is_unspecified)


async def _relay_bytes_one_way(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(_LONGEST_HEAD):
            target.write(data)
            await target.drain()
        target.write_eof()


def _build_http_response(code: int, reason: str) -> bytes:
    body = f"{reason}\n".encode()
    # Clients often show nothing but these words.
    words = {400: "Bad Request", 403: "Host Not Granted", 502: "Bad Gateway"}[code]
    head = f"HTTP/1.1 {code} {words}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body
