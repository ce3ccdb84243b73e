"""What every benchmark shares: input files, a description of the machine, progress, and one JSON object on stdout."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import resource
import sys
from pathlib import Path
from typing import Any


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


def machine() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
    }


def show(benchmark: str, args: argparse.Namespace, systems: dict[str, Any]) -> None:
    given = {name: str(value) for name, value in vars(args).items() if value is not None}
    print(json.dumps({"benchmark": benchmark, "args": given, "machine": machine(), "systems": systems}, indent=2))
