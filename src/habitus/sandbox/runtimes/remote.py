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

from habitus import operating_system
from habitus.errors import HabitusError, UserError
from habitus.files import require_path_inside_skill
from habitus.sandbox.child import Message, OutputCapture, ProcessGone
from habitus.sandbox.inside.wire import pack, unpack
from habitus.sandbox.isolation import get_given_folder_path_inside
from habitus.sandbox.machine import get_base_python, probe_machine
from habitus.sandbox.model import MIB, Permissions, SandboxLimits
from habitus.sandbox.runtimes.local import LocalRuntime, LocalWorker
from habitus.sandbox.venvs import EnvironmentCache, VenvBuilder

# UTF-8 uses at most four bytes for a character.
_BYTES_PER_CHARACTER = 4
GIVEN = ".given"  # no scratchpad has such a name: theirs begin with a letter or digit


def main() -> None:
    """Serve one order on standard input and output."""
    asyncio.run(_serve_one_runtime_request())


async def _serve_one_runtime_request() -> None:
    reader, writer = await _open_standard_streams()
    order = await read_message(reader)
    runtime = _build_runtime(order)
    try:
        result = await _execute_runtime_request(runtime, order)
    except HabitusError as error:
        hint = error.hint if isinstance(error, UserError) else ""
        text = error.message if isinstance(error, UserError) else str(error)
        writer.write(pack({"error": {"kind": type(error).__name__, "message": text, "hint": hint}}))
    else:
        if isinstance(result, LocalWorker):
            writer.write(pack({"ok": True}))
            await _relay_messages(result, SyncedFolder(_get_folder_of_given_files(order)), reader, writer)
        else:
            writer.write(pack({"ok": result}))
    await writer.drain()
    await runtime.close()


async def _execute_runtime_request(runtime: LocalRuntime, order: Message) -> object:
    name = order["name"]
    match order["do"]:
        case "start":
            return await runtime.start_worker(name)
        case "install":
            return await runtime.install_scratchpad_packages(name, order["requirements"])
        case "remove":
            await runtime.delete_scratchpad(name)
            return None
        case "given":
            return get_given_folder_path_inside(probe_machine(), _get_folder_of_given_files(order))
        case _:
            return await runtime.list_stored_scratchpad_names()


def _build_runtime(order: Message) -> LocalRuntime:
    granted = order["permissions"]
    permissions = Permissions(
        network=granted["network"],
        read=tuple(Path(path) for path in granted["read"]),
        write=tuple(Path(path) for path in granted["write"]),
        env=tuple(granted["env"]),
    )
    return LocalRuntime(
        probe_machine(),
        _get_scratchpads_folder(order),
        EnvironmentCache(
            Path(order["environments"]).expanduser(), VenvBuilder(os.environ, python=get_base_python(), uv=order["uv"])
        ),
        permissions=permissions,
        limits=SandboxLimits(**order["limits"]),
        allow_weaker=order["allow_weaker"],
        owner=order["owner"],
        given=_get_folder_of_given_files(order),
    )


def _get_scratchpads_folder(order: Message) -> Path:
    return Path(order["folder"]).expanduser()


def _get_folder_of_given_files(order: Message) -> Path:
    return _get_scratchpads_folder(order) / GIVEN


