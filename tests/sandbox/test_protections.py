"""What the sandbox says about a machine, and that it refuses what it can't hold: each protection hidden in turn."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from habitus.errors import Invalid, Refused
from habitus.sandbox.fork_servers import ForkServerPool, SandboxedProgram
from habitus.sandbox.machine import (
    INSIDE,
    CgroupFolders,
    ControlGroup,
    MachineCapabilities,
    find_cgroup_folders,
    list_protection_statuses,
    probe_machine,
    require_protections,
)
from habitus.sandbox.model import Permissions

pytestmark = pytest.mark.req("SB-09")

GROUPS = CgroupFolders(version=2, memory=Path("/sys/fs/cgroup"), pids=Path("/sys/fs/cgroup"))
STRONG = MachineCapabilities(
    bubblewrap=Path("/usr/bin/bwrap"), has_namespaces=True, landlock_abi=7, has_seccomp=True, cgroups=GROUPS
)


def missing(machine: MachineCapabilities) -> dict[str, str]:
    """The missing protections and how to fix each."""
    return {
        protection.name: protection.hint for protection in list_protection_statuses(machine) if not protection.is_on
    }


def test_a_strong_machine_misses_nothing() -> None:
    assert missing(STRONG) == {}
    require_protections(STRONG, allow_weaker=False)


def test_required_are_files_network_and_limits() -> None:
    assert [protection.name for protection in list_protection_statuses(STRONG) if protection.required] == [
        "files",
        "network",
        "limits",
    ]


@pytest.mark.parametrize(
    ("weaker", "hint"),
    [
        (replace(STRONG, bubblewrap=None), "Install bubblewrap (Debian, Ubuntu: apt-get install bubblewrap)."),
        (
            replace(
                STRONG,
                bubblewrap=None,
                bubblewrap_error="bwrap: setting up uid map: Permission denied",
                userns_sysctl="kernel.apparmor_restrict_unprivileged_userns=1",
            ),
            "Allow user namespaces: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        (
            replace(
                STRONG,
                bubblewrap=None,
                bubblewrap_error="No permissions to create new namespace",
                userns_sysctl="kernel.unprivileged_userns_clone=0",
            ),
            "Allow user namespaces: sudo sysctl -w kernel.unprivileged_userns_clone=1",
        ),
        (
            replace(
                STRONG,
                bubblewrap=None,
                bubblewrap_error="Creating new namespace failed: No space left on device",
                userns_sysctl="user.max_user_namespaces=0",
            ),
            "Allow user namespaces: sudo sysctl -w user.max_user_namespaces=10000",
        ),
        (
            replace(STRONG, bubblewrap=None, bubblewrap_error="Operation not permitted", is_filtered=True),
            "This container filters system calls: start it with --security-opt seccomp=unconfined.",
        ),
        (
            replace(STRONG, bubblewrap=None, bubblewrap_error="bwrap: odd"),
            "bubblewrap does not work here (bwrap: odd).",
        ),
    ],
)
def test_without_bubblewrap_the_hint_says_why_and_the_weaker_sandbox_is_enough(
    weaker: MachineCapabilities, hint: str
) -> None:
    assert missing(weaker) == {"bubblewrap": hint}
    require_protections(weaker, allow_weaker=False)


def test_without_landlock_the_files_are_open_unless_bubblewrap_holds_them() -> None:
    assert list(missing(replace(STRONG, landlock_abi=0))) == ["Landlock"]
    bare = replace(STRONG, landlock_abi=2, bubblewrap=None)
    assert list(missing(bare)) == ["files", "bubblewrap", "Landlock"]
    with pytest.raises(Refused, match=r"no protection of files\. Install bubblewrap"):
        require_protections(bare, allow_weaker=False)
    require_protections(bare, allow_weaker=True)


def test_without_a_filter_the_network_is_open_unless_bubblewrap_holds_it() -> None:
    assert list(missing(replace(STRONG, has_seccomp=False))) == ["system calls"]
    with pytest.raises(Refused, match="no protection of network"):
        require_protections(replace(STRONG, has_seccomp=False, bubblewrap=None), allow_weaker=False)


def test_root_without_groups_has_no_limit_on_processes() -> None:
    require_protections(replace(STRONG, cgroups=None), allow_weaker=False)
    with pytest.raises(Refused, match=r"no protection of limits\. Run as an ordinary user\."):
        require_protections(replace(STRONG, cgroups=None, is_root=True), allow_weaker=False)


@pytest.mark.full
async def test_elsewhere_than_on_linux_untrusted_code_is_refused_unless_told(tmp_path: Path) -> None:
    mac = MachineCapabilities(system="Darwin")
    assert list(missing(mac)) == ["files", "network", "limits"]
    with pytest.raises(Refused, match="Use Linux, WSL 2 or a virtual machine, or the SSH runtime; or take the risk"):
        require_protections(mac, allow_weaker=False)
    async with ForkServerPool(mac, tmp_path / "run", allow_weaker=True) as warm:
        run = await warm.call_tool(SandboxedProgram(code="print('runs')"), None)
    assert run.stdout == "runs\n"


async def test_a_refusal_comes_before_anything_runs(tmp_path: Path) -> None:
    async with ForkServerPool(MachineCapabilities(system="Darwin"), tmp_path / "run") as warm:
        with pytest.raises(Refused):
            await warm.call_tool(SandboxedProgram(code="print(1)"), None)
    assert not (tmp_path / "run").exists()


@pytest.mark.full
async def test_told_to_it_runs_with_what_there_is(machine: MachineCapabilities, tmp_path: Path) -> None:
    bare = replace(machine, bubblewrap=None, has_namespaces=False, landlock_abi=0, has_seccomp=False, cgroups=None)
    async with ForkServerPool(bare, tmp_path / "run", allow_weaker=True) as warm:
        run = await warm.call_tool(SandboxedProgram(code="import os; print(len(os.environ) < 10)"), None)
    assert run.stdout == "True\n"


@pytest.mark.some(4)
@pytest.mark.parametrize("hidden", ["bubblewrap", "has_namespaces", "landlock_abi", "has_seccomp", "cgroups"])
async def test_each_protection_hidden_the_rest_still_runs_code(
    machine: MachineCapabilities, tmp_path: Path, hidden: str
) -> None:
    nothing: dict[str, object] = {
        "bubblewrap": None,
        "has_namespaces": False,
        "landlock_abi": 0,
        "has_seccomp": False,
        "cgroups": None,
    }
    weaker = replace(machine, **{hidden: nothing[hidden]})  # type: ignore[arg-type]  # one field of its own kind
    async with ForkServerPool(weaker, tmp_path / "run", allow_weaker=True) as warm:
        run = await warm.call_tool(SandboxedProgram(code="print('runs')"), None)
    assert run.stdout == "runs\n", run


def test_the_probe_finds_no_bubblewrap_on_an_empty_path(tmp_path: Path) -> None:
    found = probe_machine(search_path=str(tmp_path))
    assert found.bubblewrap is None
    assert found.bubblewrap_error == ""


def test_the_probe_says_what_a_broken_bubblewrap_says(tmp_path: Path) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    fake.chmod(0o755)
    found = probe_machine(search_path=str(tmp_path))
    assert (found.bubblewrap, found.bubblewrap_error) == (None, "bwrap: setting up uid map: Permission denied")


@pytest.mark.full
async def test_an_old_bubblewrap_is_helped_by_the_filter(machine: MachineCapabilities, tmp_path: Path) -> None:
    if machine.bubblewrap is None or not machine.has_seccomp:
        pytest.skip("needs bubblewrap and a system-call filter")
    old = tmp_path / "bwrap"
    old.write_text(
        "#!/bin/sh\nfor word; do\n"
        "  [ \"$word\" = --disable-userns ] && { echo 'bwrap: Unknown option --disable-userns' >&2; exit 1; }\n"
        f'done\nexec {machine.bubblewrap} "$@"\n'
    )
    old.chmod(0o755)
    found = probe_machine(search_path=str(tmp_path))
    assert (found.bubblewrap, found.bubblewrap_nests) == (old, True)
    async with ForkServerPool(found, tmp_path / "run") as warm:
        run = await warm.call_tool(
            SandboxedProgram(code="import ctypes; print(ctypes.CDLL(None).unshare(0x10000000))"), None
        )
    assert run.stdout == "-1\n"


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("kernel.apparmor_restrict_unprivileged_userns", "1"),
        ("kernel.unprivileged_userns_clone", "0"),
        ("user.max_user_namespaces", "0"),
    ],
)
def test_the_probe_reads_the_setting_that_forbids_namespaces(tmp_path: Path, setting: str, value: str) -> None:
    file = tmp_path / "sys" / setting.replace(".", "/", 1)
    file.parent.mkdir(parents=True)
    file.write_text(f"{value}\n")
    assert probe_machine(proc=tmp_path).userns_sysctl == f"{setting}={value}"


FILTERED = """
import sys
sys.path.insert(0, sys.argv[1])
from inside import seccomp
seccomp.install_filter(seccomp.compile_filter(families=[1, 2, 10, 16], shared_memory=True, shares_host=False))
sys.path[0] = sys.argv[2]
from habitus.sandbox.machine import list_protection_statuses, probe_machine
found = probe_machine()
print(found.bubblewrap, found.has_namespaces, found.is_filtered)
print({p.name: p.hint for p in list_protection_statuses(found) if not p.is_on}.get("bubblewrap"))
"""


@pytest.mark.full
def test_inside_a_filtering_container_it_says_so_and_falls_back(machine: MachineCapabilities) -> None:
    """The filter of our own sandbox refuses namespaces as a container's does."""
    if not machine.has_seccomp or machine.bubblewrap is None:
        pytest.skip("needs a system-call filter, and bubblewrap to take away")
    command = [sys.executable, "-c", FILTERED, str(INSIDE.parent), str(INSIDE.parents[2])]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))
    facts, hint = done.stdout.splitlines()
    assert facts == "None False True"
    assert hint == "This container filters system calls: start it with --security-opt seccomp=unconfined."


