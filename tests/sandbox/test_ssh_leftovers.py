"""What the SSH runtime leaves behind where something fails: no half folder, no half file, no open file, no process.

A program named `ssh` stands in for the other machine: it runs the command here, or ends in the middle.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from habitus.errors import StorageFailed
from habitus.sandbox.inside.wire import pack
from habitus.sandbox.machine import get_base_python
from habitus.sandbox.model import MIB, Permissions, SandboxLimits
from habitus.sandbox.runtimes.ssh import SshRuntime

pytestmark = pytest.mark.req("SB-13")
# Runs the command on this machine: the last argument is what the other machine's shell would get.
HERE = '#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n'
MakeRuntime = Callable[..., SshRuntime]


@pytest.fixture
def make_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeRuntime:
    """Makes a runtime whose `ssh` is the given script."""

    def make(script: str, *, mode: int = 0o755, rest: str = ":/usr/bin:/bin") -> SshRuntime:
        program = tmp_path / "bin" / "ssh"
        program.parent.mkdir(exist_ok=True)
        program.write_text(script)
        program.chmod(mode)
        monkeypatch.setenv("PATH", f"{program.parent}{rest}")
        return SshRuntime(
            "other",
            folder=str(tmp_path / "pads"),
            python=get_base_python(),
            uv=shutil.which("uv", path=str(Path(sys.executable).parent)),
            permissions=Permissions(),
            limits=SandboxLimits(cpu_s=None, memory=512 * MIB),
            allow_weaker=True,
            given=tmp_path / "given",
        )

    return make


def _list_open_files() -> list[str]:
    """What this process holds open that has no name any more: the error output of an ssh process."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(str(link.readlink()))
    return [path for path in found if path.endswith("(deleted)")]


async def test_code_that_can_not_be_stored_over_there_leaves_no_half_folder(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    runtime = make_runtime(HERE)
    code = tmp_path / "pads" / ".code"
    code.mkdir(parents=True)
    taken = Path(runtime._command[-1].rsplit(" ", 1)[-1])
    taken.write_text("a file in its place")
    with pytest.raises(StorageFailed, match=r"our code could not be stored in .*: .*Not a directory"):
        await runtime.list_stored_scratchpad_names()
    assert list(code.iterdir()) == [taken]
    taken.unlink()
    assert await runtime.list_stored_scratchpad_names() == []
    assert list(code.iterdir()) == [taken]


async def test_an_ssh_that_does_not_start_leaves_no_open_file(make_runtime: MakeRuntime) -> None:
    before = _list_open_files()
    with pytest.raises(StorageFailed, match="Can't start 'ssh': Permission denied") as caught:
        await make_runtime(HERE, mode=0o644, rest="").list_stored_scratchpad_names()
    assert _list_open_files() == before
    assert caught.value.hint == "Install an SSH client."


async def test_who_stops_waiting_for_the_end_leaves_neither_ssh_nor_its_output(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    before = _list_open_files()
    runtime = make_runtime(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 300\n")
    asked = asyncio.ensure_future(runtime.list_stored_scratchpad_names())
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        await asyncio.sleep(0.01)
    pid = int((tmp_path / "pid").read_text())
    asked.cancel()
    await asyncio.sleep(0.1)  # it waits for ssh to hang up now
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    async with asyncio.timeout(60):
        while Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.01)
    assert _list_open_files() == before


async def test_a_made_file_that_came_half_is_not_kept(make_runtime: MakeRuntime, tmp_path: Path) -> None:
    half = pack({"made": "report.csv"}) + pack({"data": base64.b64encode(b"half a line").decode()})
    other = f"""#!{get_base_python()}
import os, struct
def read():
    (count,) = struct.unpack(">I", exactly(4))
    return exactly(count)
def exactly(count):
    data = b""
    while len(data) < count: data += os.read(0, count - len(data))
    return data
read(), read()
os.write(1, {pack({"ok": True})!r})
read()
os.write(1, {half!r})
"""
    worker = await make_runtime(other).start_worker("one")
    assert await worker.copy_newly_made_files(tmp_path / "made") == ()
    assert list((tmp_path / "made").iterdir()) == []
    await worker.close()


async def test_a_given_file_that_finds_no_place_is_told_and_leaves_no_half_one(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "data.csv").write_text("1,2\n")
    there = tmp_path / "pads" / ".given"
    (there / "data.csv").mkdir(parents=True)
    worker = await make_runtime(HERE).start_worker("one")
    told = await worker.update_given_files_and_report_failures()
    assert told == "data.csv did not get to the other machine: Is a directory."
    assert [path.name for path in there.iterdir()] == ["data.csv"]
    await worker.close()
