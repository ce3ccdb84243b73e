"""The system-call filter, read as the kernel reads it: also for the processor that this machine does not have."""

from __future__ import annotations

import errno

import pytest

from habitus.sandbox.inside import seccomp

ALLOW, KILL = 0x7FFF0000, 0x80000000
ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
NEW_USER, ORDINARY_FORK = 0x10000000, 0x01200011
# As in the kernel's tables: harmless calls that must go through, and dangerous ones that must not.
HARMLESS = {
    "x86_64": {
        "read": 0, "mmap": 9, "ioctl": 16, "select": 23, "fork": 57, "vfork": 58, "execve": 59, "kill": 62,
        "getdents64": 217, "arch_prctl": 158, "futex": 202, "openat": 257, "newfstatat": 262, "prlimit64": 302,
        "getrandom": 318, "copy_file_range": 326, "statx": 332, "rseq": 334, "close_range": 436, "futex_waitv": 449,
    },
    "aarch64": {
        "getcwd": 17, "epoll_pwait": 22, "ioctl": 29, "openat": 56, "getdents64": 61, "read": 63, "pselect6": 72,
        "newfstatat": 79, "futex": 98, "kill": 129, "mmap": 222, "execve": 221, "prlimit64": 261, "getrandom": 278,
        "copy_file_range": 285, "statx": 291, "rseq": 293, "close_range": 436, "futex_waitv": 449,
    },
}  # fmt: skip
DANGEROUS = {
    "x86_64": {
        "ptrace": 101, "syslog": 103, "personality": 135, "modify_ldt": 154, "pivot_root": 155, "adjtimex": 159,
        "chroot": 161, "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167, "reboot": 169,
        "sethostname": 170, "iopl": 172, "ioperm": 173, "init_module": 175, "quotactl": 179, "clock_settime": 227,
        "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250, "migrate_pages": 256, "unshare": 272,
        "vmsplice": 278, "move_pages": 279, "perf_event_open": 298, "fanotify_init": 300, "name_to_handle_at": 303,
        "open_by_handle_at": 304, "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312,
        "finit_module": 313, "seccomp": 317, "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323,
        "shmget": 29, "semget": 64, "msgget": 68, "mq_open": 240, "io_setup": 206,
    },
    "aarch64": {
        "ptrace": 117, "syslog": 116, "personality": 92, "pivot_root": 41, "adjtimex": 171, "chroot": 51, "acct": 89,
        "settimeofday": 170, "mount": 40, "umount2": 39, "swapon": 224, "reboot": 142, "sethostname": 161,
        "init_module": 105, "quotactl": 60, "clock_settime": 112, "kexec_load": 104, "add_key": 217,
        "request_key": 218, "keyctl": 219, "migrate_pages": 238, "unshare": 97, "vmsplice": 75, "move_pages": 239,
        "perf_event_open": 241, "fanotify_init": 262, "name_to_handle_at": 264, "open_by_handle_at": 265,
        "setns": 268, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "finit_module": 273,
        "seccomp": 277, "kexec_file_load": 294, "bpf": 280, "userfaultfd": 282,
        "shmget": 194, "semget": 190, "msgget": 186, "mq_open": 180, "io_setup": 0,
    },
}  # fmt: skip
NEW_AND_DANGEROUS = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "clone3": 435, "pidfd_getfd": 438,
    "process_madvise": 440, "mount_setattr": 442, "memfd_secret": 447, "statmount": 457,
}  # fmt: skip
# Numbers that no call has had when the list was written.
FREE = {"x86_64": [*range(335, 424)], "aarch64": [*range(244, 260), *range(295, 424)]}
SOCKET = {"x86_64": 41, "aarch64": 198}
CLONE = {"x86_64": 56, "aarch64": 220}
PRCTL = {"x86_64": 157, "aarch64": 167}
CHMOD = {"x86_64": 268, "aarch64": 53}
PRLIMIT = {"x86_64": 302, "aarch64": 261}

pytestmark = [pytest.mark.req("SB-09"), pytest.mark.parametrize("machine", ["x86_64", "aarch64"])]


def verdict(machine: str, number: int, argument: int = 0, *, architecture: int = 0, **options: bool) -> int:
    """Run the filter on one call."""
    given = {"shared_memory": True, "shares_host": False, **options}
    program = seccomp._assemble_filter(machine, [1, 2, 10, 16], **given)
    loaded = {0: number, 4: architecture or ARCHITECTURE[machine], 16: argument}
    held, at = 0, 0
    while True:
        code, if_true, if_false, value = program[at]
        match code:
            case 0x20:
                held = loaded[value]
            case 0x06:
                return value
            case _:
                holds = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[code]
                at += if_true if holds else if_false
        at += 1


def test_what_python_needs_goes_through(machine: str) -> None:
    assert {name: verdict(machine, number) for name, number in HARMLESS[machine].items()} == dict.fromkeys(
        HARMLESS[machine], ALLOW
    )


def test_what_is_dangerous_does_not(machine: str) -> None:
    calls = {**DANGEROUS[machine], **NEW_AND_DANGEROUS}
    assert [name for name, number in calls.items() if verdict(machine, number) == ALLOW] == []


def test_what_nobody_has_judged_is_refused(machine: str) -> None:
    assert {verdict(machine, number) for number in FREE[machine]} == {0x00050000 | errno.EPERM}


def test_calls_that_are_newer_than_the_list_do_not_exist(machine: str) -> None:
    mseal, no_such_call = 462, 0x00050000 | errno.ENOSYS
    assert verdict(machine, mseal) == ALLOW
    assert {verdict(machine, number) for number in (mseal + 1, 466, 470, 5_000, 0x3FFFFFFF)} == {no_such_call}


def test_forks_are_fine_and_namespaces_are_not(machine: str) -> None:
    assert verdict(machine, CLONE[machine], ORDINARY_FORK) == ALLOW
    assert verdict(machine, CLONE[machine], NEW_USER) != ALLOW
    assert verdict(machine, 435) != ALLOW


def test_nobody_hides_what_it_holds_open(machine: str) -> None:
    set_dumpable, set_name = 4, 15
    assert verdict(machine, PRCTL[machine], set_dumpable) != ALLOW
    assert verdict(machine, PRCTL[machine], set_name) == ALLOW


def test_only_the_usual_sockets_open(machine: str) -> None:
    assert [family for family in range(64) if verdict(machine, SOCKET[machine], family) == ALLOW] == [1, 2, 10, 16]


def test_another_architecture_is_the_end(machine: str) -> None:
    assert verdict(machine, 0, architecture=0x40000003) == KILL
    assert verdict(machine, 0x40000000 + HARMLESS[machine]["read"]) != ALLOW


def test_who_shares_the_host_may_not_touch_its_files_and_processes(machine: str) -> None:
    assert verdict(machine, CHMOD[machine]) == ALLOW
    assert verdict(machine, CHMOD[machine], shares_host=True) != ALLOW
    assert verdict(machine, PRLIMIT[machine], 0, shares_host=True) == ALLOW
    assert verdict(machine, PRLIMIT[machine], 4711, shares_host=True) != ALLOW
