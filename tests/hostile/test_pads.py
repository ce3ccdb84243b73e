"""Cells that attack from a scratchpad, which lives longer, has packages, and a line of messages to the host."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from habitus.sandbox.child import OutputCapture, ProcessGone
from habitus.sandbox.machine import MachineCapabilities, get_base_python
from habitus.sandbox.model import MIB, CellTimeouts, Permissions, SandboxLimits
from habitus.sandbox.runtimes.local import LocalRuntime
from habitus.sandbox.scratchpads import SessionScratchpads
from habitus.sandbox.venvs import EnvironmentCache, VenvBuilder, get_site_packages

pytestmark = pytest.mark.req("SB-09")

VENVS = VenvBuilder({**os.environ, "UV_OFFLINE": "1"}, python=get_base_python())


@pytest.fixture(scope="session")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seed") / "venv"
    asyncio.run(VENVS.create_venv(folder))
    return folder


@pytest.fixture
def venv(tmp_path: Path, seed: Path) -> Path:
    folder = tmp_path / "pads" / "one" / "venv"
    shutil.copytree(seed, folder, symlinks=True)
    return folder


@pytest.fixture
async def pads(strength: MachineCapabilities, tmp_path: Path, venv: Path) -> AsyncIterator[SessionScratchpads]:
    limits = SandboxLimits(cpu_s=None, memory=256 * MIB, processes=32)
    environments = EnvironmentCache(tmp_path / "environments", VENVS)
    runtime = LocalRuntime(strength, tmp_path / "pads", environments, permissions=Permissions(), limits=limits)
    made = SessionScratchpads(runtime, timeouts=lambda _: CellTimeouts(total_s=300, silence_s=300), grace_s=300)
    yield made
    await made.close()


async def test_what_a_package_runs_at_start_is_already_locked_in(
    pads: SessionScratchpads, venv: Path, treasure: Path
) -> None:
    planted = f"import os; os.path.exists('ran') or open('ran', 'w').write(str(os.access({str(treasure)!r}, os.R_OK)))"
    reads = f'exec(\'try: open("loot", "w").write(open({str(treasure)!r}).read())\\nexcept OSError: pass\')'
    (get_site_packages(venv) / "planted.pth").write_text(f"{planted}\nimport os; {reads}\n")
    cell = await pads.execute_code(
        "one", "import os\nos.path.exists('ran'), os.path.exists('loot') and open('loot').read()"
    )
    assert cell.error is None
    assert cell.stdout in ("(True, False)\n", "(True, '')\n")


async def test_an_interpreter_that_a_package_replaced_is_never_started(
    pads: SessionScratchpads, venv: Path, tmp_path: Path
) -> None:
    (venv / "bin" / "python").unlink()
    (venv / "bin" / "python").write_text(f"#!/bin/sh\necho won > {tmp_path / 'won'}\n")
    (venv / "bin" / "python").chmod(0o755)
    assert (await pads.execute_code("one", "1 + 1")).stdout == "2\n"
    with pytest.raises(Exception, match="Could not install"):
        await pads.install_allowed_packages("one", ["habitus-nowhere"])
    assert not (tmp_path / "won").exists()


async def test_what_a_package_planted_does_not_run_when_another_is_installed(
    pads: SessionScratchpads, venv: Path, tmp_path: Path
) -> None:
    (get_site_packages(venv) / "planted.pth").write_text(f"import os; open({str(tmp_path / 'won')!r}, 'w').close()\n")
    with pytest.raises(Exception, match="Could not install"):
        await pads.install_allowed_packages("one", ["habitus-nowhere"])
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


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "forged",
    [
        'b"not json"',
        'b\'{"ask": ["x"], "argument": {}}\'',
        *(
            pytest.param(forged, marks=pytest.mark.full)
            for forged in (
                'b"[" * 100_000',
                "b'[]'",
                "b'{\"done\": 7}\\n'",
                'b\'{"progress": {"x": [1]}}\'',
                'b"\\xff\\xfe"',
                "b''",
            )
        ),
    ],
)
async def test_forged_messages_end_the_pad_at_worst(pads: SessionScratchpads, forged: str) -> None:
    cell = await pads.execute_code("one", f"{FORGE}\nsay({forged})")
    assert cell.error is None or cell.stopped
    after = await pads.execute_code("one", "print('on')")
    assert after.stdout.endswith("on\n") or after.stopped
    assert (await pads.execute_code("one", "1")).error is None


@pytest.mark.some(1)
async def test_a_forged_message_that_is_too_long_is_not_read(pads: SessionScratchpads) -> None:
    code = (
        f"{FORGE}\nfor fd in range(200, 256):\n    try: os.write(fd, b'\\xff\\xff\\xff\\xff')\n    except OSError: pass"
    )
    cell = await pads.execute_code("one", code)
    assert cell.stopped
    assert (await pads.execute_code("one", "1")).stdout == "1\n"


async def test_a_flood_of_messages_is_kept_short(pads: SessionScratchpads) -> None:
    cell = await pads.execute_code("one", "for n in range(3000): progress('x' * 5000)")
    assert cell.error is None
    assert len(cell.progress) == 200
    assert max(map(len, cell.progress)) <= 2000


async def test_kernel_settings_are_out_of_reach_for_cells(pads: SessionScratchpads) -> None:
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
    assert (await pads.execute_code("one", code)).stdout == "[]\n"


async def test_a_fork_bomb_in_a_cell_is_contained(pads: SessionScratchpads) -> None:
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
    cell = await pads.execute_code("one", code)
    assert int(cell.stdout) <= 45
    await pads.drop_variables_and_cells("one")
    assert (await pads.execute_code("one", "1")).stdout == "1\n"


BOTTOMLESS = """
import os
for _ in range({levels}):
    os.mkdir("n" * 200)
    os.chdir("n" * 200)
