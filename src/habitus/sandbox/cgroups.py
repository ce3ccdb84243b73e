"""Control groups: bounds on memory and processes, and a count of processor time, for a whole tree of processes.

Both hierarchies are spoken: version 2 (one tree) and version 1 (one tree per controller).
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path

_NAME = re.compile(r"habitus-(\d+)-\w+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cgroups:
    """Where groups can be made: one folder for version 2, one for each controller for version 1."""

    version: int
    memory: Path
    pids: Path
    processor: Path | None = None  # counts only; without it, what processes say of themselves has to do


class Group:
    """One group with its bounds; processes join by writing to the files `procs` opens. Closing removes it."""

    def __init__(self, where: Cgroups, name: str, *, memory: int, processes: int) -> None:
        self._version = where.version
        label = f"habitus-{os.getpid()}-{name}"
        self._memory, self._pids = where.memory / label, where.pids / label
        self._processor = where.processor / label if where.processor else None
        self._folders = list(dict.fromkeys(filter(None, (self._memory, self._processor, self._pids))))
        for folder in self._folders:
            _sweep(folder.parent)
            folder.mkdir()
        if where.version == 2:
            _set(self._memory / "memory.swap.max", 0)
            _set(self._memory / "memory.max", memory)
        else:
            _set(self._memory / "memory.limit_in_bytes", memory)
            _set(self._memory / "memory.memsw.limit_in_bytes", memory)
        _set(self._pids / "pids.max", processes)

    def open(self) -> list[int]:
        """Descriptors through which a process moves itself in; the caller closes its copies."""
        return [os.open(folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC) for folder in self._folders]

    def members(self) -> list[int]:
        return [int(process) for process in _read(self._pids / "cgroup.procs").split()]

    def memory_kills(self) -> int:
        """How often the kernel ended a process of the group because it was full."""
        file = "memory.events" if self._version == 2 else "memory.oom_control"
        found = re.search(r"^oom_kill (\d+)", _read(self._memory / file), re.MULTILINE)
        return int(found[1]) if found else 0

    def processor_s(self) -> float | None:
        """The processor time that all its processes have used; nothing where nobody counts it."""
        if self._processor is None:
            return None
        if self._version == 1:
            return int(_read(self._processor / "cpuacct.usage") or 0) / 1e9
        found = re.search(r"^usage_usec (\d+)", _read(self._processor / "cpu.stat"), re.MULTILINE)
        return int(found[1]) / 1e6 if found else None

    def close(self) -> bool:
        """End what is still in the group, then the group; whether it is gone. A dying process keeps it a moment."""
        for member in self.members():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(member, signal.SIGKILL)
        for folder in self._folders:
            with contextlib.suppress(OSError):
                folder.rmdir()
        return not any(folder.exists() for folder in self._folders)


def find_cgroups(*, root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc")) -> Cgroups | None:
    """The nearest place above this process where groups with both bounds can be made, if any."""
    own = _own_paths(proc)
    if "memory" in own and "pids" in own:
        memory = _makeable(root / "memory" / own["memory"])
        pids = _makeable(root / "pids" / own["pids"])
        processor = _makeable(root / "cpuacct" / own["cpuacct"]) if "cpuacct" in own else None
        return Cgroups(version=1, memory=memory, pids=pids, processor=processor) if memory and pids else None
    if "" not in own:
        return None
    folder = root / own[""]
    for place in [folder, *folder.parents]:
        if {"memory", "pids"} <= set(_read(place / "cgroup.subtree_control").split()) and _makeable(place):
            return Cgroups(version=2, memory=place, pids=place, processor=place)
        if place == root:
            break
    return None


def _own_paths(proc: Path) -> dict[str, str]:
    """Controller → path of our own group, from lines like `4:memory:/a/b` or `0::/a/b`."""
    paths = {}
    for line in _read(proc / "self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path.lstrip("/")
    return paths


def _makeable(folder: Path) -> Path | None:
    trial = folder / f"habitus-{os.getpid()}-trial"
    try:
        trial.mkdir()
        trial.rmdir()
    except OSError:
        return None
    return folder


def _sweep(folder: Path) -> None:
    """Remove groups whose owner is gone: a killed host can't tidy up after itself."""
    for left in folder.glob("habitus-*"):
        owner = _NAME.fullmatch(left.name)
        if owner and not Path(f"/proc/{owner[1]}").exists():
            with contextlib.suppress(OSError):
                left.rmdir()


def _set(file: Path, value: int) -> None:
    # Swap accounting is a kernel option: a bound that has no file is left out.
    if file.exists():
        file.write_text(str(value))


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