@pytest.mark.parametrize("path", ["/", "/proc", "/sys/kernel", "relative", "/no/such/path", "/dev"])
async def test_what_would_open_the_machine_can_not_be_granted(
    machine: MachineCapabilities, tmp_path: Path, path: str
) -> None:
    async with ForkServerPool(machine, tmp_path / "run", allow_weaker=True) as warm:
        for granted in (Permissions(read=(Path(path),)), Permissions(write=(Path(path),))):
            with pytest.raises(Invalid, match="Can't grant"):
                await warm.call_tool(SandboxedProgram(code="print(1)", permissions=granted), None)


def test_groups_of_the_second_version_are_found_where_both_bounds_are_delegated(tmp_path: Path) -> None:
    root, proc = tmp_path / "cgroup", tmp_path / "proc"
    own = root / "user.slice" / "app.scope"
    own.mkdir(parents=True)
    (proc / "self").mkdir(parents=True)
    (proc / "self/cgroup").write_text("0::/user.slice/app.scope\n")
    assert find_cgroup_folders(root=root, proc=proc) is None
    (own.parent / "cgroup.subtree_control").write_text("cpu memory pids\n")
    assert find_cgroup_folders(root=root, proc=proc) == CgroupFolders(
        version=2, memory=own.parent, pids=own.parent, processor=own.parent
    )