open("file", "w").close()
os.mkdir("shut", 0o300)
os.mkdir("dark", 0)
os.chdir("/")
"""


@pytest.mark.parametrize("levels", [30, pytest.param(3000, marks=pytest.mark.full)])
async def test_nothing_a_pad_makes_keeps_it_from_being_removed(
    pads: SessionScratchpads, tmp_path: Path, levels: int
) -> None:
    assert (await pads.execute_code("one", BOTTOMLESS.format(levels=levels))).error is None
    (tmp_path / "kept").mkdir()
    (tmp_path / "pads/one/files/link").symlink_to(tmp_path / "kept")
    await pads.close_and_delete_scratchpad("one")
    assert list((tmp_path / "pads").iterdir()) == []
    assert (tmp_path / "kept").exists()


SMALL = SandboxLimits(cpu_s=None, memory=256 * MIB, processes=32, folder_size=8 * MIB, file_size=4 * MIB, idle_cpu_s=1)
HOLD = """
import ctypes, mmap, os, socket
ctypes.CDLL(None).prctl(15, b") 1\\x0b 2", 0, 0, 0)
def hold(number):
    name = "x\\n\\x0c\\x1c\\u2028 (deleted)"
    file = os.open(name, os.O_RDWR | os.O_CREAT)
    os.unlink(name)
    os.write(file, b"x" * (3 << 20))
    return file
"""
WAYS = {
    "open": "held = [hold(n) for n in range(3)]",
    "mapped": """
held = []
for n in range(3):
    file = hold(n)
    held.append(mmap.mmap(file, 4096))
    os.close(file)
""",
    "on its way through a socket": """
ours, theirs = socket.socketpair()
for n in range(3):
    file = hold(n)
    socket.send_fds(ours, [b"x"], [file])
    os.close(file)
""",
    "deep below": """
for n in range(40):
    os.mkdir("n" * 200)
    os.chdir("n" * 200)
for n in range(3):
    open(f"x{n}", "wb").write(b"x" * (3 << 20))
""",
    "in a folder that can't be listed": """
os.mkdir("shut", 0o300)
for n in range(3):
    open(f"shut/x{n}", "wb").write(b"x" * (3 << 20))
