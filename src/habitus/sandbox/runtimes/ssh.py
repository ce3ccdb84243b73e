"""Runs scratchpads on another machine over SSH, which needs only Python 3.11, SSH and, for packages, uv.

Our own code is sent along, so the other machine isolates cells exactly as this one would (`remote.py` is the far end).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import hashlib
import io
import logging
import os
import platform
import shlex
import tempfile
import zipfile
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

import packaging

from habitus import errors
from habitus.errors import HabitusError, StorageFailed, UserError
from habitus.sandbox.child import Message, OutputCapture, ProcessGone
from habitus.sandbox.files import compute_bytes_left_for_made_files, open_new_file_under_free_name
from habitus.sandbox.inside.wire import pack
from habitus.sandbox.isolation import GIVEN
from habitus.sandbox.model import Permissions, SandboxLimits
from habitus.sandbox.runtimes.base import check_scratchpad_name
from habitus.sandbox.runtimes.remote import FileHashes, SyncedFolder, read_message

log = logging.getLogger(__name__)

_OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15", "-o", "ConnectTimeout=15")
# The first answer may have to wait for packages to be installed over there.
_ANSWER_S = 120.0
_CLOSE_S = 5.0

# Unpacks the code that comes first on the line into a folder named by its hash, and goes on with it.
_BOOT = """
import io, os, shutil, struct, sys, zipfile
if sys.version_info < (3, 11): sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0])
def exactly(count):
    data = b""
    while len(data) < count:
        part = os.read(0, count - len(data))
        if not part: sys.exit("the connection ended early")
        data += part
    return data
data = exactly(struct.unpack(">I", exactly(4))[0])
home = os.path.expanduser(sys.argv[1])
if not os.path.isdir(home):
    half = home + "." + str(os.getpid())
    try:
        zipfile.ZipFile(io.BytesIO(data)).extractall(half)
        os.rename(half, home)
    except OSError as error:
        shutil.rmtree(half, ignore_errors=True)
        if not os.path.isdir(home): sys.exit("our code could not be stored in " + home + ": " + str(error))
