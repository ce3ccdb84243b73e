"""Files that a session gives to its code: there, current, read-only, private, and bounded."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from habitus.errors import Invalid
from habitus.files import MAX_READ_BYTES, TreeFile, build_tree_file
from habitus.sandbox.files import MOST_FILES, GivenFolder
from habitus.sandbox.fork_servers import ForkServerPool, SandboxedProgram
from habitus.sandbox.isolation import get_given_folder_path_inside
from habitus.sandbox.machine import MachineCapabilities, get_base_python
from habitus.sandbox.model import MIB, Permissions, SandboxLimits
from habitus.sandbox.runtimes.local import LocalRuntime
from habitus.sandbox.scratchpads import SessionScratchpads
from habitus.sandbox.venvs import EnvironmentCache, VenvBuilder

pytestmark = pytest.mark.req("SK-23")

TREE = {
    "SKILL.md": build_tree_file(b"Fill a form."),
    "references/fields.md": build_tree_file(b"name, street"),
    "scripts/fill.py": build_tree_file(b"import sys\nprint('filled', sys.argv[1:])\n", executable=True),
}
ATTACK = """
import os
outcomes = []
for attempt in (
    lambda: open(there + '/SKILL.md', 'w'),
    lambda: open(there + '/new', 'w'),
    lambda: os.unlink(there + '/SKILL.md'),
    lambda: os.rename(there, there + '2'),
    lambda: os.mkdir(there + '/sub'),
    lambda: os.truncate(there + '/SKILL.md', 0),
):
    try: attempt(); outcomes.append('done')
    except OSError: outcomes.append('refused')
