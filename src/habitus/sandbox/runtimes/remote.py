"""The far end of the SSH runtime: runs on the other machine and connects its local runtime to the SSH stream.

The near end (`ssh.py`) sends this code along. The first message is an order; after `start`, messages to and from the
worker and its output share the stream.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import stat
import struct
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from habitus.errors import HabitusError, UserError
from habitus.files import checked_path
from habitus.sandbox.child import Capture, Gone, Message
from habitus.sandbox.inside.wire import pack, unpack
from habitus.sandbox.isolation import given_at
from habitus.sandbox.machine import base_python, probe
from habitus.sandbox.model import MIB, Limits, Permissions
from habitus.sandbox.runtimes.local import LocalRuntime, LocalWorker
from habitus.sandbox.venvs import Environments, Venvs

# UTF-8 uses at most four bytes for a character.
_BYTES_PER_CHARACTER = 4
GIVEN = ".given"  # no scratchpad has such a name: theirs begin with a letter or digit


def main() -> None:
    """Serve one order on standard input and output."""
    asyncio.run(_serve())


async def _serve() -> None:
    reader, writer = await _standard_streams()
    order = await read_message(reader)
    runtime = _runtime(order)
    try:
        result = await _obey(runtime, order)
    except HabitusError as error:
        hint = error.hint if isinstance(error, UserError) else ""
        text = error.message if isinstance(error, UserError) else str(error)
        writer.write(pack({"error": {"kind": type(error).__name__, "message": text, "hint": hint}}))
    else:
        if isinstance(result, LocalWorker):
            writer.write(pack({"ok": True}))
            await _relay(result, Carried(_given_folder(order)), reader, writer)
        else:
            writer.write(pack({"ok": result}))
    await writer.drain()
    await runtime.close()


async def _obey(runtime: LocalRuntime, order: Message) -> object:
    name = order["name"]
    match order["do"]:
        case "start":
            return await runtime.start(name)
        case "install":
            return await runtime.install(name, order["requirements"])
        case "remove":
            await runtime.remove(name)
            return None
        case "given":
            return given_at(probe(), _given_folder(order))
        case _:
            return await runtime.names()


def _runtime(order: Message) -> LocalRuntime:
    granted = order["permissions"]
    permissions = Permissions(
        network=granted["network"],
        read=tuple(Path(path) for path in granted["read"]),
        write=tuple(Path(path) for path in granted["write"]),
        env=tuple(granted["env"]),
    )
    return LocalRuntime(
        probe(),
        _folder(order),
        Environments(Path(order["environments"]).expanduser(), Venvs(os.environ, python=base_python(), uv=order["uv"])),
        permissions=permissions,
        limits=Limits(**order["limits"]),
        allow_weaker=order["allow_weaker"],
        owner=order["owner"],
        given=_given_folder(order),
    )


def _folder(order: Message) -> Path:
    return Path(order["folder"]).expanduser()


def _given_folder(order: Message) -> Path:
    return _folder(order) / GIVEN


async def _relay(
    worker: LocalWorker, given: Carried, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Relay messages and files both ways until either side ends."""
    streams = {name: _Forward(name, writer) for name in ("out", "err")}
    inward = asyncio.ensure_future(_inward(worker, given, reader, writer, streams))
    outward = asyncio.ensure_future(_outward(worker, writer, streams))
    await asyncio.wait({inward, outward}, return_when=asyncio.FIRST_COMPLETED)
    inward.cancel()
    outward.cancel()
    why = await worker.close()
    if not writer.is_closing():
        writer.write(pack({"gone": why}))


async def _inward(
    worker: LocalWorker,
    given: Carried,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    streams: dict[str, _Forward],
) -> None:
    while True:
        try:
            message = await read_message(reader)
        except asyncio.IncompleteReadError:
            # The near end has hung up.
            return
        if "listen" in message and message["listen"] is None:
            worker.listen(None, None)
        elif "listen" in message:
            for stream in streams.values():
                stream.begin(message["listen"])
            worker.listen(streams["out"], streams["err"])
        elif "interrupt" in message:
            await worker.interrupt()
        elif "give" in message:
            await _take(given, message["give"], reader, writer)
        elif "keep" in message:
            await _send_made(worker, int(message["keep"]), writer)
        else:
            await worker.send(message["to"])


