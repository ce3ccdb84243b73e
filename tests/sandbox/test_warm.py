"""Warm calls as a caller sees them. What hostile code tries is in tests/hostile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from habitus.sandbox.fork_servers import LONGEST_ARGUMENT, ForkServerPool, SandboxedProgram
from habitus.sandbox.machine import MachineCapabilities
from habitus.sandbox.model import SandboxLimits
from habitus.sandbox.venvs import VenvBuilder

pytestmark = pytest.mark.req("SB-06")


@pytest.fixture
async def warm(machine: MachineCapabilities, tmp_path: Path) -> AsyncIterator[ForkServerPool]:
    async with ForkServerPool(machine, tmp_path / "run", allow_weaker=True) as pool:
        yield pool


ECHO = """
import json, sys
payload = json.loads(sys.stdin.read() if sys.argv[1] == "-" else sys.argv[1])
print(json.dumps([len(sys.argv), sys.argv[1] == "-", payload]))
"""


async def test_a_payload_comes_as_an_argument(warm: ForkServerPool) -> None:
    run = await warm.call_tool(SandboxedProgram(code=ECHO), {"käse": [1, None, "\ud83d\ude00"]})
    assert run.outcome.is_ok
    assert run.exit_code == 0
    assert '"k\\u00e4se"' in run.stdout
    assert run.stdout.startswith("[2, false,")


async def test_a_long_payload_comes_on_standard_input(warm: ForkServerPool) -> None:
    fits = await warm.call_tool(SandboxedProgram(code=ECHO), "x" * (LONGEST_ARGUMENT - 2))
    too_long = await warm.call_tool(SandboxedProgram(code=ECHO), "x" * (LONGEST_ARGUMENT - 1))
    assert fits.stdout.startswith("[2, false,")
    assert too_long.stdout.startswith("[2, true,")


@pytest.mark.parametrize(
    ("code", "exit_code", "reason"),
    [
        ("raise ValueError('bad day')", 1, "ValueError: bad day"),
        ("import sys; sys.exit('no luck')", 1, "no luck"),
        ("import sys; sys.exit(7)", 7, "It ended with exit code 7."),
        ("def broken(", 1, "SyntaxError: '(' was never closed"),
        ("import os; os._exit(3)", 3, "It ended with exit code 3."),
        ("import ctypes; ctypes.string_at(0)", -11, "It was ended by SIGSEGV."),
        ("import nosuchmodule", 1, "ModuleNotFoundError: No module named 'nosuchmodule'"),
    ],
)
async def test_a_failure_is_told_in_one_line(warm: ForkServerPool, code: str, exit_code: int, reason: str) -> None:
    run = await warm.call_tool(SandboxedProgram(code=code), None)
    assert (run.exit_code, run.outcome.kind, run.outcome.reason) == (exit_code, "failed", reason)


async def test_a_traceback_shows_the_tools_own_lines_only(warm: ForkServerPool) -> None:
    run = await warm.call_tool(SandboxedProgram(code="def f():\n    return {}['x']\n\nf()\n"), None)
    assert "return {}['x']" in run.stderr
    assert "forkserver" not in run.stderr


async def test_code_runs_as_a_script_does(warm: ForkServerPool) -> None:
    code = """
import __main__, atexit, dataclasses, pickle, sys, threading
atexit.register(print, "at exit")
@dataclasses.dataclass
class Point:
    x: int
assert pickle.loads(pickle.dumps(Point(1))) == Point(1)
assert __name__ == "__main__" and __main__.Point is Point
assert open(__file__).read().startswith("\\nimport __main__")
def late():
    import time
    time.sleep(0.05)
    print("thread")
threading.Thread(target=late).start()
print("main")
"""
    run = await warm.call_tool(SandboxedProgram(code=code), None)
    assert (run.stdout, run.stderr) == ("main\nthread\nat exit\n", "")


@pytest.mark.full
async def test_many_calls_at_once_keep_apart(warm: ForkServerPool) -> None:
    program = SandboxedProgram(
        code="import sys, os, time\nopen('mine', 'x').write(sys.argv[1])\nprint(open('mine').read())"
    )
    runs = await asyncio.gather(*(warm.call_tool(program, number) for number in range(24)))
    assert [run.stdout for run in runs] == [f"{number}\n" for number in range(24)]


async def test_a_cancelled_call_is_ended_and_the_pool_goes_on(warm: ForkServerPool) -> None:
    await warm.call_tool(SandboxedProgram(code="1"), None)
    waiting = asyncio.ensure_future(warm.call_tool(SandboxedProgram(code="while True: pass"), None))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (await warm.call_tool(SandboxedProgram(code="print('on')"), None)).stdout == "on\n"


@pytest.mark.full
async def test_servers_are_kept_within_bounds(machine: MachineCapabilities, tmp_path: Path) -> None:
    async with ForkServerPool(machine, tmp_path / "run", max_idle=2, allow_weaker=True) as warm:
        for number in range(4):
            await warm.call_tool(SandboxedProgram(code="1", limits=SandboxLimits(processes=20 + number)), None)
        assert len(warm._all) == 2


@pytest.mark.full
async def test_descriptors_do_not_pile_up(warm: ForkServerPool) -> None:
    program = SandboxedProgram(code="print(1)")
    await warm.call_tool(program, None)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        await warm.call_tool(program, "x" * 100_000)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.full
@pytest.mark.req("SB-06")
async def test_a_tool_with_packages_finds_them_and_one_without_does_not(
    warm: ForkServerPool, shelf: VenvBuilder, tmp_path: Path
) -> None:
    venv = tmp_path / "venv"
    await shelf.create_venv(venv)
    await shelf.install_packages(venv, ["habitus-greeting"])
    code = "import habitus_greeting; print(habitus_greeting.HELLO)"
    assert (await warm.call_tool(SandboxedProgram(code=code, venv=venv), None)).stdout == "hello\n"
    assert (await warm.call_tool(SandboxedProgram(code=code), None)).outcome.kind == "failed"
