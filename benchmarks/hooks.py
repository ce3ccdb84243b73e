"""What hooks cost whoever waits for them, as the library grows: the whole command, beside Python that does nothing.

    python benchmarks/hooks.py [--skills 10 10000] [--calls 60]

A home with made-up skills, lessons and rules; the resident process, started by the first hook as an agent starts it.
Per size: milliseconds of the hook of a session's start (the first, which starts the process; a later one), of
UserPromptSubmit (each another request; half of them fit something), of PostToolUseFailure and of Stop, by turns with
`python -IS -c pass`, rounds a fifth of a second apart; median and 95th percentile of each. Processor time, which other
work on the machine hardly changes: of the command of UserPromptSubmit, and of the resident process for one, with
journalling the turn afterwards.

Beside it, the hint of a failure: lessons of two sessions of every kind in `data/failures_*.txt`, and in a third session
of each whether what is said is that failure's remedy. `--skills` with nothing after it measures only that.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _failures import FAMILIES, read_kinds, score_hints
from _report import Metrics, progress, show
from habitus.app import Habitus, read_settings
from habitus.hosts import known_agents
from session import WORDS, fill

PROMPT = "UserPromptSubmit"
_PAUSE_S = 0.2  # between two requests; people take longer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--skills", type=int, nargs="*", default=[10, 10_000])
    parser.add_argument("--calls", type=int, default=60)
    args = parser.parse_args()
    found: Metrics = {}
    for size in args.skills:
        progress(f"{size} skills")
        with tempfile.TemporaryDirectory() as scratch:
            found |= {f"{name}_{size}": value for name, value in measured(Path(scratch), size, args.calls).items()}
    systems: dict[str, object] = {"habitus": found} if found else {}
    for family in FAMILIES:
        with tempfile.TemporaryDirectory() as scratch:
            hints = score_hints(read_kinds(family), Path(scratch))
        systems[f"hints, {family} kinds"] = {
            "kinds": hints.kinds,
            "precision": hints.precision,
            "recall": hints.recall,
            "wrong": hints.wrong,
        }
    show("hooks", args, systems)


def measured(place: Path, size: int, calls: int) -> Metrics:
    home = place / "home"
    with Habitus.open(read_settings(home, {"HOME": str(place), "USER": "ann"})) as habitus:
        fill(habitus, size)
    first = timed(home, place, "SessionStart", source="startup")
    try:
        warm_up(home, place)
        found = {"start_first_ms": round(first, 1), **by_turns(home, place, calls)}
        return {**found, **processor(home, place, calls), "resident_mb": memory_mb(home)}
    finally:
        for resident in residents(home):
            os.kill(resident, signal.SIGTERM)


def by_turns(home: Path, place: Path, calls: int) -> Metrics:
    """One of each in every round, so that whatever else the machine does is everybody's burden."""
    took: dict[str, list[float]] = {name: [] for name in ("python", PROMPT, "PostToolUseFailure", "Stop")}
    later = [timed(home, place, "SessionStart", source="startup") for _ in range(3)]
    for number in range(calls):
        time.sleep(_PAUSE_S)
        took["python"].append(ran([sys.executable, "-IS", "-c", "pass"], b""))
        fits = f"{WORDS[number % len(WORDS)]} the {WORDS[(number * 7) % len(WORDS)]} for a customer, please"
        took[PROMPT].append(timed(home, place, PROMPT, prompt=fits if number % 2 else f"Thank you, {number}."))
        failed: dict[str, Any] = {"tool_name": "Bash", "tool_input": {"command": f"run {number}"}}
        took["PostToolUseFailure"].append(timed(home, place, "PostToolUseFailure", **failed, error="Exit code 1\nno"))
        took["Stop"].append(timed(home, place, "Stop", transcript_path=str(place / "t.jsonl")))
    found: Metrics = {"start_ms": round(statistics.median(later), 1)}
    for name, times in took.items():
        found |= {f"{name}_ms": round(statistics.median(times), 1), f"{name}_p95_ms": round(p95(times), 1)}
    return found


def processor(home: Path, place: Path, calls: int) -> Metrics:
    """Milliseconds of processor time for one request: what the person waits for, and all that it causes."""
    (pid,) = residents(home)
    before, began = used_ms(pid), resource.getrusage(resource.RUSAGE_CHILDREN)
    for number in range(calls):
        timed(home, place, PROMPT, prompt=f"{WORDS[number % len(WORDS)]} the server {number}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = (after.ru_utime + after.ru_stime - began.ru_utime - began.ru_stime) * 1000
    return {
        f"{PROMPT}_command_cpu_ms": round(command / calls, 1),
        f"{PROMPT}_resident_cpu_ms": round((used_ms(pid) - before) / calls, 1),
    }


def used_ms(pid: int) -> float:
    fields = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def timed(home: Path, place: Path, event: str, **told: Any) -> float:
    """Milliseconds of a hook as an agent runs it, with the shell."""
    given = {"session_id": "bench", "cwd": str(place), "hook_event_name": event, **told}
    return ran(
        ["/bin/sh", "-c", known_agents.make_hook_command(event, sys.executable, home)], json.dumps(given).encode()
    )


def ran(command: Sequence[str], given: bytes) -> float:
    began = time.perf_counter()
    subprocess.run(command, input=given, capture_output=True, check=True)
    return (time.perf_counter() - began) * 1000


def warm_up(home: Path, place: Path) -> None:
    """Until the index is open: a person reads and types meanwhile."""
    while timed(home, place, PROMPT, prompt="deploy the server") > 1_000:
        pass


def p95(times: Sequence[float]) -> float:
    return statistics.quantiles(times, n=20)[-1]


def residents(home: Path) -> list[int]:
    """The processes of this home, by what they were started with."""
    wanted = f"\0--home\0{home}\0jobs\0hooks".encode()
    return [
        int(one.parent.name)
        for one in Path("/proc").glob("[0-9]*/cmdline")
        if one.exists() and wanted in one.read_bytes()
    ]


def memory_mb(home: Path) -> float:
    status = (Path("/proc") / str(residents(home)[0]) / "status").read_text()
    return round(int(status.split("VmRSS:")[1].split()[0]) / 1024, 1)


if __name__ == "__main__":
    main()
