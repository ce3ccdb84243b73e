"""What a process does to lock itself in: limits, groups, namespaces, no privileges. Landlock and seccomp are next door.

Everything is done by the process itself before it runs a line it was given, and none of it can be undone.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import struct
import sys
import time
from collections.abc import Iterable, Mapping

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
ANY_NAMESPACE = 0x7E020000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
_MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
_MOUNT_SETATTR, _AT_RECURSIVE, _RDONLY = 442, 0x8000, 1

_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER = 1, 24, 36
PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4

libc = ctypes.CDLL(None, use_errno=True)
_IS_LINUX = sys.platform == "linux"  # elsewhere a person has said that code may run with next to nothing around it
if _IS_LINUX:
    libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
_with_lock = ctypes.PyDLL(None, use_errno=True)  # keeps the interpreter's lock, so that a fork has it too


def limit(limits: Mapping[str, int]) -> None:
    """Set each named limit (`as`, `nproc`, …), never above what the process already has."""
    for name, wanted in limits.items():
        which = getattr(resource, f"RLIMIT_{name.upper()}", None)
        if which is None:
            continue
        _, most = resource.getrlimit(which)
        value = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(which, (value, value))


def join_cgroups(fds: Iterable[int]) -> None:
    """Move this process into the groups whose `cgroup.procs` were opened for it outside."""
    for fd in fds:
        os.write(fd, b"0")
        os.close(fd)


def fork() -> int:
    """A fork of a process with one thread, without what Python does after one: that is to mend locks and thread lists
    which other threads may have left in any state, and costs more than the fork. Randomness has to be renewed by hand.
    """
    return check(_with_lock.fork(), "fork")


def unshare(flags: int) -> None:
    check(libc.unshare(flags), "unshare")


def set_namespace(fd: int, kind: int) -> None:
    check(libc.setns(fd, kind), "setns")


def mount(kind: str, target: str, flags: int, options: str = "") -> None:
    check(libc.mount(kind.encode(), os.fsencode(target), kind.encode(), flags, options.encode() or None), "mount")


def enter_user_namespace(flags: int) -> None:
    """A user namespace of our own, mapped to ourselves, with the other wanted namespaces inside it."""
    uid, gid = os.getuid(), os.getgid()
    unshare(CLONE_NEWUSER | flags)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")
    if flags & CLONE_NEWNS:
        mount("none", "/", MS_REC | MS_PRIVATE)


def read_only_but(writable: Iterable[str]) -> None:
    """Make every mount of this namespace read-only, apart from these folders."""
    for path in writable:
        target = os.fsencode(path)
        check(libc.mount(target, target, None, _MS_BIND | MS_REC, None), "mount")
    _set_mount("/", _RDONLY, 0)
    for path in writable:
        _set_mount(path, 0, _RDONLY)


def _set_mount(path: str, add: int, remove: int) -> None:
    attributes = struct.pack("=QQQQ", add, remove, 0, 0)
    outcome = libc.syscall(_MOUNT_SETATTR, -100, os.fsencode(path), _AT_RECURSIVE, attributes, len(attributes))
    check(outcome, "mount_setattr")


def die_with_parent() -> None:
    prctl(_PR_SET_PDEATHSIG, 9)


def adopt_orphans() -> None:
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_children(but: int = 0) -> None:
    """Kill all that descends from this process, which adopts what its children leave, until nothing is left."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        found = [pid for pid in descendants(os.getpid()) if pid != but]
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in found:
            # A grandchild becomes ours when its parent is gone.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if not found:
            return
    raise TimeoutError("some processes would not end")


def descendants(pid: int) -> list[int]:
    """All that a process started and what those started in turn, whichever of its threads did."""
    children = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                children += [int(child) for child in file.read().split()]
    return children + [below for child in children for below in descendants(child)]


def drop_privileges() -> None:
    """No capability now, none after an exec, and no set-user-id program helps."""
    if not _IS_LINUX:
        return
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    for capability in range(64):
        # Past the last capability the kernel knows, or without the right to drop: the set below is empty anyway.
        if libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break
    header = struct.pack("=Ii", 0x20080522, 0)
    check(libc.capset(header, struct.pack("=6I", 0, 0, 0, 0, 0, 0)), "capset")


def use_packages(venv: str, packages: str) -> None:
    """What Python does at its start in a virtual environment; here only after everything else is locked."""
    import site

    sys.prefix = sys.exec_prefix = venv
    sys.executable = f"{venv}/bin/python"
    site.PREFIXES[:] = [venv]
    site.addsitedir(packages)
    site.setquit()
    site.sethelper()


def loopback_up() -> None:
    """A fresh network namespace has a loopback that is down; tools may talk to themselves."""
    import fcntl
    from _socket import AF_INET, SOCK_DGRAM, socket  # without the enums, which take longer than the call

    line = socket(AF_INET, SOCK_DGRAM)
    fcntl.ioctl(line.fileno(), 0x8914, struct.pack("16sh", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: IFF_UP | IFF_RUNNING
    line.close()


def prctl(option: int, value: int, more: int = 0) -> None:
    if _IS_LINUX and libc.prctl(option, value, more, 0, 0) < 0:
        check(-1, f"prctl({option})")


def check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
