"""What every benchmark shares: input files, progress, and one JSON object on stdout with the machine it ran on."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Metrics = dict[str, Any]
_LAUNCHER = (
    "import os, sys, resource; null = os.open(os.devnull, os.O_WRONLY); "
    "child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, null, 1)]); "
    "status = os.waitpid(child, 0)[1]; used = resource.getrusage(resource.RUSAGE_CHILDREN); "
    "print(used.ru_utime + used.ru_stime, used.ru_maxrss); sys.exit(os.waitstatus_to_exitcode(status))"
)


def report(benchmark: str, args: Mapping[str, Any] | Sequence[str], systems: Mapping[str, Any]) -> None:
    """Print the result. A system that could not run is a text: `skipped: why`."""
    machine = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "root": os.geteuid() == 0,
    }
    print(json.dumps({"benchmark": benchmark, "args": args, "machine": machine, "systems": systems}, indent=2))


def show(benchmark: str, args: argparse.Namespace, systems: Mapping[str, Any]) -> None:
    """Print the result with the arguments as they were given."""
    report(benchmark, {name: str(value) for name, value in vars(args).items() if value is not None}, systems)


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    opener: Any = gzip.open if path.suffix == ".gz" else Path.open
    with opener(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def peak_mb() -> float:
    """The most memory this process has had, in megabytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1 << 20 if sys.platform == "darwin" else 1 << 10), 1)


def peak_memory_mb() -> float:
    """The largest this process was, and the largest of the processes it waited for, together."""
    own, children = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return round((own + children) / 1024, 1)


def used_by(
    command: Sequence[str], environ: Mapping[str, str], place: Path, *, may_fail: bool = False
) -> tuple[float, float]:
    """CPU seconds of a new process and what it waited for, and megabytes at the peak of its memory."""
    # Modules are compiled once, as an installed package has them.
    environ = {name: value for name, value in environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    # Started by a small process, because a child's peak begins with what its parent had when it forked.
    small = [sys.executable, "-S", "-c", _LAUNCHER, *command]
    errors = subprocess.DEVNULL if may_fail else None
    done = subprocess.run(
        small, env=environ, cwd=place, stdout=subprocess.PIPE, stderr=errors, check=not may_fail, text=True
    )
    seconds, kilobytes = map(float, done.stdout.split())
    return round(seconds, 2), round(kilobytes / 1024, 1)
