"""The scale benchmark on a handful of made-up skills: it measures everything it says it measures."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "scale.py"


@pytest.mark.req("PF-01")
def test_selection_menu_search_and_start_up_are_measured_for_each_size(python: str) -> None:
    command = [python, str(SCRIPT), "--sizes", "5", "50", "--searched", "5"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    assert report["benchmark"] == "scale"
    assert report["args"] == {"sizes": [5, 50], "searched": 5}
    habitus, plain = report["systems"]["habitus"], report["systems"]["plain"]
    of_both = {f"{name}_{size}" for name in ("select_ms", "menu_ms", "select_and_menu_ms") for size in (5, 50)}
    searched = {f"{name}_5" for name in ("build_s", "query_ms", "add_one_ms", "start_up_ms")}
    assert set(habitus) == of_both | searched | {"peak_mb"}
    assert set(plain) == {"menu_ms_5", "menu_ms_50"}
    assert all(value >= 0 for value in (*habitus.values(), *plain.values()))
    assert done.stderr.splitlines() == ["5 skills", "50 skills"]
