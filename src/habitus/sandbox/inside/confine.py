"""The steps by which a process confines itself: limits, control groups, namespaces, no privileges.

The process takes them before it runs any untrusted code, and none can be undone. Landlock and seccomp have their own
modules.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
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

# Windows, where none of this runs, has another library and no name for that of the process.
_C_LIBRARY = None if os.name == "posix" else "msvcrt"
libc = ctypes.CDLL(_C_LIBRARY, use_errno=True)
# Elsewhere a person has accepted that code runs almost unprotected.
_IS_LINUX = sys.platform == "linux"
if _IS_LINUX:
    libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
# PyDLL keeps the interpreter's lock during the call, so a forked child holds it too.
_with_lock = ctypes.PyDLL(_C_LIBRARY, use_errno=True)


def set_rlimits(limits: Mapping[str, int]) -> None:
    """Set each named rlimit (`as`, `nproc`, …), never above the current hard limit."""
    import resource

    for name, wanted in limits.items():
        which = getattr(resource, f"RLIMIT_{name.upper()}", None)
        if which is None:
            continue
        if sys.platform == "win32":
            raise NotImplementedError
        _, most = resource.getrlimit(which)
        value = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(which, (value, value))


def join_cgroups(fds: Iterable[int]) -> None:
    """Move this process into the control groups whose `cgroup.procs` files are open at these descriptors."""
    for fd in fds:
        os.write(fd, b"0")
        os.close(fd)


def fork_process() -> int:
    """Fork a single-threaded process without the work Python usually does after a fork.

    That work resets locks and thread lists for other threads and costs more than the fork itself. The caller must
    reseed random generators.
    """
    return check_libc_result(_with_lock.fork(), "fork")


def unshare(flags: int) -> None:
    """Move this process into new namespaces."""
    check_libc_result(libc.unshare(flags), "unshare")


def enter_namespace(fd: int, kind: int) -> None:
    """Move this process into the namespace behind a descriptor."""
    check_libc_result(libc.setns(fd, kind), "setns")


def mount(kind: str, target: str, flags: int, options: str = "") -> None:
    """Mount a file system."""
    check_libc_result(
        libc.mount(kind.encode(), os.fsencode(target), kind.encode(), flags, options.encode() or None), "mount"
    )


def enter_user_namespace(flags: int) -> None:
    """Enter a new user namespace that maps only ourselves, with the other namespaces of `flags` inside it."""
    if sys.platform == "win32":
        raise NotImplementedError
    uid, gid = os.getuid(), os.getgid()
    unshare(CLONE_NEWUSER | flags)
    # The kernel lets an unprivileged process write gid_map only after setgroups is denied.
    _write_file("/proc/self/setgroups", "deny")
    _write_file("/proc/self/uid_map", f"{uid} {uid} 1")
    _write_file("/proc/self/gid_map", f"{gid} {gid} 1")
    if flags & CLONE_NEWNS:
        mount("none", "/", MS_REC | MS_PRIVATE)


def make_mounts_read_only(writable: Iterable[str]) -> None:
    """Make every mount of this namespace read-only except these folders."""
    for path in writable:
        target = os.fsencode(path)
        # Only a mount point can have its own flags, so each writable folder is first bound onto itself.
        check_libc_result(libc.mount(target, target, None, _MS_BIND | MS_REC, None), "mount")
    _set_mount_attributes("/", _RDONLY, 0)
    for path in writable:
        _set_mount_attributes(path, 0, _RDONLY)


def _set_mount_attributes(path: str, add: int, remove: int) -> None:
    attributes = struct.pack("=QQQQ", add, remove, 0, 0)
    outcome = libc.syscall(_MOUNT_SETATTR, -100, os.fsencode(path), _AT_RECURSIVE, attributes, len(attributes))
    check_libc_result(outcome, "mount_setattr")


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    prctl(_PR_SET_PDEATHSIG, 9)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def kill_descendants(but: int = 0) -> None:
    """Kill all descendants, including adopted ones, until none is left."""
    # A process that forks faster than we kill would otherwise keep us here forever.
    if sys.platform == "win32":
        raise NotImplementedError
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        found = [pid for pid in list_descendant_process_ids(os.getpid()) if pid != but]
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


def list_descendant_process_ids(pid: int) -> list[int]:
    """Return the ids of all descendants, whichever thread started them."""
    children = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                children += [int(child) for child in file.read().split()]
    return children + [below for child in children for below in list_descendant_process_ids(child)]


def drop_privileges() -> None:
    """Give up all capabilities, also after an exec, and the effect of set-user-id programs."""
    if not _IS_LINUX:
        return
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    for capability in range(64):
        # Past the last capability the kernel knows, or without the right to drop: the set below is empty anyway.
        if libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break
    header = struct.pack("=Ii", 0x20080522, 0)
    check_libc_result(libc.capset(header, struct.pack("=6I", 0, 0, 0, 0, 0, 0)), "capset")


def activate_virtual_environment(venv: str, packages: str) -> None:
    """Activate a virtual environment as Python does at startup, but only after confinement."""
    import site

    sys.prefix = sys.exec_prefix = venv
    sys.executable = f"{venv}/bin/python"
    site.PREFIXES[:] = [venv]
    site.addsitedir(packages)
    site.setquit()
    site.sethelper()


def bring_loopback_up() -> None:
    """Bring up the loopback of a new network namespace, which tools need to talk to themselves."""
    import fcntl

    # Importing `socket` builds its enums, which takes longer than this call.
    from _socket import AF_INET, SOCK_DGRAM, socket

    if sys.platform == "win32":
        raise NotImplementedError
    line = socket(AF_INET, SOCK_DGRAM)
    fcntl.ioctl(line.fileno(), 0x8914, struct.pack("16sh", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: IFF_UP | IFF_RUNNING
    line.close()


def prctl(option: int, value: int, more: int = 0) -> None:
    """Call prctl and raise `OSError` if it fails; do nothing except on Linux."""
    if _IS_LINUX and libc.prctl(option, value, more, 0, 0) < 0:
        check_libc_result(-1, f"prctl({option})")


def check_libc_result(result: int, what: str) -> int:
    """Return the result of a libc call, or raise `OSError` with its errno if it is negative."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def _write_file(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
