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
    "x86_64": {"read": 0, "mmap": 9, "kill": 62, "openat": 257, "getrandom": 318, "close_range": 436, "execve": 59},
    "aarch64": {
        "read": 63,
        "mmap": 222,
        "kill": 129,
        "openat": 56,
        "getrandom": 278,
        "close_range": 436,
        "execve": 221,
    },
}
DANGEROUS = {
    "x86_64": {
        "ptrace": 101, "mount": 165, "unshare": 272, "setns": 308, "bpf": 321, "keyctl": 250, "io_uring": 425,
        "personality": 135, "modify_ldt": 154, "memfd_secret": 447,
    },
    "aarch64": {
        "ptrace": 117, "mount": 40, "unshare": 97, "setns": 268, "bpf": 280, "keyctl": 219, "io_uring": 425,
        "personality": 92, "memfd_secret": 447,
    },
}  # fmt: skip
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
    assert [name for name, number in DANGEROUS[machine].items() if verdict(machine, number) == ALLOW] == []


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
