"""What every benchmark prints: one JSON object with the machine it ran on."""

from __future__ import annotations

import json
import os
import platform
import resource
import sys
from typing import Any

Metrics = dict[str, Any]


def report(benchmark: str, args: dict[str, Any], systems: dict[str, Metrics | str]) -> None:
    """Print the result. A system that could not run is a text: `skipped: why`."""
    machine = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
    }
    print(json.dumps({"benchmark": benchmark, "args": args, "machine": machine, "systems": systems}, indent=2))


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def peak_mb() -> float:
    """The most memory this process has had, in MB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
