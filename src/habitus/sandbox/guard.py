"""Guard of a sandboxed process: the limits that no kernel keeps for us, looked at again and again.

A folder on disk has no bound, and processor time has none as long as a process may live; so a process that outgrows
its folder, or works on between cells, is ended when it is found out.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from habitus.sandbox.child import Child
from habitus.sandbox.inside import confine, folders
from habitus.sandbox.model import MIB, Limits

_LOOK_EVERY_S = 0.5
_TICKS = os.sysconf("SC_CLK_TCK")


class Guard:
    """Looks while it is started. `verdict` is why it ended the process; nothing as long as it did not."""

    def __init__(self, child: Child, folder: Path, limits: Limits) -> None:
        self.verdict = ""
        self._child = child
        self._folder = folder
        self._limits = limits
        self._task: asyncio.Task[None] | None = None
        self._look_now = asyncio.Event()
        self._rests_since: float | None = None  # processor time when the last cell ended
        self._seen: object = None

    def start(self) -> None:
        self._task = self._task or asyncio.create_task(self._watch())

    def stop(self) -> None:
        if self._task:
            self._task.cancel()
            self._task = None

    def work(self) -> None:
        """A cell runs from now on."""
        self._rests_since = None

    def rest(self) -> None:
        """No cell runs from now on."""
        self._rests_since, self._seen = processor_s(self._child), None
        self._look_now.set()

    async def _watch(self) -> None:
        pause = _LOOK_EVERY_S
        while not self.verdict:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._look_now.wait(), pause)
            self._look_now.clear()
            began = time.monotonic()
            try:
                self.verdict = await asyncio.to_thread(self._objection)
            except ValueError:
                self.verdict = "what it uses up could not be found out"
            pause = max(_LOOK_EVERY_S, 20 * (time.monotonic() - began))
        self._child.end()

    def _objection(self) -> str:
        since, used = self._rests_since, processor_s(self._child)
        if since is not None and used - since > self._limits.idle_cpu_s:
            return f"it used more than {self._limits.idle_cpu_s} s of processor time between cells"
        sign = _sign_of_life(self._child)
        if since is not None and sign == self._seen:
            return ""  # who did nothing wrote nothing
        self._seen = sign
        if size_of(self._folder, _processes(self._child), self._limits.file_size) > self._limits.folder_size:
            return f"its folder grew beyond {self._limits.folder_size // MIB} MiB"
        return ""


def processor_s(child: Child) -> float:
    """Seconds of processor time that the process and all it started have used; without a group, as far as their parents
    waited for them."""
    used = child.group.processor_s() if child.group else None
    return sum(map(_used_by, _processes(child))) if used is None else used


def _sign_of_life(child: Child) -> object:
    """Another one whenever any of its processes has run, however shortly."""
    if child.group and (used := child.group.processor_s()) is not None:
        return used
    tasks = [task for process in _processes(child) for task in _list_folder(Path("/proc", str(process), "task"))]
    ran = {task.name: "".join(_lines(task / "schedstat")) for task in tasks}
    does_count = all(line and not line.startswith("0 ") for line in ran.values())
    return ran if does_count else time.monotonic()


def size_of(folder: Path, processes: Iterable[int], largest: int) -> int:
    """The size of a folder on disk, with the files that lie in no folder any more but are held by a process.

    Where the size of one can't be found out, it counts as the `largest` it can be.
    """
    try:
        total, device = folders.size_of(str(folder)), folder.stat().st_dev
    except OSError:
        return 0
    held: dict[tuple[int, int], int] = {}
    for process in processes:
        for file, room in _held_files(process, device):
            held.setdefault(file, largest if room is None else room)
    return total + sum(held.values())


def _held_files(process: int, device: int) -> Iterator[tuple[tuple[int, int], int | None]]:
    """The unlinked files that a process keeps: open, mapped, or on their way through a socket. With what each takes."""
    proc = Path("/proc", str(process))
    for link in _list_folder(proc / "fd"):
        with contextlib.suppress(OSError):
            found = link.stat()
            if stat.S_ISREG(found.st_mode) and not found.st_nlink and found.st_dev == device:
                yield (device, found.st_ino), folders.room_of(found)
            elif stat.S_ISSOCK(found.st_mode):
                count = _in_flight(proc / "fdinfo" / link.name)
                yield from (((-found.st_ino, number), None) for number in range(count))
    for span, file in _deleted_mappings(proc / "maps", device):
        room = None
        with contextlib.suppress(OSError):  # only root may ask
            room = folders.room_of((proc / "map_files" / span).stat())
        yield (device, file), room


def _in_flight(file: Path) -> int:
    """How many descriptors wait in a socket to be received."""
    return sum(int(line.split()[1]) for line in _lines(file) if line.startswith("scm_fds:"))


def _deleted_mappings(file: Path, device: int) -> Iterator[tuple[str, int]]:
    for line in _lines(file):
        if line.endswith("(deleted)"):
            span, _, _, place, number, _ = line.split(None, 5)
            major, minor = (int(part, 16) for part in place.split(":"))
            if os.makedev(major, minor) == device:
                yield "-".join(f"{int(end, 16):x}" for end in span.split("-")), int(number)


def _processes(child: Child) -> list[int]:
    return child.group.members() if child.group else [child.process.pid, *confine.descendants(child.process.pid)]


def _used_by(process: int) -> float:
    for line in _lines(Path("/proc", str(process), "stat")):
        return sum(map(int, line.rpartition(")")[2].split()[11:15])) / _TICKS
    return 0.0


def _list_folder(folder: Path) -> list[Path]:
    """The entries of a folder of a process, which may be gone."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _lines(file: Path) -> list[str]:
    """Split where the kernel does and nowhere else: names that code chose may hold other separators."""
    try:
        return file.read_bytes().decode(errors="replace").split("\n")
    except OSError:
        return []