async def _take(given: Carried, wanted: Manifest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """List the files that are missing here, receive them, and report those that could not be stored."""
    missing = given.missing(wanted)
    writer.write(pack({"missing": missing}))
    lost = {path: why for path in missing if (why := await _receive_file(given, path, wanted[path], reader))}
    writer.write(pack({"lost": lost}))
    await writer.drain()


async def _receive_file(given: Carried, path: str, digest: str, reader: asyncio.StreamReader) -> str:
    """Store one file and return "" or the reason why not.

    Its data is always read to the end, because the next file follows it.
    """
    why, file = "", None
    try:
        file = given.arriving(path, digest)
    except OSError as error:
        why = error.strerror or str(error)
    while (data := (await read_message(reader))["data"]) is not None:
        try:
            if file and not why:
                file.write(base64.b64decode(data))
        except OSError as error:
            why = error.strerror or str(error)
    if file:
        file.close()
    return why


async def _send_made(worker: LocalWorker, room: int, writer: asyncio.StreamWriter) -> None:
    for name, source in worker.made_files.new(room):
        writer.write(pack({"made": name}))
        while data := source.read(MIB // 4):
            writer.write(pack({"data": base64.b64encode(data).decode()}))
            await writer.drain()
        writer.write(pack({"data": None}))
    writer.write(pack({"made": None}))
    await writer.drain()


async def _outward(worker: LocalWorker, writer: asyncio.StreamWriter, streams: dict[str, _Forward]) -> None:
    while True:
        try:
            message = await worker.receive()
        except Gone:
            return
        worker.settle()
        for stream in streams.values():
            stream.own_up()
        writer.write(pack({"from": message}))
        await writer.drain()


class _Forward(Capture):
    """Sends output over the connection up to the limit of the other side, then only counts the rest."""

    def __init__(self, name: str, writer: asyncio.StreamWriter) -> None:
        super().__init__(0)
        self._name = name
        self._writer = writer
        self._bytes_left = 0
        self._skipped = 0

    def begin(self, characters: int) -> None:
        """Allow this many characters for the next cell."""
        self._bytes_left = characters * _BYTES_PER_CHARACTER
        self._skipped = 0

    def feed(self, data: bytes, *, final: bool = False) -> None:
        kept, rest = data[: self._bytes_left], data[self._bytes_left :]
        self._bytes_left -= len(kept)
        if kept:
            self._writer.write(pack({self._name: base64.b64encode(kept).decode()}))
        # For large data translate is much faster than a loop over bytes.
        self._skipped += sum(1 for byte in rest if byte & 0xC0 != 0x80) if len(rest) < 4096 else _characters(rest)
        if self._skipped > 1 << 20:
            self.own_up()

    def own_up(self) -> None:
        """Report how many characters were left out since the last report."""
        if self._skipped:
            self._writer.write(pack({"skipped": self._name, "count": self._skipped}))
            self._skipped = 0


def _characters(data: bytes) -> int:
    """Count the UTF-8 characters that begin in the data."""
    return len(data.translate(None, bytes(range(0x80, 0xC0))))


async def read_message(reader: asyncio.StreamReader) -> dict[str, Any]:
    """Read one length-prefixed message."""
    (length,) = struct.unpack(">I", await reader.readexactly(4))
    return unpack(await reader.readexactly(length))


async def _standard_streams() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout.buffer)
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)


Manifest = Mapping[str, str]  # relative path → hash, with a trailing `x` for an executable


class Carried:
    """A folder of given files that is kept in sync over the connection. Every method blocks on disk access."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._hashes: dict[str, tuple[tuple[int, ...], str]] = {}  # path → file stamp and hash

    def manifest(self) -> Manifest:
        """Return every file with its hash; unchanged files are not read again."""
        known, self._hashes = self._hashes, {}
        for path, found in self._files():
            stamp = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode)
            before = known.get(path)
            # The file was replaced meanwhile; the next manifest has its successor.
            with suppress(FileNotFoundError):
                self._hashes[path] = before if before and before[0] == stamp else (stamp, self._hash(path, found))
        return {path: digest for path, (_, digest) in self._hashes.items()}

    def missing(self, wanted: Manifest) -> list[str]:
        """Delete files that are no longer wanted and return the paths that are missing or differ."""
        there = self.manifest()
        for path in there.keys() - wanted.keys():
            (self._folder / path).unlink(missing_ok=True)
        return [path for path, digest in wanted.items() if there.get(path) != digest]

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield the content of a file in pieces."""
        with (self._folder / path).open("rb") as source:
            while data := source.read(MIB // 4):
                yield data

    def arriving(self, path: str, digest: str) -> Arriving:
        """Open a file for incoming data."""
        return Arriving(self._folder / checked_path(path), digest)

    def _hash(self, path: str, found: os.stat_result) -> str:
        read = hashlib.sha256()
        for data in self.chunks(path):
            read.update(data)
        return read.hexdigest() + ("x" if found.st_mode & stat.S_IXUSR else "")

    def _files(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the regular files with their status; temporary files and hidden folders are skipped."""
        for here, below, names in os.walk(self._folder):
            below[:] = [name for name in below if not name.startswith(".")]
            for path in (Path(here, name) for name in names if not name.startswith(".")):
                with suppress(FileNotFoundError):
                    found = path.lstat()
                    if stat.S_ISREG(found.st_mode):
                        yield path.relative_to(self._folder).as_posix(), found


class Arriving:
    """A file being received. It is moved into place only if its content matches the expected hash."""

    def __init__(self, target: Path, digest: str) -> None:
        self._target = target
        self._digest = digest
        self._half = target.with_name(f".{os.getpid()}-{target.name}"[:200])
        self._read = hashlib.sha256()
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._half.unlink(missing_ok=True)
        self._file = os.open(self._half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def write(self, data: bytes) -> None:
        self._read.update(data)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._file, rest) :]

    def close(self) -> None:
        """Move the file into place, or discard it if its content differs."""
        os.fchmod(self._file, 0o500 if self._digest.endswith("x") else 0o400)
        os.close(self._file)
        if self._read.hexdigest() == self._digest.removesuffix("x"):
            self._half.rename(self._target)
        else:
            # The source changed while it was sent; the next cell sends it again.
            self._half.unlink()
