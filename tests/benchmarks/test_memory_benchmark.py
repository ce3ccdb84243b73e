"""The memory benchmark on tiny input: every figure is there, and the labelled pairs meet their goals."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "memory.py"


@pytest.mark.full
@pytest.mark.req("ME-05", "ME-06")
def test_the_figures_are_there(python: str) -> None:
    done = subprocess.run(
        [python, SCRIPT, "--sizes", "30", "--repeat", "3"], capture_output=True, text=True, check=True
    )
    report = json.loads(done.stdout)
    assert report["benchmark"] == "memory"
    ours = report["systems"]["habitus"]
    recall = {"recall_p50_ms", "recall_p95_ms", "recall_cpu_p50_ms", "recall_cpu_p95_ms"}
    figures = {"index_all_ms", "encode_p50_ms", "encode_cpu_ms", "render_ms"} | recall
    assert {name: set(of_one) for name, of_one in ours["sizes"]["30"].items()} == {"shared": figures, "alone": figures}
    assert ours["pairs"]["wrongly_merged"] == 0
    assert ours["pairs"]["paraphrases"] + ours["pairs"]["distinct"] >= 120
    assert ours["pairs"]["caught"] >= 0.6
    at_the_floor = ours["recall"]["per_floor"][str(ours["recall"]["floor"])]
    assert at_the_floor["unrelated"] == 0
    assert at_the_floor["related"] >= 0.7
