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
    gate, mixed = found["gate"], found["mixed"]
    assert all(row["accepted"] <= 0.05 for name, row in gate.items() if name.startswith("20"))
    assert all(row["new_above_old"] == 1 for name, row in gate.items() if "placebo" in name)
    assert gate["1 at +20, 20 tasks"]["accepted"] >= 0.85
    assert gate["1 at +20, 20 tasks"]["rollouts"] <= 6
    assert len(mixed) == 6
