"""A line to PostgreSQL, as a small proxy: it can be cut, stalled, slowed down, abandoned by a balancer, or made deaf as
a pooler makes it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import sqlalchemy as sa

_TOLD = b"A"  # the message by which the server tells of a change


class Line:
    """Every connection goes through it; what is set holds from then on, for those that are open too."""

    def __init__(self, server_url: str, *, at: str = "127.0.0.1") -> None:
        self._server = sa.make_url(server_url)
        self._at, self._port = at, 0
        self._door: socket.socket | None = None
        self._ends: list[socket.socket] = []
        self._flows = threading.Event()
        self._last_words: tuple[str, ...] | None = None
        self._pace = threading.Event()  # never set: what waits for it waits its whole time
        self.delay = 0.0  # seconds before each answer but the first letter, which poolers give themselves
        self.is_deaf = False
        self.restore()

    @property
    def url(self) -> str:
        query = {"sslmode": "disable", "gssencmode": "disable"} | {
            name: value for name, value in self._server.query.items() if name == "options"
        }
        address = self._server.set(host=self._at, port=self._port, query=query)
        return address.render_as_string(hide_password=False)

    def restore(self) -> None:
        self._flows.set()
        self._last_words = None
        if self._door is None:
            self._door = socket.create_server((self._at, self._port))
            self._port = self._door.getsockname()[1]
            threading.Thread(target=self._accept, args=(self._door,), daemon=True).start()

    def cut(self) -> None:
        """Nobody gets through, and those who were through hear nothing more."""
        if self._door is not None:
            _close(self._door)
        self._door = None
        self._end_all()

    def stall(self) -> None:
        """Everything is taken, and nothing answered until it is restored or cut."""
        self._flows.clear()

    def abandon(self, *said: str) -> None:
        """The server is not behind it any more: who comes is let in, told a state and its words, and hung up on."""
        self._last_words = said
        self._end_all()

    def _end_all(self) -> None:
        self._flows.set()
        for end in self._ends:
            _close(end)
        self._ends = []

    def _accept(self, door: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = door.accept()
                threading.Thread(target=self._connect_to_first_answering_address, args=(client,), daemon=True).start()

    def _connect_to_first_answering_address(self, client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if (said := self._last_words) is not None:
            with client, suppress(OSError):
                _hang_up(client, *said)
            return
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{self._server.query['host']}/.s.PGSQL.{self._server.port or 5432}")
        self._ends += [client, server]
        threading.Thread(target=self._ask, args=(client, server), daemon=True).start()
        self._answer(server, client)

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                self._flows.wait()
                server.sendall(data)
        _close(server)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        kept = b""
        with suppress(OSError):
            while data := server.recv(65536):
                self._flows.wait()
                if self.delay and len(data) > 1:
                    self._pace.wait(self.delay)
                if self.is_deaf and len(data) > 1:
                    data, kept = _without_word(kept + data)
                client.sendall(data)
        _close(client)


def _without_word(data: bytes) -> tuple[bytes, bytes]:
    """What is not word of a change, and the rest that is no whole message yet: a kind, and a length that counts
    itself."""
    passed = b""
    while len(data) >= 5 and len(data) > (size := int.from_bytes(data[1:5], "big")):
        message, data = data[: size + 1], data[size + 1 :]
        passed += b"" if message[:1] == _TOLD else message
    return passed, data


def _hang_up(client: socket.socket, *said: str) -> None:
    if len(client.recv(4096)) == 8:  # whether it may encrypt
        client.sendall(b"N")
        if not said or not client.recv(4096):
            return
    if said:
        state, words = said
        fields = b"".join(f"{kind}{value}\0".encode() for kind, value in (("S", "FATAL"), ("C", state), ("M", words)))
        client.sendall(b"E" + (len(fields) + 5).to_bytes(4, "big") + fields + b"\0")


def _close(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


@contextmanager
def line_to(server_url: str, *, at: str = "127.0.0.1") -> Iterator[Line]:
    line = Line(server_url, at=at)
    try:
        yield line
    finally:
        line.cut()
