"""The benchmark of a long life, on a handful of turns."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "year.py"


@pytest.mark.full
@pytest.mark.req("PF-05")
def test_a_short_life_is_made_by_two_processes_and_measured(python: str) -> None:
    command = [python, str(SCRIPT), "--turns", "12", "16", "--skills", "6", "--processes", "2", "--measured", "1"]
    command += ["--judged", "1", "--copied-from", "12", "--looks", "evidence"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["systems"]["habitus"]
    for size in (12, 16):
        assert found[f"rows_per_turn_lasting_outcomes_{size}"] >= 1
        assert 0 < found[f"kb_per_turn_{size}"] < 200
        for look in ("evidence", "evidence_after_late_judgement"):
            assert found[f"{look}_cpu_s_{size}"] > 0
            assert found[f"{look}_mb_{size}"] > 20
        assert found[f"after_use_turn_cpu_ms_{size}"] > 0
