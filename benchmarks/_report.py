"""What every benchmark says about itself: the machine, the peak of its memory, one JSON object on standard output."""

from __future__ import annotations

import json
import os
import platform
import resource
import sys
from collections.abc import Mapping, Sequence


def machine() -> dict[str, object]:
    return {
        "system": platform.platform(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
        "root": os.geteuid() == 0,
    }


def peak_memory_mb() -> float:
    """The largest this process was, and the largest of the processes it waited for, together."""
    own, children = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return round((own + children) / 1024, 1)


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def report(benchmark: str, args: Sequence[str], systems: Mapping[str, Mapping[str, object] | str]) -> None:
    print(json.dumps({"benchmark": benchmark, "args": list(args), "machine": machine(), "systems": dict(systems)}))
