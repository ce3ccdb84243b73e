"""The benchmark of the evidence on a little made-up use: every scenario, every system, and the goals."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "utility.py"


@pytest.mark.full
@pytest.mark.req("LA-05")
def test_every_system_is_scored_in_every_scenario() -> None:
    command = [sys.executable, str(SCRIPT), "--episodes", "100", "--seeds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    systems = json.loads(done.stdout)["systems"]
    assert set(systems) == {
        *("habitus", "habitus_randomised_only", "regression_only"),
        *("memory_worth", "source_utility", "use_count"),
    }
    habitus = systems["habitus"]
    assert len(habitus["scenarios"]) == 10
    for found in systems.values():
        assert {tuple(sizes) for sizes in found["scenarios"].values()} == {("10", "30", "100")}
    headline = habitus["scenarios"]["hidden"]["100"]
    assert (habitus["spearman"], habitus["coverage"]) == (headline["spearman"], headline["coverage"])
    assert {"effectless_ever_decided", "large_decided", "large_decided_by_tenth"} < set(headline)
    assert habitus["goals"]["hidden_spearman"]["value"] == headline["spearman"]
    assert "spearman" not in systems["habitus_randomised_only"]["scenarios"]["no_withholding"]["100"]
    assert "no_withholding" in done.stderr