""",
    "empty, but many": "for n in range(3000): open(f'x{n}', 'wb').close()",
}


def _runtime(machine: MachineCapabilities, tmp_path: Path) -> LocalRuntime:
    return LocalRuntime(
        machine,
        tmp_path / "pads",
        EnvironmentCache(tmp_path / "environments", VENVS),
        permissions=Permissions(),
        limits=SMALL,
    )


async def _pads_with(machine: MachineCapabilities, tmp_path: Path, code: str) -> str | None:
    pads = SessionScratchpads(_runtime(machine, tmp_path), timeouts=lambda _: CellTimeouts(total_s=300, silence_s=300))
    try:
        return (await pads.execute_code("one", code)).error
    finally:
        await pads.close()


FULL = "Cell killed: its process ended (its folder grew beyond 8 MiB); earlier variables are gone."


@pytest.mark.some(1)
@pytest.mark.parametrize("way", WAYS)
async def test_every_file_counts(machine: MachineCapabilities, tmp_path: Path, venv: Path, way: str) -> None:
    if machine.landlock_abi < 3 and machine.bubblewrap is None:
        pytest.skip("no sandbox here")
    assert await _pads_with(machine, tmp_path, f"{HOLD}{WAYS[way]}\nwhile True: pass") == FULL


async def test_every_file_counts_in_weaker_sandboxes_too(
    strength: MachineCapabilities, tmp_path: Path, venv: Path
) -> None:
    assert await _pads_with(strength, tmp_path, f"{HOLD}{WAYS['open']}\nwhile True: pass") == FULL


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("deed", "why"),
    [
        ("while True: pass", "it used more than 1 s of processor time between cells"),
        ("held = [hold(n) for n in range(3)]", "its folder grew beyond 8 MiB"),
    ],
)
async def test_a_pad_keeps_its_limits_between_cells(
    strength: MachineCapabilities, tmp_path: Path, venv: Path, deed: str, why: str
) -> None:
    runtime = _runtime(strength, tmp_path)
    worker = await runtime.start_worker("one")
    out, err = OutputCapture(1000), OutputCapture(1000)
    worker.redirect_output(out, err)
    code = f"{HOLD}\nimport threading\ngo = threading.Event()\ndef deed():\n    go.wait()\n    {deed}\n    go.wait()\n"
    await worker.send({"exec": f"{code}threading.Thread(target=deed, daemon=True).start()\ngo.set()", "id": "1"})
    assert (await worker.receive())["done"]["error"] is None
    worker.redirect_output(None, None)
    with pytest.raises(ProcessGone):
        await worker.receive()
    assert await worker.close() == why
    await runtime.close()


async def test_what_a_cell_says_of_itself_is_not_said_of_the_next(pads: SessionScratchpads) -> None:
    forged = 'b\'{"done": {"error": null}, "id": 1}\''
    answer = 'b\'{"ask": "skills.list", "argument": null, "id": 1}\''
    first = await pads.execute_code(
        "one", f"{FORGE}\nfor _ in range(9): say({forged})\nsay({answer})\nprint('first')\n1 / 0"
    )
    second = await pads.execute_code("one", "print('second')")
    third = await pads.execute_code("one", "try: skills.read('x')\nexcept LookupError as error: print(error)")
    assert first.stdout.endswith("first\n")
    assert first.error is not None
    assert first.error.endswith("ZeroDivisionError: division by zero")
    assert (second.stdout, second.error) == ("second\n", None)
    assert third.stdout == "skills.read is not offered here\n"


async def test_half_a_character_belongs_to_the_cell_that_printed_it(pads: SessionScratchpads) -> None:
    first = await pads.execute_code("one", "import os\n_ = os.write(1, b'caf\\xc3')\nraise ValueError('\\ud83d')")
    second = await pads.execute_code("one", "_ = os.write(1, b'\\xa9\\n')\nprogress('\\ud83d')")
    assert (first.stdout, second.stdout) == ("caf\ufffd", "\ufffd\n")
    assert first.error is not None
    assert first.error.endswith("ValueError: \ufffd")
    assert second.progress == ("\ufffd",)


async def test_a_real_time_signal_is_told_as_a_signal(pads: SessionScratchpads, strength: MachineCapabilities) -> None:
    cell = await pads.execute_code("one", "import os, signal\nos.kill(os.getpid(), signal.SIGRTMIN + 3)")
    # The first process of a namespace ignores what it sends itself.
    told = "Cell killed: its process ended (ended by SIGRTMIN+3); earlier variables are gone."
    assert cell.error in (None, told)
    assert cell.error or (strength.has_namespaces and strength.bubblewrap is None)


async def test_an_interrupt_leaves_no_half_message_behind(pads: SessionScratchpads) -> None:
    started = asyncio.Event()
    code = "kept = 7\nwhile True: progress('x' * 900)"
    task = asyncio.ensure_future(pads.execute_code("one", code, watch=lambda _: started.set()))
    await started.wait()
    pads.cancel_cell_of_scratchpad("one")
    assert (await task).error == "Cancelled. It was interrupted; variables are kept."
    assert (await pads.execute_code("one", "kept")).stdout == "7\n"