print(*outcomes)
"""


@pytest.fixture(params=["bubblewrap", "namespaces", "Landlock"])
def strength(request: pytest.FixtureRequest, machine: MachineCapabilities) -> MachineCapabilities:
    """The sandboxes this machine can give, each of which keeps files read-only."""
    if request.param == "bubblewrap":
        if machine.bubblewrap is None:
            pytest.skip("bubblewrap is missing or does not work here")
        return machine
    if machine.landlock_abi < 3:
        pytest.skip("this kernel has no Landlock that would do alone")
    if request.param == "namespaces" and not machine.has_namespaces:
        pytest.skip("this machine allows no namespaces")
    return replace(machine, bubblewrap=None, has_namespaces=request.param == "namespaces")


@pytest.fixture
def given(strength: MachineCapabilities, pads_folder: Path) -> GivenFolder:
    folder = pads_folder / ".given"
    return GivenFolder(folder, find_visible_path=lambda: get_given_folder_path_inside(strength, folder))


@pytest.fixture
async def pads(
    strength: MachineCapabilities, pads_folder: Path, given: GivenFolder
) -> AsyncIterator[SessionScratchpads]:
    runtime = LocalRuntime(
        strength,
        pads_folder,
        EnvironmentCache(pads_folder.with_name("environments"), VenvBuilder(os.environ, python=get_base_python())),
        permissions=Permissions(),
        limits=SandboxLimits(cpu_s=None, memory=512 * MIB),
        allow_weaker=True,
        given=given.folder,
    )
    made = SessionScratchpads(runtime)
    yield made
    await made.close()


async def test_what_is_given_later_is_there_at_once_runs_and_cannot_be_changed(
    pads: SessionScratchpads, given: GivenFolder
) -> None:
    began = await pads.execute_code("one", "import os, subprocess, sys\nprint(os.environ['GIVEN'])")
    assert began.stdout == f"{given.get_visible_path()}\n"
    placed = given.replace_skill_files("fill-form", TREE)
    assert placed.left_out == {}
    cell = await pads.execute_code(
        "one",
        f"there = {placed.path!r}\nprint(open(there + '/references/fields.md').read())\n"
        "print(subprocess.run([sys.executable, there + '/scripts/fill.py', 'a'], capture_output=True).stdout.decode())",
    )
    assert (cell.error, cell.stdout) == (None, "name, street\nfilled ['a']\n\n")
    assert (await pads.execute_code("one", ATTACK)).stdout.split() == ["refused"] * 6
    given.replace_skill_files("fill-form", {**TREE, "references/fields.md": build_tree_file(b"name only")})
    seen = await pads.execute_code(
        "one", "print(open(there + '/references/fields.md').read(), os.listdir(there + '/..'))"
    )
    assert seen.stdout == "name only ['fill-form']\n"
    given.remove_skill_files("fill-form")
    assert (await pads.execute_code("one", "os.path.exists(there)")).stdout == "False\n"
    assert await pads.list_open_and_stored_names() == ["one"]


async def test_a_call_of_a_tool_reads_what_it_is_given(
    strength: MachineCapabilities, given: GivenFolder, tmp_path: Path
) -> None:
    placed = given.replace_skill_files("fill-form", TREE)
    code = (
        "import os\nthere = os.environ['GIVEN'] + '/skills/fill-form'\n"
        f"print(open(there + '/references/fields.md').read())\n{ATTACK}"
    )
    async with ForkServerPool(strength, tmp_path / "calls", allow_weaker=True) as warm:
        run = await warm.run_program(SandboxedProgram(code=code, given=given.folder))
        assert run.stdout.splitlines() == ["name, street", " ".join(["refused"] * 6)], run.stderr
        without = await warm.run_program(
            SandboxedProgram(code=f"import os; print(os.path.exists({placed.path!r} + '/SKILL.md'))")
        )
        assert without.stdout == "False\n" or not strength.bubblewrap


def plain(tmp_path: Path) -> GivenFolder:
    return GivenFolder(tmp_path / "given", find_visible_path=lambda: "/given")


def test_what_is_given_is_private_and_not_writable(tmp_path: Path) -> None:
    given = plain(tmp_path)
    given.replace_skill_files("fill-form", TREE)
    attached = tmp_path / "sales.csv"
    attached.write_text("a,b")
    first = given.copy_user_file_under_free_name(attached)
    assert given.copy_user_file_under_free_name(attached) == first
    attached.write_text("a,b\n1,2")
    assert [first.path, given.copy_user_file_under_free_name(attached).path] == [
        "/given/attached/sales.csv",
        "/given/attached/sales-2.csv",
    ]
    modes = {
        str(path.relative_to(tmp_path)): oct(path.stat().st_mode & 0o777)
        for path in (given.folder, *given.folder.rglob("*"))
        if path.is_file() or path.parent == tmp_path
    }
    assert modes == {
        "given": "0o700",
        "given/attached/sales.csv": "0o400",
        "given/attached/sales-2.csv": "0o400",
        "given/skills/fill-form/SKILL.md": "0o400",
        "given/skills/fill-form/references/fields.md": "0o400",
        "given/skills/fill-form/scripts/fill.py": "0o500",
    }


def test_a_file_too_large_for_a_tree_is_taken_where_it_lies_if_it_is_still_the_same(tmp_path: Path) -> None:
    origin = tmp_path / "skill"
    origin.mkdir()
    (tmp_path / "secret").write_text("secret")
    for name in ("kept", "changed", "gone"):
        (origin / name).write_text(name)
    (origin / "link").symlink_to(tmp_path / "secret")
    tree = {path.name: replace(build_tree_file(path.read_bytes()), content=None) for path in origin.iterdir()}
    (origin / "changed").write_text("otherwise")
    (origin / "gone").unlink()
    os.mkfifo(origin / "gone")
    placed = plain(tmp_path).replace_skill_files("x", tree, folders=dict.fromkeys(tree, origin))
    assert placed.left_out == {
        "changed": "it was changed meanwhile",
        "gone": "it is not an ordinary file",
        "link": "it is not available here",
    }
    assert sorted(path.name for path in (tmp_path / "given/skills/x").iterdir()) == ["kept"]


def test_a_tree_is_bounded_and_what_is_left_out_is_said(tmp_path: Path) -> None:
    huge, long = TreeFile(sha256="0" * 64, size=MAX_READ_BYTES + 1), "n" * 300
    tree = {f"f{number:05}": build_tree_file(b"") for number in range(MOST_FILES + 1)}
    placed = plain(tmp_path).replace_skill_files("x", {**tree, "a": huge, f"b/{long}": build_tree_file(b"x")})
    assert placed.left_out == {
        "a": "it is larger than 32 MiB",
        f"b/{long}": "no file can be called that here",
        f"f{MOST_FILES:05}": "there are more than 2,000 files",
    }


@pytest.mark.parametrize("name", ["..", ".new-x", "/etc", "a/b", "", "a\0b"])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(Invalid):
        plain(tmp_path).replace_skill_files(name, TREE)
    placed = plain(tmp_path).replace_skill_files("x", {f"../{name}": build_tree_file(b"")})
    assert placed.left_out == {f"../{name}": "no file can be called that here"}
    assert list((tmp_path / "given" / "skills" / "x").iterdir()) == []


def test_what_a_killed_process_left_behind_is_swept_away(tmp_path: Path) -> None:
    given = plain(tmp_path)
    (given.folder / "skills" / ".new-x" / "half").mkdir(parents=True)
    given.replace_skill_files("x", TREE)
    assert [path.name for path in (given.folder / "skills").iterdir()] == ["x"]
