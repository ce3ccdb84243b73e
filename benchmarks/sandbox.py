"""What a sandboxed call costs, next to starting a bare Python, and how fast a folder of solutions is validated.

    python benchmarks/sandbox.py [--calls 100] [--at-once 4] [--tasks FILE.jsonl ...]

Warm calls and bare starts are taken in turns, so that whatever else the machine does hits both alike.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from _report import peak_memory_mb, progress, report
from habitus.sandbox.fork_servers import ForkServerPool, SandboxedProgram
from habitus.sandbox.machine import MachineCapabilities, get_base_python, probe_machine
from habitus.sandbox.model import Permissions, SandboxLimits
from habitus.sandbox.runtimes.local import LocalRuntime
from habitus.sandbox.scratchpads import SessionScratchpads
from habitus.sandbox.venvs import EnvironmentCache, VenvBuilder

NOTHING = SandboxedProgram(code="pass")
BARE = [get_base_python(), "-I", "-S", "-c", "pass"]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=100, help="how often each thing is done")
    parser.add_argument("--at-once", type=int, default=4, help="how many calls run at the same time")
    parser.add_argument("--tasks", type=Path, nargs="*", default=[], help="jsonl files of solutions with their tests")
    options = parser.parse_args()
    machine = probe_machine()
    systems: dict[str, dict[str, object] | str] = {}
    with tempfile.TemporaryDirectory() as folder:
        ours = await _calls(machine, Path(folder), options.calls, options.at_once, systems)
        ours |= await _pads(machine, Path(folder), options.calls)
        if options.tasks:
            ours |= await _tasks(machine, Path(folder), options.tasks, options.at_once)
    systems["habitus"] = {**ours, "peak_memory_mb": peak_memory_mb()}
    report("sandbox", sys.argv[1:], systems)


async def _calls(
    machine: MachineCapabilities, folder: Path, calls: int, at_once: int, systems: dict[str, dict[str, object] | str]
) -> dict[str, object]:
    cold = []
    for _ in range(5):
        async with ForkServerPool(machine, folder / "run") as warm:
            cold.append(await _timed(lambda: warm.call_tool(NOTHING, {})))
    async with ForkServerPool(machine, folder / "run", max_concurrent=at_once) as warm:
        await warm.call_tool(NOTHING, {})
        progress(f"{calls} warm calls and bare starts, in turns")
        rows: dict[str, list[float]] = {"warm": [], "again": [], "bare": [], "venv": [], "bwrap": []}
        for _ in range(calls):
            rows["warm"].append(await _timed(lambda: warm.call_tool(NOTHING, {})))
            rows["again"].append(await _timed(lambda: warm.call_tool(NOTHING, {})))
            rows["bare"].append(_spawn(BARE))
            rows["venv"].append(_spawn([sys.executable, "-c", "pass"]))
            if machine.bubblewrap:
                rows["bwrap"].append(_spawn(_bubblewrap(machine.bubblewrap)))
        progress(f"{calls} calls, {at_once} at a time")
        began = time.perf_counter()
        await asyncio.gather(*(warm.call_tool(NOTHING, {}) for _ in range(calls)))
        together = time.perf_counter() - began
    bare = statistics.median(rows["bare"])
    systems["python -I -S -c pass"] = _spread(rows["bare"])
    systems["venv python -c pass"] = _spread(rows["venv"])
    systems["bwrap, cold python -I -S"] = _spread(rows["bwrap"]) if rows["bwrap"] else "skipped: no bubblewrap"
    warm_ms = _spread(rows["warm"])
    return {
        "isolation": "bubblewrap" if machine.bubblewrap else "weaker",
        "cold_ms": round(statistics.median(cold) * 1000, 2),
        **{f"warm_{name}": value for name, value in warm_ms.items()},
        "warm_back_to_back_median_ms": _spread(rows["again"])["median_ms"],
        "warm_to_bare": round(statistics.median(rows["warm"]) / bare, 3),
        "back_to_back_to_bare": round(statistics.median(rows["again"]) / bare, 3),
        "calls_per_s": round(calls / together, 1),
    }


async def _pads(machine: MachineCapabilities, folder: Path, calls: int) -> dict[str, object]:
    progress("scratchpads")
    environments = EnvironmentCache(folder / "environments", VenvBuilder(os.environ, python=get_base_python()))
    limits = SandboxLimits(cpu_s=None)
    pads = SessionScratchpads(
        LocalRuntime(machine, folder / "pads", environments, permissions=Permissions(), limits=limits)
    )
    made = await _timed(lambda: pads.execute_code("bench", "1"))
    starts = []
    for _ in range(10):
        await pads.drop_variables_and_cells("bench")
        starts.append(await _timed(lambda: pads.execute_code("bench", "1")))
    cells = [await _timed(lambda: pads.execute_code("bench", "1")) for _ in range(calls)]
    await pads.close()
    return {
        "pad_new_ms": round(made * 1000, 1),
        "pad_start_ms": round(statistics.median(starts) * 1000, 1),
        "cell_ms": round(statistics.median(cells) * 1000, 3),
    }


async def _tasks(machine: MachineCapabilities, folder: Path, files: list[Path], at_once: int) -> dict[str, object]:
    """Run each solution with its own test as a tool; a tool is valid when it exits 0 and says something."""
    tasks = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    programs = [SandboxedProgram(code=_as_tool(task), limits=SandboxLimits(wall_s=30)) for task in tasks]
    progress(f"validating {len(programs)} solutions")
    async with ForkServerPool(machine, folder / "run", max_concurrent=at_once) as warm:
        await asyncio.gather(*(warm.call_tool(NOTHING, {}) for _ in range(at_once)))
        ends: list[float] = []

        async def validate(program: SandboxedProgram) -> bool:
            run = await warm.call_tool(program, {})
            ends.append(time.perf_counter())
            return run.outcome.is_ok and bool(run.stdout.strip())

        began = time.perf_counter()
        valid = sum(await asyncio.gather(*map(validate, programs)))
    most = len(tasks) * 99 // 100
    return {
        "tasks": len(tasks),
        "valid": valid,
        "validated_per_s": round(len(tasks) / (ends[-1] - began), 1),
        # One of the public solutions computes for five seconds by itself; this is the rate without that tail.
        "first_99_percent_per_s": round(most / (ends[most - 1] - began), 1),
    }


def _as_tool(task: dict[str, str | None]) -> str:
    check = f"\ncheck({task['entry_point']})" if task.get("entry_point") else ""
    return f"{task['code']}\n{task['test']}{check}\nprint('passed')\n"


def _bubblewrap(program: Path) -> list[str]:
    namespaces = ["--unshare-all", "--unshare-user", "--disable-userns", "--clearenv", "--cap-drop", "ALL"]
    return [
        str(program),
        *namespaces,
        "--new-session",
        "--die-with-parent",
        "--ro-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        *BARE,
    ]


async def _timed(deed: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await deed()
    return time.perf_counter() - began


def _spawn(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return time.perf_counter() - began


def _spread(seconds: list[float]) -> dict[str, object]:
    ranked = sorted(value * 1000 for value in seconds)
    return {
        "min_ms": round(ranked[0], 2),
        "median_ms": round(statistics.median(ranked), 2),
        "p95_ms": round(ranked[int(len(ranked) * 0.95)], 2),
    }


if __name__ == "__main__":
    if shutil.which("bwrap") is None:
        progress("bubblewrap is not installed: the weaker sandbox is measured")
    asyncio.run(main())
