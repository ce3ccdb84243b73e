"""Polls a sandboxed process for the limits that the kernel does not enforce.

A folder on disk has no size limit and a long-lived process no limit on CPU time, so a process that outgrows its folder,
or keeps working between cells, is ended when the guard notices it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from habitus.sandbox.child import SandboxProcess
from habitus.sandbox.inside import confine, folders
from habitus.sandbox.model import MIB, SandboxLimits

_LOOK_EVERY_S = 0.5


class ResourceGuard:
    """Polls a process while started. `verdict` is the reason why it ended the process, or empty."""

    def __init__(self, child: SandboxProcess, folder: Path, limits: SandboxLimits) -> None:
        self.verdict = ""
        self._child = child
        self._folder = folder
        self._limits = limits
        self._task: asyncio.Task[None] | None = None
        self._look_now = asyncio.Event()
        self._rests_since: float | None = None  # CPU seconds when the last cell ended
        self._seen: object = None

    def start(self) -> None:
        """Start polling."""
        self._task = self._task or asyncio.create_task(self._poll_and_end_process_over_limit())

    def stop(self) -> None:
        """Stop polling."""
        if self._task:
            self._task.cancel()
            self._task = None

    def on_cell_started(self) -> None:
        """Note that a cell has started."""
        self._rests_since = None

    def on_cell_finished(self) -> None:
        """Note that a cell has ended: from now on CPU time counts as idle time."""
        self._rests_since, self._seen = measure_cpu_seconds(self._child), None
        self._look_now.set()

    async def _poll_and_end_process_over_limit(self) -> None:
        pause = _LOOK_EVERY_S
        while not self.verdict:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._look_now.wait(), pause)
            self._look_now.clear()
            began = time.monotonic()
            try:
                self.verdict = await asyncio.to_thread(self._find_exceeded_limit)
            except ValueError:
                self.verdict = "its resource use could not be measured"
            # A huge folder takes long to measure: polling must not use more than a twentieth of a core.
            pause = max(_LOOK_EVERY_S, 20 * (time.monotonic() - began))
        self._child.begin_termination()

    def _find_exceeded_limit(self) -> str:
        since, used = self._rests_since, measure_cpu_seconds(self._child)
        if since is not None and used - since > self._limits.idle_cpu_s:
            return f"it used more than {self._limits.idle_cpu_s} s of processor time between cells"
        sign = _get_activity_marker(self._child)
        if since is not None and sign == self._seen:
            # A process that did not run wrote nothing, so the folder need not be measured.
            return ""
        self._seen = sign
        if (
            measure_folder_size(self._folder, _list_process_ids(self._child), self._limits.file_size)
            > self._limits.folder_size
        ):
            return f"its folder grew beyond {self._limits.folder_size // MIB} MiB"
        return ""


def measure_cpu_seconds(child: SandboxProcess) -> float:
    """Return the CPU seconds used by the process and its descendants.

    Without a control group, this misses children that ended without being waited for.
    """
    used = child.group.read_cpu_seconds() if child.group else None
    return sum(map(_read_process_cpu_seconds, _list_process_ids(child))) if used is None else used


def _get_activity_marker(child: SandboxProcess) -> object:
    """Return a value that changes whenever any of its processes has run, however briefly."""
    if child.group and (used := child.group.read_cpu_seconds()) is not None:
        return used
    tasks = [
        task for process in _list_process_ids(child) for task in _list_proc_folder(Path("/proc", str(process), "task"))
    ]
    ran = {task.name: "".join(_read_proc_lines(task / "schedstat")) for task in tasks}
    # Kernels without scheduler statistics report zero; then every poll counts as activity.
    does_count = all(line and not line.startswith("0 ") for line in ran.values())
    return ran if does_count else time.monotonic()


def measure_folder_size(folder: Path, processes: Iterable[int], largest: int) -> int:
    """Return the size of a folder on disk, including unlinked files that a process still holds.

    A file whose size can't be determined counts as `largest`.
    """
    try:
        total, device = folders.measure_folder_disk_space(str(folder)), folder.stat().st_dev
    except OSError:
        return 0
    held: dict[tuple[int, int], int] = {}
    for process in processes:
        for file, room in _list_unlinked_files(process, device):
            held.setdefault(file, largest if room is None else room)
    return total + sum(held.values())


def _list_unlinked_files(process: int, device: int) -> Iterator[tuple[tuple[int, int], int | None]]:
    """Yield the unlinked files that a process keeps open, mapped, or in flight through a socket, with their sizes."""
    proc = Path("/proc", str(process))
    for link in _list_proc_folder(proc / "fd"):
        with contextlib.suppress(OSError):
            found = link.stat()
            if stat.S_ISREG(found.st_mode) and not found.st_nlink and found.st_dev == device:
                yield (device, found.st_ino), folders.measure_entry_disk_space(found)
            elif stat.S_ISSOCK(found.st_mode):
                count = _count_in_flight_descriptors(proc / "fdinfo" / link.name)
                # Negative, to tell a socket from a file with the same inode.
                yield from (((-found.st_ino, number), None) for number in range(count))
    for span, file in _list_mapped_deleted_files(proc / "maps", device):
        room = None
        # Only root may read this link.
        with contextlib.suppress(OSError):
            room = folders.measure_entry_disk_space((proc / "map_files" / span).stat())
        yield (device, file), room


def _count_in_flight_descriptors(file: Path) -> int:
    """Count the descriptors that wait in a socket to be received."""
    return sum(int(line.split()[1]) for line in _read_proc_lines(file) if line.startswith("scm_fds:"))


def _list_mapped_deleted_files(file: Path, device: int) -> Iterator[tuple[str, int]]:
    for line in _read_proc_lines(file):
        if line.endswith("(deleted)"):
            span, _, _, place, number, _ = line.split(None, 5)
            major, minor = (int(part, 16) for part in place.split(":"))
            if sys.platform == "win32":
                raise NotImplementedError
            if os.makedev(major, minor) == device:
                yield "-".join(f"{int(end, 16):x}" for end in span.split("-")), int(number)


def _list_process_ids(child: SandboxProcess) -> list[int]:
    return (
        child.group.list_member_process_ids()
        if child.group
        else [child.process.pid, *confine.list_descendant_process_ids(child.process.pid)]
    )


def _read_process_cpu_seconds(process: int) -> float:
    for line in _read_proc_lines(Path("/proc", str(process), "stat")):
        if sys.platform == "win32":
            raise NotImplementedError
        # Fields 14 to 17: user and system time of the process and of the children it waited for.
        return sum(map(int, line.rpartition(")")[2].split()[11:15])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _list_proc_folder(folder: Path) -> list[Path]:
    """Return the entries of a folder under /proc, or none if its process has ended."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _read_proc_lines(file: Path) -> list[str]:
    """Return the lines of a file, split only at newlines: names chosen by code may hold other separators."""
    try:
        return file.read_bytes().decode(errors="replace").split("\n")
    except OSError:
        return []
