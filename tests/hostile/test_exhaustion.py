"""Code that tries to use everything up: each bomb goes off for real and the machine goes on."""

from __future__ import annotations

import resource
from dataclasses import replace
from pathlib import Path

import pytest

from habitus.sandbox.fork_servers import ForkServerPool, SandboxedProgram
from habitus.sandbox.model import KIB, MIB, SandboxLimits

pytestmark = pytest.mark.req("SB-09")

SMALL = SandboxLimits(memory=256 * MIB, processes=16, wall_s=300, cpu_s=5, folder_size=32 * MIB, file_size=16 * MIB)


async def still_works(warm: ForkServerPool) -> bool:
    run = await warm.call_tool(SandboxedProgram(code="print('well')", limits=SMALL), None)
    return run.stdout == "well\n"


async def test_a_fork_bomb_is_contained(warm: ForkServerPool) -> None:
    code = """
import os, time
count = 0
try:
    while count < 500:
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
        count += 1
except OSError:
    pass
print(count)
"""
    run = await warm.call_tool(SandboxedProgram(code=code, limits=SMALL), None)
    assert run.outcome.is_ok, run
    assert int(run.stdout) <= SMALL.processes + 8
    assert await still_works(warm)


@pytest.mark.some(1)
async def test_an_exponential_fork_bomb_ends_with_its_time(warm: ForkServerPool) -> None:
    code = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass\n"
    run = await warm.call_tool(SandboxedProgram(code=code, limits=replace(SMALL, wall_s=1)), None)
    assert not run.outcome.is_ok
    assert await still_works(warm)


async def test_a_memory_bomb_is_contained(warm: ForkServerPool) -> None:
    code = "held = []\nwhile True:\n    held.append(b'x' * (1 << 22))\n"
    run = await warm.call_tool(SandboxedProgram(code=code, limits=SMALL), None)
    assert run.outcome.kind == "failed"
    assert "emory" in run.outcome.reason
    assert await still_works(warm)


@pytest.mark.some(1)
async def test_memory_that_no_process_limit_counts_is_contained(warm: ForkServerPool) -> None:
    """Shared memory, memory files, many processes at once: a group holds them, without one they are refused."""
    code = """
import mmap, os
held = []
for _ in range(8):
    if os.fork() == 0:
        while True:
            held.append(mmap.mmap(-1, 1 << 24, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS))
            held[-1].write(b"x" * (1 << 24))
for _ in range(8):
    try:
        os.wait()
    except ChildProcessError:
        break
fd = os.memfd_create("m")
while True:
    os.write(fd, b"x" * (1 << 22))
"""
    run = await warm.call_tool(SandboxedProgram(code=code, limits=SMALL), None)
    assert run.outcome.kind == "failed", run
    assert await still_works(warm)


@pytest.mark.some(1)
async def test_the_own_folder_can_not_be_overfilled(warm: ForkServerPool) -> None:
    code = """
import os
written = 0
try:
    for number in range(64):
        with open(f"file{number}", "wb") as file:
            for _ in range(4):
                written += file.write(b"x" * (1 << 20))
                file.flush()
except OSError as error:
    print(type(error).__name__, error.errno)
print(written)
try:
    open("big", "wb").write(b"x" * (20 << 20))
    print("big")
except OSError:
    pass
"""
    run = await warm.call_tool(SandboxedProgram(code=code, limits=SMALL), None)
    assert "big" not in run.stdout
    if warm._machine.bubblewrap or warm._machine.has_namespaces:
        assert run.outcome.is_ok, run
        assert int(run.stdout.split()[-1]) <= SMALL.folder_size
    else:
        assert run.outcome.reason == f"Its folder grew beyond {SMALL.folder_size // MIB} MiB."
    assert await still_works(warm)
    await warm.close()
    assert list(Path(warm._folder).iterdir()) == []