async def _relay_messages(
    worker: LocalWorker, given: SyncedFolder, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Relay messages and files both ways until either side ends."""
    streams = {name: _ForwardingCapture(name, writer) for name in ("out", "err")}
    inward = asyncio.ensure_future(_relay_host_to_worker(worker, given, reader, writer, streams))
    outward = asyncio.ensure_future(_relay_worker_to_host(worker, writer, streams))
    await asyncio.wait({inward, outward}, return_when=asyncio.FIRST_COMPLETED)
    inward.cancel()
    outward.cancel()
    why = await worker.close()
    if not writer.is_closing():
        writer.write(pack({"gone": why}))


async def _relay_host_to_worker(
    worker: LocalWorker,
    given: SyncedFolder,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    streams: dict[str, _ForwardingCapture],
) -> None:
    while True:
        try:
            message = await read_message(reader)
        except asyncio.IncompleteReadError:
            # The near end has hung up.
            return
        if "listen" in message and message["listen"] is None:
            worker.redirect_output(None, None)
        elif "listen" in message:
            for stream in streams.values():
                stream.reset_character_limit(message["listen"])
            worker.redirect_output(streams["out"], streams["err"])
        elif "interrupt" in message:
            await worker.interrupt()
        elif "give" in message:
            await _receive_missing_given_files(given, message["give"], reader, writer)
        elif "keep" in message:
            await _send_made_files(worker, int(message["keep"]), writer)
        else:
            await worker.send(message["to"])


async def _receive_missing_given_files(
    given: SyncedFolder, wanted: FileHashes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """List the files that are missing here, receive them, and report those that could not be stored."""
    missing = given.delete_unwanted_and_list_missing_files(wanted)
    writer.write(pack({"missing": missing}))
    lost = {path: why for path in missing if (why := await _receive_given_file(given, path, wanted[path], reader))}
    writer.write(pack({"lost": lost}))
    await writer.drain()


async def _receive_given_file(given: SyncedFolder, path: str, digest: str, reader: asyncio.StreamReader) -> str:
    """Store one file and return "" or the reason why not.

    Its data is always read to the end, because the next file follows it.
    """
    why, file = "", None
    try:
        file = given.open_incoming_file(path, digest)
    except OSError as error:
        why = error.strerror or str(error)
    try:
        while (data := (await read_message(reader))["data"]) is not None:
            try:
                if file and not why:
                    file.write(base64.b64decode(data))
            except OSError as error:
                why = error.strerror or str(error)
    finally:
        # Also where the connection was lost: half a file is discarded.
        refusal = file.move_into_place_if_intact() if file else ""
    return why or refusal


async def _send_made_files(worker: LocalWorker, room: int, writer: asyncio.StreamWriter) -> None:
    for name, source in worker.made_files_tracker.open_new_files(room):
        writer.write(pack({"made": name}))
        while data := source.read(MIB // 4):
            writer.write(pack({"data": base64.b64encode(data).decode()}))
            await writer.drain()
        writer.write(pack({"data": None}))
    writer.write(pack({"made": None}))
    await writer.drain()


async def _relay_worker_to_host(
    worker: LocalWorker, writer: asyncio.StreamWriter, streams: dict[str, _ForwardingCapture]
) -> None:
    while True:
        try:
            message = await worker.receive()
        except ProcessGone:
            return
        worker.deliver_printed_output()
        for stream in streams.values():
            stream.report_skipped_character_count()
        writer.write(pack({"from": message}))
        await writer.drain()


class _ForwardingCapture(OutputCapture):
    """Sends output over the connection up to the limit of the other side, then only counts the rest."""

    def __init__(self, name: str, writer: asyncio.StreamWriter) -> None:
        super().__init__(0)
        self._name = name
        self._writer = writer
        self._bytes_left = 0
        self._skipped = 0

    def reset_character_limit(self, characters: int) -> None:
        """Allow this many characters for the next cell."""
        self._bytes_left = characters * _BYTES_PER_CHARACTER
        self._skipped = 0

    def feed(self, data: bytes, *, final: bool = False) -> None:
        kept, rest = data[: self._bytes_left], data[self._bytes_left :]
        self._bytes_left -= len(kept)
        if kept:
            self._writer.write(pack({self._name: base64.b64encode(kept).decode()}))
        # For large data translate is much faster than a loop over bytes.
        self._skipped += sum(1 for byte in rest if byte & 0xC0 != 0x80) if len(rest) < 4096 else _count_characters(rest)
        if self._skipped > 1 << 20:
            self.report_skipped_character_count()

    def report_skipped_character_count(self) -> None:
        """Report how many characters were left out since the last report."""
        if self._skipped:
            self._writer.write(pack({"skipped": self._name, "count": self._skipped}))
            self._skipped = 0


def _count_characters(data: bytes) -> int:
    """Count the UTF-8 characters that begin in the data."""
    return len(data.translate(None, bytes(range(0x80, 0xC0))))


async def read_message(reader: asyncio.StreamReader) -> dict[str, Any]:
    """Read one length-prefixed message."""
    (length,) = struct.unpack(">I", await reader.readexactly(4))
    return unpack(await reader.readexactly(length))


async def _open_standard_streams() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout.buffer)
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)


FileHashes = Mapping[str, str]  # relative path → hash, with a trailing `x` for an executable


class SyncedFolder:
    """A folder of given files that is kept in sync over the connection. Every method blocks on disk access."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._hashes: dict[str, tuple[tuple[int, ...], str]] = {}  # path → file stamp and hash

    def compute_manifest(self) -> FileHashes:
        """Return every file with its hash; unchanged files are not read again."""
        known, self._hashes = self._hashes, {}
        for path, found in self._walk_files():
            stamp = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode)
            before = known.get(path)
            # The file was replaced meanwhile; the next manifest has its successor.
            with suppress(FileNotFoundError):
                self._hashes[path] = before if before and before[0] == stamp else (stamp, self._hash_file(path, found))
        return {path: digest for path, (_, digest) in self._hashes.items()}

    def delete_unwanted_and_list_missing_files(self, wanted: FileHashes) -> list[str]:
        """Delete files that are no longer wanted and return the paths that are missing or differ."""
        there = self.compute_manifest()
        for path in there.keys() - wanted.keys():
            (self._folder / path).unlink(missing_ok=True)
        return [path for path, digest in wanted.items() if there.get(path) != digest]

    def read_chunks(self, path: str) -> Iterator[bytes]:
        """Yield the content of a file in pieces."""
        with (self._folder / path).open("rb") as source:
            while data := source.read(MIB // 4):
                yield data

    def open_incoming_file(self, path: str, digest: str) -> IncomingFile:
        """Open a file for incoming data."""
        return IncomingFile(self._folder / require_path_inside_skill(path), digest)

    def _hash_file(self, path: str, found: os.stat_result) -> str:
        read = hashlib.sha256()
        for data in self.read_chunks(path):
            read.update(data)
        return read.hexdigest() + ("x" if found.st_mode & stat.S_IXUSR else "")

    def _walk_files(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the regular files with their status; temporary files and hidden folders are skipped."""
        for here, below, names in os.walk(self._folder):
            below[:] = [name for name in below if not name.startswith(".")]
            for path in (Path(here, name) for name in names if not name.startswith(".")):
                with suppress(FileNotFoundError):
                    found = path.lstat()
                    if stat.S_ISREG(found.st_mode):
                        yield path.relative_to(self._folder).as_posix(), found


class IncomingFile:
    """A file being received. It is moved into place only if its content matches the expected hash."""

    def __init__(self, target: Path, digest: str) -> None:
        self._target = target
        self._digest = digest
        self._half = target.with_name(f".{os.getpid()}-{target.name}"[:200])
        self._read = hashlib.sha256()
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._half.unlink(missing_ok=True)
        self._file = os.open(self._half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | operating_system.O_PLAIN, 0o600)

    def write(self, data: bytes) -> None:
        self._read.update(data)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._file, rest) :]

    def move_into_place_if_intact(self) -> str:
        """Move the file into place and return "", or why that failed; discard it if its content differs."""
        operating_system.set_file_permissions(self._file, 0o500 if self._digest.endswith("x") else 0o400)
        os.close(self._file)
        try:
            # If it differs, the source changed while it was sent; the next cell sends it again.
            if self._read.hexdigest() == self._digest.removesuffix("x"):
                self._half.rename(self._target)
        except OSError as error:
            return error.strerror or str(error)
        finally:
            self._half.unlink(missing_ok=True)
        return ""
