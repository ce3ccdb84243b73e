"""Cells that attack from a scratchpad, which lives longer, has packages, and a line of messages to the host."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from habitus.sandbox.machine import Machine, base_python
from habitus.sandbox.model import MIB, Limits, Permissions, Timeouts
from habitus.sandbox.runtimes.local import LocalRuntime
from habitus.sandbox.scratchpads import Scratchpads
from habitus.sandbox.venvs import Venvs, packages_of

pytestmark = pytest.mark.req("SB-09")

VENVS = Venvs({**os.environ, "UV_OFFLINE": "1"}, python=base_python())


@pytest.fixture(scope="session")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seed") / "venv"
    asyncio.run(VENVS.make(folder))
    return folder


@pytest.fixture
def venv(tmp_path: Path, seed: Path) -> Path:
    folder = tmp_path / "pads" / "one" / "venv"
    shutil.copytree(seed, folder, symlinks=True)
    return folder


@pytest.fixture
async def pads(strength: Machine, tmp_path: Path, venv: Path) -> AsyncIterator[Scratchpads]:
    limits = Limits(cpu_s=None, memory=256 * MIB, processes=32)
    runtime = LocalRuntime(strength, tmp_path / "pads", VENVS, permissions=Permissions(), limits=limits)
    made = Scratchpads(runtime, timeouts=lambda _: Timeouts(total_s=60, silence_s=30), grace_s=1)
    yield made
    await made.close()


async def test_what_a_package_runs_at_start_is_already_locked_in(pads: Scratchpads, venv: Path, treasure: Path) -> None:
    planted = f"import os; os.path.exists('ran') or open('ran', 'w').write(str(os.access({str(treasure)!r}, os.R_OK)))"
    reads = f'exec(\'try: open("loot", "w").write(open({str(treasure)!r}).read())\\nexcept OSError: pass\')'
    (packages_of(venv) / "planted.pth").write_text(f"{planted}\nimport os; {reads}\n")
    cell = await pads.exec("one", "import os\nos.path.exists('ran'), os.path.exists('loot') and open('loot').read()")
    assert cell.error is None
    assert cell.stdout in ("(True, False)\n", "(True, '')\n")


async def test_an_interpreter_that_a_package_replaced_is_never_started(
    pads: Scratchpads, venv: Path, tmp_path: Path
) -> None:
    (venv / "bin" / "python").unlink()
    (venv / "bin" / "python").write_text(f"#!/bin/sh\necho won > {tmp_path / 'won'}\n")
    (venv / "bin" / "python").chmod(0o755)
    assert (await pads.exec("one", "1 + 1")).stdout == "2\n"
    with pytest.raises(Exception, match="Could not install"):
        await pads.install("one", ["habitus-nowhere"])
    assert not (tmp_path / "won").exists()


async def test_what_a_package_planted_does_not_run_when_another_is_installed(
    pads: Scratchpads, venv: Path, tmp_path: Path
) -> None:
    (packages_of(venv) / "planted.pth").write_text(f"import os; open({str(tmp_path / 'won')!r}, 'w').close()\n")
    with pytest.raises(Exception, match="Could not install"):
        await pads.install("one", ["habitus-nowhere"])
    assert not (tmp_path / "won").exists()


FORGE = """
import fcntl, os, struct
def say(data):
    for fd in range(3, 256):
        try:
            os.fstat(fd)
            os.write(fd, struct.pack(">I", len(data)) + data)
        except OSError:
            pass
"""


@pytest.mark.parametrize(
    "forged",
    [
        'b"not json"',
        'b"[" * 100_000',
        "b'[]'",
        "b'{\"done\": 7}\\n'",
        'b\'{"ask": ["x"], "argument": {}}\'',
        'b\'{"progress": {"x": [1]}}\'',
        'b"\\xff\\xfe"',
        "b''",
    ],
)
async def test_forged_messages_end_the_pad_at_worst(pads: Scratchpads, forged: str) -> None:
    cell = await pads.exec("one", f"{FORGE}\nsay({forged})")
    assert cell.error is None or cell.was_stopped
    after = await pads.exec("one", "print('on')")
    assert after.stdout.endswith("on\n") or after.was_stopped
    assert (await pads.exec("one", "1")).error is None


async def test_a_forged_message_that_is_too_long_is_not_read(pads: Scratchpads) -> None:
    code = (
        f"{FORGE}\nfor fd in range(200, 256):\n    try: os.write(fd, b'\\xff\\xff\\xff\\xff')\n    except OSError: pass"
    )
    cell = await pads.exec("one", code)
    assert cell.was_stopped
    assert (await pads.exec("one", "1")).stdout == "1\n"


async def test_a_flood_of_messages_is_kept_short(pads: Scratchpads) -> None:
    cell = await pads.exec("one", "for n in range(3000): progress('x' * 5000)")
    assert cell.error is None
    assert len(cell.logs) == 200
    assert max(map(len, cell.logs)) <= 2000


async def test_kernel_settings_are_out_of_reach_for_cells(pads: Scratchpads) -> None:
    code = """
won = []
for file, text in [
    ("/proc/sys/kernel/core_pattern", "|/x"), ("/proc/sys/vm/drop_caches", "1"), ("/proc/sysrq-trigger", "h"),
    ("/proc/1/oom_score_adj", "1000"), ("/proc/self/oom_score_adj", "0"), ("/sys/kernel/x", "1"), ("/dev/kmsg", "x"),
]:
    try:
        with open(file, "w") as opened:
            opened.write(text)
        won.append(file)
    except OSError:
        pass
won
"""
    assert (await pads.exec("one", code)).stdout == "[]\n"


async def test_a_fork_bomb_in_a_cell_is_contained(pads: Scratchpads) -> None:
    code = """
import os, time
count = 0
try:
    while count < 500:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        count += 1
except OSError:
    pass
count
"""
    cell = await pads.exec("one", code)
    assert int(cell.stdout) <= 45
    await pads.reset("one")
    assert (await pads.exec("one", "1")).stdout == "1\n"


async def test_a_pad_with_unreadable_folders_can_be_removed(pads: Scratchpads, tmp_path: Path) -> None:
    code = """
import os
os.makedirs("deep/er")
open("deep/er/file", "w").close()
os.umask(0o777)
os.mkdir("deep/er/shut")
"""
    assert (await pads.exec("one", code)).error is None
    await pads.remove("one")
    assert not (tmp_path / "pads" / "one").exists()
