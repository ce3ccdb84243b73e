"""The cable to a server, as a small process-wide proxy: it can be made slow, cut and mended."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import sqlalchemy as sa


class Cable:
    def __init__(self, target: str) -> None:
        self._target = target  # of a Unix socket
        self._quick = threading.Event()
        self._quick.set()
        self._ends: list[socket.socket] = []
        self._door: socket.socket | None = None
        self.port = 0
        self.mend()

    def cut(self) -> None:
        """Nobody gets through, and those who were through hear nothing more."""
        self._quick.set()
        assert self._door is not None
        for line in (self._door, *self._ends):
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            line.close()
        self._door, self._ends = None, []

    def mend(self) -> None:
        self._quick.set()
        if self._door is None:
            self._door = socket.create_server(("127.0.0.1", self.port))
            self.port = self._door.getsockname()[1]
            threading.Thread(target=self._accept, args=(self._door,), daemon=True).start()

    def stall(self) -> None:
        """Everything is taken, and nothing answered until it is mended or cut."""
        self._quick.clear()

    def _accept(self, door: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = door.accept()
                far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                far.connect(self._target)
                self._ends += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self._quick.wait()
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


@contextmanager
def through_a_cable(url: str) -> Iterator[tuple[str, Cable]]:
    """The same address by way of a cable."""
    address = sa.make_url(url)
    cable = Cable(f"{address.query['host']}/.s.PGSQL.{address.port or 5432}")
    try:
        outside = address.difference_update_query(["host"]).set(host="127.0.0.1", port=cable.port)
        yield outside.render_as_string(hide_password=False), cable
    finally:
        with suppress(AssertionError):
            cable.cut()
