"""The benchmark of what stays up, on a few requests."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "resident.py"


@pytest.mark.full
@pytest.mark.req("PF-05")
def test_every_server_answers_and_its_memory_is_measured(python: str) -> None:
    command = [python, str(SCRIPT), "--requests", "40", "--every", "20", "--skills", "6"]
    systems = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["systems"]
    assert set(systems) == {"up", "mcp", "hooks"}
    for found in systems.values():
        assert set(found) == {"mb_after_20", "mb_after_40", "growth", "cpu_s"}
        assert found["mb_after_20"] > 20
        assert found["growth"] >= 1
