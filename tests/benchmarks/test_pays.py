"""The benchmark of what learning pays, at a small size: only a gate keeps harm out, and the report has its interval."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "pays.py"


@pytest.mark.full
@pytest.mark.req("IM-08")
def test_only_a_gate_keeps_harmful_changes_out_of_force() -> None:
    command = [sys.executable, str(SCRIPT), "--seeds", "1", "--nights", "60"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["systems"]["habitus"]
    assert done.returncode == int(not all(found["goals"].values())), "a goal that is missed is an error"
    assert found["kept everything, 100 a night"]["harmful gone"] == 0
    for rollouts in (100, 400):
        ours = found[f"habitus, {rollouts} a night"]
        assert ours["harmful gone"] == 1
        assert ours["worthless in force"] <= 0.05
        assert ours["months"] >= 1
        assert ours["median width"] > 0
    assert found["power"]["1000 judged, -30 points"] > found["power"]["100 judged, -10 points"]