def test_a_group_bounds_and_is_removed(machine: MachineCapabilities) -> None:
    if machine.cgroups is None:
        pytest.skip("no groups can be made here")
    group = ControlGroup(machine.cgroups, "test", memory=1 << 28, processes=5)
    made = list(machine.cgroups.pids.glob(f"habitus-{os.getpid()}-test"))
    assert [(folder / "pids.max").read_text() for folder in made] == ["5\n"]
    group.close()
    assert not any(folder.exists() for folder in made)


def test_the_list_reads_well(machine: MachineCapabilities) -> None:
    for protection in list_protection_statuses(machine):
        assert protection.is_on != bool(protection.hint)
        assert protection.why


def test_the_list_says_which_limits_are_looser_here() -> None:
    def why(given: MachineCapabilities) -> tuple[str, str]:
        found = {protection.name: protection.why for protection in list_protection_statuses(given)}
        return found["limits"], found["room on disk"]

    processor = CgroupFolders(version=2, memory=Path("/x"), pids=Path("/x"), processor=Path("/x"))
    strong = replace(STRONG, cgroups=processor)
    assert why(strong)[0] == "control groups and rlimits"
    assert "a scratchpad's is checked twice a second" in why(strong)[1]
    assert "as processes report it" in why(replace(strong, cgroups=replace(processor, processor=None)))[0]
    weak = why(replace(strong, bubblewrap=None, has_namespaces=False, cgroups=None))
    assert "memory counts for each process" in weak[0]
    assert weak[1].startswith("checked twice a second, at the end of a call")