sys.path.insert(0, home)
from habitus.sandbox.runtimes.remote import main
main()
"""


class SshRuntime:
    """Keeps scratchpads in `folder` on `host`. `options` are extra ssh arguments: a port, an identity, a jump host.

    Packages are cached in `environments` over there. The files of the local `given` folder are copied there before each
    cell unless they are there already.
    """

    def __init__(
        self,
        host: str,
        *,
        folder: str = "~/.habitus/pads",
        environments: str = "",
        options: Sequence[str] = (),
        python: str = "python3",
        uv: str | None = None,
        permissions: Permissions,
        limits: SandboxLimits,
        allow_weaker: bool = False,
        given: Path | None = None,
    ) -> None:
        # ssh would read such a name as an option.
        if host.startswith("-"):
            raise errors.Invalid(f"'{host}' is not the name of a host.")
        self._host = host
        self._given = SyncedFolder(given) if given else None
        self._bundle = _build_code_bundle()
        home = f"{folder}/.code/{hashlib.sha256(self._bundle).hexdigest()[:16]}"
        remote = shlex.join([python, "-I", "-c", _BOOT, home])
        self._command = ["ssh", *_OPTIONS, *options, "--", host, remote]
        self._order: Message = {
            "folder": folder,
            "environments": environments or f"{folder}/.environments",
            "uv": uv,
            "permissions": {**asdict(permissions), "read": [*map(str, permissions.read)]}
            | {"write": [*map(str, permissions.write)]},
            "limits": asdict(limits),
            "allow_weaker": allow_weaker,
            "owner": f"{platform.node()}-{os.getpid()}-{os.urandom(4).hex()}",
        }

    @classmethod
    def from_address(
        cls,
        address: str,
        below: str,
        *,
        permissions: Permissions,
        limits: SandboxLimits,
        allow_weaker: bool,
        given: Path | None = None,
    ) -> SshRuntime:
        """Create a runtime from an address like `ssh://ada@lab:2222/srv/habitus` (default folder: `~/.habitus`)."""
        parts = urlsplit(address)
        try:
            port, host = parts.port, parts.hostname or ""
        except ValueError:
            port, host = None, ""
        if parts.scheme != "ssh" or not host or parts.password or parts.query or parts.fragment:
            raise errors.Invalid(f"'{address}' is no address of a machine.", hint="Write ssh://user@host:port/folder.")
        folder = unquote(parts.path).rstrip("/").replace("/~/", "~/", 1) or "~/.habitus"
        return cls(
            f"{unquote(parts.username)}@{host}" if parts.username else host,
            folder=f"{folder}/{below}",
            environments=f"{folder}/cache/environments",
            options=["-p", str(port)] if port else [],
            permissions=permissions,
            limits=limits,
            allow_weaker=allow_weaker,
            given=given,
        )

    def find_path_of_given_files(self) -> str:
        """Return the path where remote code finds the given files.

        Blocks until the other machine answers, so don't call it on an event loop. Returns the usual path if it does
        not.
        """
        try:
            return str(asyncio.run(self._run_remote_request("given", "")))
        except HabitusError as error:
            log.info("Could not ask where files lie: %s", error)
            return GIVEN

    async def start_worker(self, name: str) -> SshWorker:
        """Connect and start the worker of a scratchpad."""
        connection, _ = await self._connect_and_send_request("start", check_scratchpad_name(name))
        return SshWorker(connection, self._given)

    async def install_scratchpad_packages(self, name: str, requirements: Sequence[str]) -> str:
        """Install packages for a scratchpad and return a sentence about the result."""
        return str(await self._run_remote_request("install", check_scratchpad_name(name), list(requirements)))

    async def delete_scratchpad(self, name: str) -> None:
        """Delete a scratchpad on the other machine."""
        await self._run_remote_request("remove", check_scratchpad_name(name))

    async def list_stored_scratchpad_names(self) -> list[str]:
        """Return the names of the scratchpads on the other machine."""
        found = await self._run_remote_request("names", "")
        return [str(name) for name in found] if isinstance(found, list) else []

    async def close(self) -> None:
        """Do nothing: every connection belongs to a worker and ends with it."""

    async def _run_remote_request(self, what: str, name: str, requirements: Sequence[str] = ()) -> object:
        connection, answer = await self._connect_and_send_request(what, name, requirements)
        await connection.hang_up()
        return answer

    async def _connect_and_send_request(
        self, what: str, name: str, requirements: Sequence[str] = ()
    ) -> tuple[_SshConnection, object]:
        """Connect, send our code and the order, and return the connection with the answer."""
        connection = await _start_ssh_process(self._command)
        order = {**self._order, "do": what, "name": name, "requirements": list(requirements)}
        try:
            async with asyncio.timeout(_ANSWER_S):
                # Whether ssh refused shows in the missing answer, with a better message.
                with contextlib.suppress(ConnectionError):
                    connection.to.write(len(self._bundle).to_bytes(4, "big") + self._bundle + pack(order))
                    await connection.to.drain()
                answer = await read_message(connection.back)
        except BaseException as error:
            words = await connection.hang_up()
            if isinstance(error, asyncio.IncompleteReadError):
                raise StorageFailed(f"Could not reach '{self._host}' by SSH: {words or 'no answer'}") from error
            if isinstance(error, TimeoutError):
                raise StorageFailed(f"'{self._host}' did not answer within {_ANSWER_S:g} s.") from error
            raise
        if "error" in answer:
            await connection.hang_up()
            raise _rebuild_error(answer["error"])
        return connection, answer.get("ok")


@dataclass(frozen=True, kw_only=True, slots=True)
class _SshConnection:
    """One ssh process with its two streams and its error output."""

    process: asyncio.subprocess.Process
    to: asyncio.StreamWriter
    back: asyncio.StreamReader
    noise: IO[bytes]

    async def hang_up(self) -> str:
        """Hang up, wait briefly for the far end to stop its worker, then kill ssh; return ssh's last error line."""
        try:
            async with asyncio.timeout(_CLOSE_S):
                with contextlib.suppress(ConnectionError):
                    self.to.close()
                    await self.to.wait_closed()
                while await self.back.read(1 << 16):
                    pass
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
        except BaseException:
            # Nobody waits for it any more, so neither ssh nor its error output may stay.
            self.process.kill()
            self.noise.close()
            raise
        if self.noise.closed:
            return ""
        with self.noise:
            self.noise.seek(0)
            lines = self.noise.read(64_000).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


async def _start_ssh_process(command: Sequence[str]) -> _SshConnection:
    pipe = asyncio.subprocess.PIPE
    with contextlib.ExitStack() as held:
        noise = held.enter_context(tempfile.TemporaryFile())
        try:
            process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=noise)
        except OSError as error:
            raise StorageFailed(f"Can't start 'ssh': {error.strerror}.", hint="Install an SSH client.") from error
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("a process that was given pipes has none")
        held.pop_all()  # from here on the connection owns and closes it
        return _SshConnection(process=process, to=process.stdin, back=process.stdout, noise=noise)


