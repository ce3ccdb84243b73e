"""What protects us from code on this machine, what is missing, how to mend it, and when to refuse."""

from __future__ import annotations

import platform
from collections.abc import Iterable

from habitus.errors import Refused
from habitus.sandbox.machine import Machine
from habitus.sandbox.model import Protection


def require(machine: Machine, *, allow_weaker: bool) -> None:
    """Refuse to run code that nobody vouched for where files, network or limits are not protected.

    Told to, what there is is enough, even where that is next to nothing: `describe` says what is then open.
    """
    missing = [protection for protection in describe(machine) if protection.required and not protection.is_on]
    if missing and not allow_weaker:
        names = ", ".join(protection.name for protection in missing)
        mends = " ".join(dict.fromkeys(protection.mend for protection in missing))
        raise Refused(f"This machine can't hold untrusted code: no protection of {names}.", mend=mends)


def describe(machine: Machine) -> tuple[Protection, ...]:
    """Every protection, on or missing, with what gives it or how to get it."""
    if not machine.is_linux:
        return tuple(_elsewhere(machine.system))
    return tuple(_on_linux(machine))


def _on_linux(machine: Machine) -> Iterable[Protection]:
    wrapped = machine.bubblewrap is not None
    mend = _bubblewrap_mend(machine)
    has_files = wrapped or machine.landlock_abi >= 3
    has_limits = machine.cgroups is not None or not machine.is_root
    groups_mend = "Let this user make groups with the memory and pids controllers under /sys/fs/cgroup."
    yield _protection("files", has_files, True, "bubblewrap" if wrapped else "Landlock", mend)
    has_network = wrapped or machine.has_seccomp
    how = "own network namespace" if wrapped else "no sockets"
    yield _protection("network", has_network, True, how, mend)
    yield _protection("limits", has_limits, True, _limits(machine), f"Run as an ordinary user. Or: {groups_mend}")
    yield _protection("room on disk", True, False, _room(machine), "")
    yield _protection("bubblewrap", wrapped, False, "own view of files, network, processes, users", mend)
    has_processes = wrapped or machine.has_namespaces or machine.landlock_abi >= 6
    yield _protection("other processes", has_processes, False, "not seen or not signalled", mend)
    yield _protection("groups", machine.cgroups is not None, False, "one bound for all its processes", groups_mend)
    belt = "Use Linux 6.2 or newer with Landlock in the kernel's `lsm=` list."
    yield _protection("Landlock", machine.landlock_abi >= 3, False, f"second belt, ABI {machine.landlock_abi}", belt)
    processor = f"No system-call filter is written for {platform.machine()}."
    yield _protection("system calls", machine.has_seccomp, False, "dangerous ones are refused", processor)
    yield _protection("privileges", True, False, "no capability, no set-user-id", "")
    yield _protection("environment", True, False, "nothing of the host's", "")


def _limits(machine: Machine) -> str:
    """What bounds memory, processes and time, and what is bounded less well than with groups."""
    if not machine.cgroups:
        return "rlimits; memory counts for each process, idle time of scratchpads as processes report it"
    counted = "" if machine.cgroups.processor else "; idle time of scratchpads as processes report it"
    return f"control groups and rlimits{counted}"


def _room(machine: Machine) -> str:
    """No kernel bounds a folder on disk for us: where it is not a mount in memory, it is looked at."""
    if machine.bubblewrap or machine.has_namespaces:
        return "a call's is bounded; a scratchpad's is looked at twice a second, between cells too"
    return "looked at twice a second, at the end of a call, and between cells"


def _elsewhere(system: str) -> Iterable[Protection]:
    mend = "Use Linux or a virtual machine, or the SSH runtime; or take the risk: set allow_weaker_sandbox."
    for name in ("files", "network", "limits"):
        yield Protection(name=name, is_on=False, required=True, why=f"{system} gives no sandbox we can use", mend=mend)
    yield _protection("environment", True, False, "nothing of the host's", "")


def _protection(name: str, is_on: bool, required: bool, how: str, mend: str) -> Protection:
    why = how if is_on else mend
    return Protection(name=name, is_on=is_on, required=required, why=why, mend="" if is_on else mend)


def _bubblewrap_mend(machine: Machine) -> str:
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
