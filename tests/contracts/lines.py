"""A line to PostgreSQL that can be cut, slowed down, or made deaf as a pooler makes it: a small proxy on loopback."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import sqlalchemy as sa

_TOLD = b"A"  # the message by which the server tells of a change


class Line:
    """Every connection goes through it; what is set holds from then on, for those that are open too."""

    def __init__(self, server_url: str) -> None:
        self._server = sa.make_url(server_url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []
        self._is_cut = False
        self._pace = threading.Event()  # never set: what waits for it waits its whole time
        self.delay = 0.0  # seconds before each answer
        self.is_deaf = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        query = {"sslmode": "disable", "gssencmode": "disable"} | {
            name: value for name, value in self._server.query.items() if name == "options"
        }
        port = self._listener.getsockname()[1]
        address = self._server.set(host="127.0.0.1", port=port, query=query)
        return address.render_as_string(hide_password=False)

    def cut(self) -> None:
        self._is_cut = True
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._ends.clear()

    def mend(self) -> None:
        self._is_cut = False

    def close(self) -> None:
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._is_cut:
                    client.close()
                    continue
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                server = socket.socket(socket.AF_UNIX)
                server.connect(f"{self._server.query['host']}/.s.PGSQL.5432")
                self._ends += [client, server]
                threading.Thread(target=self._ask, args=(client, server), daemon=True).start()
                threading.Thread(target=self._answer, args=(server, client), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        with client, suppress(OSError):
            while data := client.recv(65536):
                server.sendall(data)
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        """Message by message: a kind, and a length that counts itself."""
        kept = b""
        with server, suppress(OSError):
            while data := server.recv(65536):
                kept += data
                whole = b""
                while len(kept) >= 5 and len(kept) > (size := int.from_bytes(kept[1:5], "big")):
                    message, kept = kept[: size + 1], kept[size + 1 :]
                    whole += b"" if self.is_deaf and message[:1] == _TOLD else message
                if self.delay:
                    self._pace.wait(self.delay)
                client.sendall(whole)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)


@contextmanager
def line_to(server_url: str) -> Iterator[Line]:
    line = Line(server_url)
    try:
        yield line
    finally:
        line.close()
