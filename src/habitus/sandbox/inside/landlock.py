"""Landlock: the kernel limits the files, signals and sockets a process can reach, whatever the mounts."""

from __future__ import annotations

import errno
import os
import struct
import sys
from collections.abc import Sequence

from .confine import PR_SET_NO_NEW_PRIVS, check_libc_result, libc, prctl

# Constants and system-call numbers of the kernel's interface: libc has no wrappers for Landlock.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_IOCTL_DEV = 1 << 15
_FILE_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
_ON_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | (1 << 14) | _IOCTL_DEV


def get_abi_version() -> int:
    """Return the version of Landlock in this kernel, or 0 if it has none."""
    return max(0, int(libc.syscall(444, None, 0, 1)))


def restrict_process_to_paths(*, read: Sequence[str], write: Sequence[str], may_connect: bool) -> None:
    """Restrict this process to these files for good."""
    version = get_abi_version()
    if version < 1:
        raise OSError(errno.ENOSYS, "this kernel has no Landlock")
    # A right that this kernel does not know would make the call fail.
    rights = _FILE_RIGHTS[min(version, 5)]
    network = 0 if may_connect or version < 4 else 3
    scoped = 3 if version >= 6 else 0
    attributes = struct.pack("=QQQ", rights, network, scoped)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = check_libc_result(libc.syscall(444, attributes, len(attributes), 0), "landlock_create_ruleset")
    for path in read:
        _add_rule(ruleset, path, rights & (_EXECUTE | _READ_FILE | _READ_DIR))
    for path in write:
        _add_rule(ruleset, path, rights)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    check_libc_result(libc.syscall(446, ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)


def _add_rule(ruleset: int, path: str, rights: int) -> None:
    if sys.platform != "linux":
        raise NotImplementedError
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        # A granted path that does not exist can't be reached anyway.
        return
    if not os.path.isdir(path):
        rights &= _ON_A_FILE
    try:
        rule = struct.pack("=Qi", rights, fd)
        check_libc_result(libc.syscall(445, ruleset, 1, rule, 0), "landlock_add_rule")
    finally:
        os.close(fd)
