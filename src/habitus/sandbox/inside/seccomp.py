"""The system-call filter: refuses calls that no Python tool needs and that attacks on the kernel start from."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Sequence

from .confine import ANY_NAMESPACE, PR_SET_NO_NEW_PRIVS, prctl

_PR_SET_SECCOMP = 22

_CALLS: dict[str, dict[str, int]] = {
    "x86_64": {
        "ptrace": 101, "syslog": 103, "pivot_root": 155, "adjtimex": 159, "chroot": 161, "acct": 163,
        "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169,
        "sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173, "init_module": 175,
        "delete_module": 176, "quotactl": 179, "clock_settime": 227, "kexec_load": 246, "add_key": 248,
        "request_key": 249, "keyctl": 250, "unshare": 272, "perf_event_open": 298, "name_to_handle_at": 303,
        "open_by_handle_at": 304, "clock_adjtime": 305, "setns": 308, "process_vm_readv": 310,
        "process_vm_writev": 311, "kcmp": 312, "finit_module": 313, "kexec_file_load": 320, "bpf": 321,
        "userfaultfd": 323, "personality": 135, "modify_ldt": 154, "prctl": 157, "socket": 41, "clone": 56,
        "memfd_create": 319, "shmget": 29,
    },
    "aarch64": {
        "ptrace": 117, "syslog": 116, "pivot_root": 41, "adjtimex": 171, "chroot": 51, "acct": 89,
        "settimeofday": 170, "mount": 40, "umount2": 39, "swapon": 224, "swapoff": 225, "reboot": 142,
        "sethostname": 161, "setdomainname": 162, "init_module": 105, "delete_module": 106, "quotactl": 60,
        "clock_settime": 112, "kexec_load": 104, "add_key": 217, "request_key": 218, "keyctl": 219,
        "unshare": 97, "perf_event_open": 241, "name_to_handle_at": 264, "open_by_handle_at": 265,
        "clock_adjtime": 266, "setns": 268, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272,
        "finit_module": 273, "kexec_file_load": 294, "bpf": 280, "userfaultfd": 282, "personality": 92,
        "prctl": 167, "socket": 198, "clone": 220, "memfd_create": 279, "shmget": 194,
    },
}  # fmt: skip
_SAME_EVERYWHERE = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "pidfd_getfd": 438, "mount_setattr": 442,
    "memfd_secret": 447,
}  # fmt: skip
_FILE_METADATA = {
    "x86_64": (90, 91, 92, 93, 94, 132, 188, 189, 190, 197, 198, 199, 235, 260, 261, 268, 280, 452),
    "aarch64": (5, 6, 7, 14, 15, 16, 52, 53, 54, 55, 88, 452),
}
# Priority, scheduling, memory placement: these calls take a process id, which may be another user's.
_OTHER_PROCESSES = {
    "x86_64": (141, 142, 144, 203, 251, 256, 279, 314, 440),
    "aarch64": (30, 118, 119, 122, 140, 238, 239, 274, 440),
}
_LIMITS_OF = {"x86_64": 302, "aarch64": 261}
_CLONE3 = 435
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# The newest call that the list was written for (`mseal` of Linux 6.10). Later kernels add calls that nobody has judged.
_NEWEST_KNOWN = 462
_FILTERED_OTHERWISE = ("prctl", "socket", "clone", "memfd_create", "shmget")
_PR_SET_DUMPABLE = 4

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_KILL, _UNKNOWN = 0x80000000, 0x00050000 | errno.ENOSYS
_ALLOWED = [(_RETURN, 0, 0, 0x7FFF0000)]
_DENIED = [(_RETURN, 0, 0, 0x00050000 | errno.EPERM)]
# As on an older kernel, so libraries fall back to what they used before.
_UNSUPPORTED = [(_RETURN, 0, 0, _UNKNOWN)]
# The x32 interface is a second way into the kernel on x86_64.
_X32 = 0x40000000


def knows_this_processor() -> bool:
    """Whether the filter supports this processor."""
    return os.uname().machine in _CALLS and struct.calcsize("P") == 8


def compile_filter(*, families: Sequence[int], shared_memory: bool, shares_host: bool) -> ctypes.Array[ctypes.c_char]:
    """Compile the filter to the kernel's format.

    `families` are the socket families that may be opened (pairs always can). `shared_memory` allows memory that no
    limit of a single process counts. With `shares_host`, changing modes, owners, times or priorities is refused,
    because Landlock does not control those.
    """
    program = _assemble_filter(os.uname().machine, families, shared_memory=shared_memory, shares_host=shares_host)
    return ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in program), 8 * len(program))


def install_filter(code: ctypes.Array[ctypes.c_char]) -> None:
    """Install a compiled filter for good, for this process and all it starts."""
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(code)))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(_PR_SET_SECCOMP, 2, ctypes.addressof(header))


def _assemble_filter(
    machine: str, families: Sequence[int], *, shared_memory: bool, shares_host: bool
) -> list[tuple[int, int, int, int]]:
    calls = _CALLS[machine]
    verdicts = {number: _DENIED for name, number in calls.items() if name not in _FILTERED_OTHERWISE}
    verdicts |= dict.fromkeys(_SAME_EVERYWHERE.values(), _DENIED)
    verdicts[calls["clone"]] = [(_LOAD, 0, 0, 16), (_ANY_BIT, 0, 1, ANY_NAMESPACE), *_DENIED, *_ALLOWED]
    # A process that is not dumpable hides its open files from the guard that measures them.
    verdicts[calls["prctl"]] = [(_LOAD, 0, 0, 16), (_EQUAL, 0, 1, _PR_SET_DUMPABLE), *_DENIED, *_ALLOWED]
    verdicts[calls["socket"]] = [(_LOAD, 0, 0, 16), *_allow_values(families)]
    # The flags of clone3 lie behind a pointer that a filter can't read; libc falls back to clone.
    verdicts[_CLONE3] = _UNSUPPORTED
    if not shared_memory:
        verdicts |= dict.fromkeys((calls["memfd_create"], calls["shmget"]), _DENIED)
    if shares_host:
        verdicts |= dict.fromkeys((*_FILE_METADATA[machine], *_OTHER_PROCESSES[machine]), _DENIED)
        verdicts[_LIMITS_OF[machine]] = [(_LOAD, 0, 0, 16), *_allow_values([0])]
    starts = {0: _ALLOWED, _NEWEST_KNOWN + 1: _UNSUPPORTED, _X32: _DENIED}
    for number in sorted(verdicts):
        starts[number] = verdicts[number]
        starts[number + 1] = verdicts.get(number + 1, _ALLOWED)
    # Neighbouring ranges with the same verdict become one, which keeps the program short.
    ranges = [(number, starts[number]) for number in sorted(starts)]
    ranges = [(n, verdict) for i, (n, verdict) in enumerate(ranges) if not i or verdict is not ranges[i - 1][1]]
    known = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, _AUDIT_ARCH[machine]), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    return [*known, *_build_binary_search(ranges)]


def _allow_values(values: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """Allow the call if the loaded value is among these."""
    return [*((_EQUAL, len(values) - i, 0, value) for i, value in enumerate(values)), *_DENIED, *_ALLOWED]


def _build_binary_search(
    starts: Sequence[tuple[int, list[tuple[int, int, int, int]]]],
) -> list[tuple[int, int, int, int]]:
    """Build a binary search over ranges of call numbers: the kernel runs the filter for every call."""
    if len(starts) == 1:
        return starts[0][1]
    middle = len(starts) // 2
    low, high = _build_binary_search(starts[:middle]), _build_binary_search(starts[middle:])
    return [(_AT_LEAST, len(low), 0, starts[middle][0]), *low, *high]
