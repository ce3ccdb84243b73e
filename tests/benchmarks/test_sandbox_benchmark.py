"""The sandbox benchmark with a handful of calls: it measures warm calls against a bare Python, and scratchpads."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "sandbox.py"


@pytest.mark.req("PF-03")
def test_warm_calls_are_measured_against_a_bare_python(python: str) -> None:
    done = subprocess.run([python, str(SCRIPT), "--calls", "2"], capture_output=True, text=True, check=True)
    systems = json.loads(done.stdout)["systems"]
    ours, bare = systems["habitus"], systems["python -I -S -c pass"]
    assert ours["warm_to_bare"] == pytest.approx(ours["warm_median_ms"] / bare["median_ms"], rel=0.05)
    for name in ("warm_median_ms", "cold_ms", "back_to_back_to_bare", "calls_per_s", "pad_start_ms", "cell_ms"):
        assert ours[name] > 0
