"""The gate's simulation at a small size: what it promises holds there, too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "improve.py"


@pytest.mark.full
@pytest.mark.req("IM-03")
def test_twenty_placebos_hardly_ever_pass_and_a_real_help_does() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--runs", "60"], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)["systems"]["habitus"]
    for regime in ("own rates", "near-deterministic", "deterministic"):
        rows = found[regime]
        assert rows["20 worthless, 20 tasks"]["accepted"] <= 0.1
        assert rows["20 at -10, 20 tasks"]["accepted"] <= 0.05
        assert all(row["covered"] >= 0.85 for name, row in rows.items() if name.startswith("exam"))
    helps = found["own rates"]["+20 as candidate 1, 20 tasks"]
    assert (helps["accepted"] >= 0.8, helps["rounds"] <= 8) == (True, True)