class SshWorker:
    """A worker on the other machine, reached through the SSH connection."""

    def __init__(self, connection: _SshConnection, given: SyncedFolder | None) -> None:
        self._line = connection
        self._given = given
        self._is_there: FileHashes | None = None  # the given files already there
        self._early: deque[Message] = deque()  # messages received while waiting for another answer
        self._captures: dict[str, OutputCapture | None] = {"out": None, "err": None}
        self._why = ""
        self._is_alive = True

    @property
    def is_alive(self) -> bool:
        return self._is_alive and self._line.process.returncode is None

    def redirect_output(self, out: OutputCapture | None, err: OutputCapture | None) -> None:
        self._captures = {"out": out, "err": err}
        if self.is_alive:
            self._line.to.write(pack({"listen": out.limit if out else None}))

    async def send(self, message: Message) -> None:
        await self._send_frame({"to": message})

    async def receive(self) -> Message:
        return self._early.popleft() if self._early else dict(await self._receive_frame("from"))

    async def update_given_files_and_report_failures(self) -> str:
        if self._given is None:
            return ""
        now = await asyncio.to_thread(self._given.compute_manifest)
        if now == self._is_there:
            return ""
        await self._send_frame({"give": now})
        for path in await self._receive_frame("missing"):
            # The file was deleted after it was listed.
            with contextlib.suppress(FileNotFoundError):
                await self._send_chunks(self._given.read_chunks(path))
            await self._send_frame({"data": None})
        lost: dict[str, str] = await self._receive_frame("lost")
        self._is_there = None if lost else now
        return "".join(f"{path} did not get to the other machine: {why}. " for path, why in lost.items()).strip()

    async def _send_chunks(self, chunks: Iterator[bytes]) -> None:
        while data := await asyncio.to_thread(next, chunks, b""):
            await self._send_frame({"data": base64.b64encode(data).decode()})

    async def copy_newly_made_files(self, place: Path) -> tuple[str, ...]:
        kept: list[str] = []
        if self.is_alive:
            with contextlib.suppress(ProcessGone):
                await self._send_frame({"keep": await asyncio.to_thread(compute_bytes_left_for_made_files, place)})
                while (name := await self._receive_frame("made")) is not None:
                    kept.append(await self._receive_made_file(str(name), place))
        return tuple(kept)

    async def _receive_made_file(self, name: str, place: Path) -> str:
        with await asyncio.to_thread(open_new_file_under_free_name, name, place) as copy:
            try:
                while (data := await self._receive_frame("data")) is not None:
                    await asyncio.to_thread(copy.write, base64.b64decode(data))
            except BaseException:
                # Half a file must not be taken for what the cell made.
                Path(copy.name).unlink(missing_ok=True)
                raise
        return copy.name

    async def _receive_frame(self, wanted: str) -> Any:
        """Return the next frame of a kind. Output frames before it are captured, messages queued."""
        while True:
            try:
                frame = await read_message(self._line.back)
            except (asyncio.IncompleteReadError, ConnectionError, ValueError) as error:
                self._is_alive = False
                raise ProcessGone("the connection was lost") from error
            if wanted in frame:
                return frame[wanted]
            if "from" in frame:
                self._early.append(dict(frame["from"]))
            elif "gone" in frame:
                self._why = str(frame["gone"])
                self._is_alive = False
                raise ProcessGone(self._why)
            else:
                self._capture_output(frame)

    def _capture_output(self, frame: Message) -> None:
        for name, capture in self._captures.items():
            if capture and name in frame:
                capture.feed(base64.b64decode(frame[name]))
            if capture and frame.get("skipped") == name:
                capture.add_skipped_character_count(int(frame["count"]))

    def deliver_printed_output(self) -> None:
        """Do nothing: the connection keeps output and messages in order."""

    async def interrupt(self) -> None:
        await self._send_frame({"interrupt": True})

    async def close(self) -> str:
        self._is_alive = False
        await self._line.hang_up()
        return self._why or "the connection was lost"

    async def _send_frame(self, frame: Message) -> None:
        try:
            self._line.to.write(pack(frame))
            await self._line.to.drain()
        except ConnectionError as error:
            self._is_alive = False
            raise ProcessGone("the connection was lost") from error


def _rebuild_error(told: Message) -> HabitusError:
    """Rebuild an error of the far end as if it had been raised here."""
    # Only our own user errors are rebuilt: the far end must not choose which class we create.
    kind = getattr(errors, str(told["kind"]), None)
    if isinstance(kind, type) and issubclass(kind, UserError):
        return kind(str(told["message"]), hint=str(told["hint"]))
    if told["kind"] == "ProcessGone":
        return ProcessGone(str(told["message"]))
    return errors.ToolFailed(str(told["message"]))


@functools.cache
def _build_code_bundle() -> bytes:
    """Return a reproducible zip of the code that runs there: our sandbox and the one library it uses."""
    package = Path(errors.__file__).parent
    beneath = [
        *(
            package / f"{name}.py"
            for name in ("errors", "events", "files", "locks", "operating_system", "optional_packages", "text")
        ),
        *(package / "redact").glob("*.py"),
    ]
    files = [*beneath, *(package / "sandbox").rglob("*.py")]
    entries = {f"habitus/{file.relative_to(package)}": file for file in files}
    library = Path(packaging.__file__).parent
    entries |= {f"packaging/{file.relative_to(library)}": file for file in library.rglob("*.py")}
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in sorted(entries.items()):
            # Fixed entry dates keep the hash, and so the remote folder, the same for the same code.
            archive.writestr(zipfile.ZipInfo(name), file.read_bytes(), zipfile.ZIP_DEFLATED)
        archive.writestr(zipfile.ZipInfo("habitus/__init__.py"), "")
    return held.getvalue()
