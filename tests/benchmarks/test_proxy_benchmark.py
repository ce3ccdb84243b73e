"""The proxy benchmark with one call: each way prints the same, and is measured against starting the file."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from habitus.sandbox.machine import probe_machine

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "proxy.py"


@pytest.mark.full
def test_a_proxied_call_is_measured_beside_one_started_directly(python: str) -> None:
    if probe_machine().bubblewrap is None:
        pytest.skip("bubblewrap is missing or does not work here")
    done = subprocess.run([python, str(SCRIPT), "--calls", "1"], capture_output=True, text=True, check=True)
    systems = json.loads(done.stdout)["systems"]
    direct = systems["started directly"]["median_ms"]
    for way in ("habitus-skill", "skills.run"):
        assert systems[way]["to_direct"] == pytest.approx(systems[way]["median_ms"] / direct, rel=0.05)