async def test_an_overfull_folder_ends_a_call_that_would_go_on(warm: ForkServerPool) -> None:
    if warm._machine.bubblewrap or warm._machine.has_namespaces:
        pytest.skip("here a mount of its own bounds the folder")
    code = """
import os
for number in range(40):
    file = os.open("x", os.O_RDWR | os.O_CREAT)
    os.unlink("x")
    os.write(file, b"x" * (1 << 20))
while True:
    pass
"""
    run = await warm.call_tool(SandboxedProgram(code=code, limits=replace(SMALL, wall_s=300)), None)
    assert run.outcome.reason == f"Its folder grew beyond {SMALL.folder_size // MIB} MiB."
    assert await still_works(warm)


async def test_a_real_time_signal_is_a_signal(warm: ForkServerPool) -> None:
    code = "import os, signal\nos.kill(os.getpid(), signal.SIGRTMIN + 3)\nprint('alive')"
    run = await warm.call_tool(SandboxedProgram(code=code, limits=SMALL), None)
    # The first process of a namespace ignores what it sends itself.
    assert run.stdout == "alive\n" or run.outcome.reason == "It was ended by SIGRTMIN+3."
    assert await still_works(warm)


@pytest.mark.some(1)
async def test_a_folder_without_end_is_gone_before_the_next_call(warm: ForkServerPool) -> None:
    code = """
import os
for _ in range(1100):
    os.mkdir("n" * 200)
    os.chdir("n" * 200)
os.mkdir("shut", 0o300)
"""
    assert (await warm.call_tool(SandboxedProgram(code=code, limits=SMALL), None)).outcome.is_ok
    run = await warm.call_tool(SandboxedProgram(code="import os; print(os.listdir())", limits=SMALL), None)
    assert run.stdout == "['tool.py']\n"


@pytest.mark.some(1)
async def test_processor_time_is_bounded(warm: ForkServerPool) -> None:
    limits = SandboxLimits(cpu_s=1, wall_s=300)
    run = await warm.call_tool(SandboxedProgram(code="while True: pass", limits=limits), None)
    assert run.outcome.kind == "failed"
    assert "processor time" in run.outcome.reason


@pytest.mark.some(1)
async def test_a_tool_that_never_ends_is_stopped_and_counts_against_nobody(warm: ForkServerPool) -> None:
    code = """
import signal, time
for number in set(range(1, 32)) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
while True:
    time.sleep(1)
"""
    run = await warm.call_tool(SandboxedProgram(code=code, limits=SandboxLimits(wall_s=0.5)), None)
    assert run.outcome.kind == "infra"
    assert run.outcome.reason == "It was stopped after 0.5 s."
    assert await still_works(warm)


@pytest.mark.some(1)
async def test_a_flood_of_output_costs_us_nothing(warm: ForkServerPool) -> None:
    code = "import os\nblock = b'x' * (1 << 20)\nfor _ in range(256):\n    os.write(1, block)\n"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run = await warm.call_tool(SandboxedProgram(code=code, limits=SandboxLimits(output_chars=1000, wall_s=300)), None)
    assert run.outcome.is_ok, run
    assert run.cut == (256 << 20) - 1000
    assert run.stdout.endswith("more characters were cut]")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * KIB  # ru_maxrss counts KiB


@pytest.mark.req("SB-06")
async def test_binary_output_is_shown_as_far_as_it_is_text(warm: ForkServerPool) -> None:
    code = "import os; os.write(1, b'a\\xff\\xfe\\x00b\\xe2\\x82'); os.write(2, bytes(range(256)))"
    run = await warm.call_tool(SandboxedProgram(code=code), None)
    assert run.outcome.is_ok
    assert run.stdout == "a\ufffd\ufffd\x00b\ufffd"


@pytest.mark.req("SB-06")
async def test_a_payload_of_ten_megabytes_arrives_on_standard_input(warm: ForkServerPool) -> None:
    code = "import json, sys; print(sys.argv[1], len(json.load(sys.stdin)))"
    run = await warm.call_tool(SandboxedProgram(code=code), "ä" * 5_000_000)
    assert run.stdout == "- 5000000\n"


@pytest.mark.req("SB-06")
async def test_a_tool_that_does_not_read_its_payload_still_runs(warm: ForkServerPool) -> None:
    run = await warm.call_tool(SandboxedProgram(code="print('done')"), "x" * 10_000_000)
    assert run.stdout == "done\n"
