"""Reading what sandboxed code prints: as it comes, within a bound, whatever it throws at us."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import time
from collections.abc import Callable

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
        """What was kept, with a mark that says how much was not."""
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
