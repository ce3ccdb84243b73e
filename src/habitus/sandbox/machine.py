"""Probes which protections this machine offers for sandboxing, and manages control groups.

Control groups limit memory and process count, and measure CPU time, for a whole process tree.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from habitus import operating_system
from habitus.errors import Refused
from habitus.sandbox.model import ProtectionMeasureStatus

INSIDE = Path(__file__).with_name("inside")
_BOOT = "import sys; sys.path.insert(0, sys.argv.pop(1)); from inside.{script} import main; main()"
_TRIAL = (
    "import sys; sys.path.insert(0, sys.argv[1]); from inside import confine as c; "
    "c.enter_user_namespace(c.CLONE_NEWNS | c.CLONE_NEWNET | c.CLONE_NEWPID | c.CLONE_NEWIPC | c.CLONE_NEWUTS)"
)
_FACTS = (
    "import sys; sys.path.insert(0, sys.argv[1]); from inside import landlock, seccomp; "
    "print(landlock.get_abi_version(), int(seccomp.knows_this_processor()))"
)
# The options that the sandbox needs from bubblewrap, tried with an empty program.
_BUBBLEWRAP_TRIAL = (
    "--unshare-all", "--unshare-user", "--new-session", "--die-with-parent", "--cap-drop", "ALL",
    "--cap-add", "CAP_SYS_ADMIN", "--ro-bind", "/", "/", "--proc", "/proc", "--remount-ro", "/proc",
    "--size", "4096", "--perms", "1777", "--tmpfs", "/tmp",
)  # fmt: skip
NO_NESTING = "--disable-userns"


@dataclass(frozen=True, kw_only=True, slots=True)
class CgroupFolders:
    """The folders in which control groups can be created: one for version 2, one per controller for version 1."""

    version: int
    memory: Path
    pids: Path
    # Only measures; without it the processes' own accounting has to do.
    processor: Path | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineCapabilities:
    """The facts that decide how code is confined. Tests remove one with `replace` and run with the rest."""

    system: str = "Linux"
    is_root: bool = False
    bubblewrap: Path | None = None
    bubblewrap_error: str = ""
    # An old bubblewrap can't disable nested user namespaces; the system-call filter does it instead.
    bubblewrap_nests: bool = False
    has_namespaces: bool = False  # without bubblewrap
    landlock_abi: int = 0
    has_seccomp: bool = False
    cgroups: CgroupFolders | None = None
    userns_sysctl: str = ""  # the kernel setting that forbids user namespaces, e.g. "user.max_user_namespaces=0"
    is_filtered: bool = False  # our system calls are already filtered, usually by a container

    @property
    def can_run_without_protection(self) -> bool:
        """Whether code runs without protection, if that is allowed: Windows lacks what the worker needs."""
        return self.system != "Windows"

    @property
    def is_linux(self) -> bool:
        return self.system == "Linux"


def probe_machine(*, search_path: str | None = None, proc: Path = Path("/proc")) -> MachineCapabilities:
    """Try each protection on this machine. `search_path` is where to look for bubblewrap (PATH by default)."""
    return _probe_machine_cached(os.environ.get("PATH", os.defpath) if search_path is None else search_path, proc)


@functools.cache
def _probe_machine_cached(search_path: str, proc: Path) -> MachineCapabilities:
    system = platform.system()
    if system != "Linux":
        return MachineCapabilities(system=system, is_root=operating_system.is_superuser())
    found = shutil.which("bwrap", path=search_path)
    landlock_abi, has_seccomp = _probe_landlock_and_seccomp()
    nests, error = _probe_bubblewrap_nesting_and_error(found, has_seccomp) if found else (False, "")
    return MachineCapabilities(
        system=system,
        is_root=operating_system.is_superuser(),
        bubblewrap=Path(found) if found and not error else None,
        bubblewrap_error=error,
        bubblewrap_nests=nests,
        has_namespaces=not _run_command_and_return_failure_reason(build_isolated_python_command(_TRIAL)),
        landlock_abi=landlock_abi,
        has_seccomp=has_seccomp,
        cgroups=find_cgroup_folders(proc=proc),
        userns_sysctl=_find_blocking_sysctl(proc),
        is_filtered="Seccomp:\t2" in _read_file_or_empty(proc / "self/status"),
    )


def _probe_bubblewrap_nesting_and_error(program: str, has_seccomp: bool) -> tuple[bool, str]:
    """Return whether nested user namespaces must be blocked by our filter, and why bubblewrap fails, or ""."""
    error = _run_command_and_return_failure_reason(
        [program, NO_NESTING, *_BUBBLEWRAP_TRIAL, *build_isolated_python_command("")]
    )
    if NO_NESTING in error and has_seccomp:
        return True, _run_command_and_return_failure_reason(
            [program, *_BUBBLEWRAP_TRIAL, *build_isolated_python_command("")]
        )
    return False, error


def get_base_python() -> str:
    """Return the real interpreter behind this one: a shim would start slower."""
    return os.path.realpath(sys.executable)


def build_isolated_python_command(code: str) -> list[str]:
    """Return the command that runs a snippet in an isolated Python, with the package folder as its argument."""
    return [get_base_python(), "-I", "-S", "-c", code, str(INSIDE.parent)]


def build_inside_script_command(python: str, script: str) -> list[str]:
    """Return the command that runs one of the scripts in `inside/`."""
    return [python, "-I", "-S", "-c", _BOOT.format(script=script), str(INSIDE.parent)]


def _run_command_and_return_failure_reason(command: list[str]) -> str:
    """Run a command and return why it fails, or ""."""
    try:
        done = subprocess.run(command, env={}, stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"


def _probe_landlock_and_seccomp() -> tuple[int, bool]:
    done = subprocess.run(build_isolated_python_command(_FACTS), env={}, capture_output=True, timeout=20, check=False)
    words = done.stdout.split()
    return (int(words[0]), words[1] == b"1") if len(words) == 2 else (0, False)


def _find_blocking_sysctl(proc: Path) -> str:
    for name, bad in [
        ("kernel.apparmor_restrict_unprivileged_userns", "1"),
        ("kernel.unprivileged_userns_clone", "0"),
        ("user.max_user_namespaces", "0"),
    ]:
        if _read_file_or_empty(proc / "sys" / name.replace(".", "/", 1)).strip() == bad:
            return f"{name}={bad}"
    return ""


def _read_file_or_empty(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


def require_protections(machine: MachineCapabilities, *, allow_weaker: bool) -> None:
    """Raise `Refused` if files, network or limits are unprotected, unless `allow_weaker` accepts that."""
    missing = [
        protection for protection in list_protection_statuses(machine) if protection.required and not protection.is_on
    ]
    if missing and not (allow_weaker and machine.can_run_without_protection):
        names = ", ".join(protection.name for protection in missing)
        hints = " ".join(dict.fromkeys(protection.hint for protection in missing))
        raise Refused(f"This machine can't hold untrusted code: no protection of {names}.", hint=hints)


def list_protection_statuses(machine: MachineCapabilities) -> tuple[ProtectionMeasureStatus, ...]:
    """Return every protection, with what provides it or how to get it."""
    if not machine.is_linux:
        return tuple(_list_protection_statuses_without_linux(machine.system))
    return tuple(_list_linux_protection_statuses(machine))


def _list_linux_protection_statuses(machine: MachineCapabilities) -> Iterable[ProtectionMeasureStatus]:
    wrapped = machine.bubblewrap is not None
    hint = _build_bubblewrap_hint(machine)
    has_files = wrapped or machine.landlock_abi >= 3
    has_limits = machine.cgroups is not None or not machine.is_root
    groups_hint = "Let this user make groups with the memory and pids controllers under /sys/fs/cgroup."
    yield _build_protection_status("files", has_files, True, "bubblewrap" if wrapped else "Landlock", hint)
    has_network = wrapped or machine.has_seccomp
    how = "own network namespace" if wrapped else "no sockets"
    yield _build_protection_status("network", has_network, True, how, hint)
    yield _build_protection_status(
        "limits", has_limits, True, _describe_limits(machine), f"Run as an ordinary user. Or: {groups_hint}"
    )
    yield _build_protection_status("room on disk", True, False, _describe_disk_limit(machine), "")
    yield _build_protection_status("bubblewrap", wrapped, False, "own view of files, network, processes, users", hint)
    has_processes = wrapped or machine.has_namespaces or machine.landlock_abi >= 6
    yield _build_protection_status("other processes", has_processes, False, "not seen or not signalled", hint)
    yield _build_protection_status(
        "groups", machine.cgroups is not None, False, "one bound for all its processes", groups_hint
    )
    belt = "Use Linux 6.2 or newer with Landlock in the kernel's `lsm=` list."
    yield _build_protection_status(
        "Landlock", machine.landlock_abi >= 3, False, f"second belt, ABI {machine.landlock_abi}", belt
    )
    processor = f"No system-call filter is written for {platform.machine()}."
    yield _build_protection_status(
        "system calls", machine.has_seccomp, False, "only those on a list are allowed", processor
    )
    yield _build_protection_status("privileges", True, False, "no capability, no set-user-id", "")
    yield _build_protection_status("environment", True, False, "nothing of the host's", "")


def _describe_limits(machine: MachineCapabilities) -> str:
    """Describe how memory, processes and time are limited, and which limits are weaker without control groups."""
    if not machine.cgroups:
        return "rlimits; memory counts for each process, idle time of scratchpads as processes report it"
    counted = "" if machine.cgroups.processor else "; idle time of scratchpads as processes report it"
    return f"control groups and rlimits{counted}"


def _describe_disk_limit(machine: MachineCapabilities) -> str:
    """Describe how the size of folders is limited; without a mount in memory, it is polled."""
    if machine.bubblewrap or machine.has_namespaces:
        return "a call's is bounded; a scratchpad's is checked twice a second, between cells too"
    return "checked twice a second, at the end of a call, and between cells"


def _list_protection_statuses_without_linux(system: str) -> Iterable[ProtectionMeasureStatus]:
    hint = "Use Linux, WSL 2 or a virtual machine, or the SSH runtime"
    hint += "." if system == "Windows" else "; or take the risk: set allow_weaker_sandbox."
    for name in ("files", "network", "limits"):
        yield ProtectionMeasureStatus(
            name=name, is_on=False, required=True, why=f"{system} gives no sandbox we can use", hint=hint
        )
    yield _build_protection_status("environment", True, False, "nothing of the host's", "")


def _build_protection_status(name: str, is_on: bool, required: bool, how: str, hint: str) -> ProtectionMeasureStatus:
    why = how if is_on else hint
    return ProtectionMeasureStatus(name=name, is_on=is_on, required=required, why=why, hint="" if is_on else hint)


def _build_bubblewrap_hint(machine: MachineCapabilities) -> str:
    if not machine.bubblewrap_error and not machine.bubblewrap:
        return "Install bubblewrap (Debian, Ubuntu: apt-get install bubblewrap)."
    setting, _, _ = machine.userns_sysctl.partition("=")
    if setting == "user.max_user_namespaces":
        return "Allow user namespaces: sudo sysctl -w user.max_user_namespaces=10000"
    if setting:
        good = "0" if "apparmor" in setting else "1"
        return f"Allow user namespaces: sudo sysctl -w {setting}={good}"
    if machine.is_filtered:
        return "This container filters system calls: start it with --security-opt seccomp=unconfined."
    return f"bubblewrap does not work here ({machine.bubblewrap_error})."


_NAME = re.compile(r"habitus-(\d+)-\w+")


class ControlGroup:
    """A control group with its limits.

    Processes join through the descriptors from `open_group_joining_descriptors`; `close` removes it.
    """

    def __init__(self, where: CgroupFolders, name: str, *, memory: int, processes: int) -> None:
        self._version = where.version
        label = f"habitus-{os.getpid()}-{name}"
        self._memory, self._pids = where.memory / label, where.pids / label
        self._processor = where.processor / label if where.processor else None
        self._folders = list(dict.fromkeys(filter(None, (self._memory, self._processor, self._pids))))
        for folder in self._folders:
            _remove_stale_groups(folder.parent)
            folder.mkdir()
        if where.version == 2:
            # Otherwise code over its memory limit would swap instead of being stopped.
            _write_limit_file(self._memory / "memory.swap.max", 0)
            _write_limit_file(self._memory / "memory.max", memory)
        else:
            _write_limit_file(self._memory / "memory.limit_in_bytes", memory)
            _write_limit_file(self._memory / "memory.memsw.limit_in_bytes", memory)
        _write_limit_file(self._pids / "pids.max", processes)

    def open_group_joining_descriptors(self) -> list[int]:
        """Return descriptors through which a process moves itself into the group; the caller closes them."""
        return [os.open(folder / "cgroup.procs", os.O_WRONLY | operating_system.O_PLAIN) for folder in self._folders]

    def list_member_process_ids(self) -> list[int]:
        """Return the ids of the processes in the group."""
        return [int(process) for process in _read_file_or_empty(self._pids / "cgroup.procs").split()]

    def count_memory_kills(self) -> int:
        """Return how often the kernel killed a process of the group for lack of memory."""
        file = "memory.events" if self._version == 2 else "memory.oom_control"
        found = re.search(r"^oom_kill (\d+)", _read_file_or_empty(self._memory / file), re.MULTILINE)
        return int(found[1]) if found else 0

    def read_cpu_seconds(self) -> float | None:
        """Return the CPU seconds used by all its processes, or None if they are not measured."""
        if self._processor is None:
            return None
        if self._version == 1:
            return int(_read_file_or_empty(self._processor / "cpuacct.usage") or 0) / 1e9
        found = re.search(r"^usage_usec (\d+)", _read_file_or_empty(self._processor / "cpu.stat"), re.MULTILINE)
        return int(found[1]) / 1e6 if found else None

    def close(self) -> bool:
        """Kill the remaining processes and remove the group. False if a dying process still holds it; retry later."""
        if sys.platform == "win32":
            raise NotImplementedError
        for member in self.list_member_process_ids():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(member, signal.SIGKILL)
        for folder in self._folders:
            with contextlib.suppress(OSError):
                # A cgroup can only be removed once its last process is gone.
                folder.rmdir()
        return not any(folder.exists() for folder in self._folders)


def find_cgroup_folders(*, root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc")) -> CgroupFolders | None:
    """Return the nearest place above this process where limited groups can be created, or None."""
    own = _read_own_cgroups(proc)
    if "memory" in own and "pids" in own:
        memory = _return_folder_if_groups_creatable(root / "memory" / own["memory"])
        pids = _return_folder_if_groups_creatable(root / "pids" / own["pids"])
        processor = _return_folder_if_groups_creatable(root / "cpuacct" / own["cpuacct"]) if "cpuacct" in own else None
        return CgroupFolders(version=1, memory=memory, pids=pids, processor=processor) if memory and pids else None
    if "" not in own:
        return None
    folder = root / own[""]
    for place in [folder, *folder.parents]:
        if {"memory", "pids"} <= set(
            _read_file_or_empty(place / "cgroup.subtree_control").split()
        ) and _return_folder_if_groups_creatable(place):
            return CgroupFolders(version=2, memory=place, pids=place, processor=place)
        if place == root:
            break
    return None


def _read_own_cgroups(proc: Path) -> dict[str, str]:
    """Map each controller to our own group, from lines like `4:memory:/a/b` or `0::/a/b`."""
    paths = {}
    for line in _read_file_or_empty(proc / "self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path.lstrip("/")
    return paths


def _return_folder_if_groups_creatable(folder: Path) -> Path | None:
    trial = folder / f"habitus-{os.getpid()}-trial"
    try:
        trial.mkdir()
        trial.rmdir()
    except OSError:
        return None
    return folder


def _remove_stale_groups(folder: Path) -> None:
    """Remove groups whose owner has ended: a killed host can't clean up after itself."""
    for left in folder.glob("habitus-*"):
        owner = _NAME.fullmatch(left.name)
        if owner and not Path(f"/proc/{owner[1]}").exists():
            with contextlib.suppress(OSError):
                left.rmdir()


def _write_limit_file(file: Path, value: int) -> None:
    # Swap accounting is a kernel option: a bound that has no file is left out.
    if file.exists():
        file.write_text(str(value))
