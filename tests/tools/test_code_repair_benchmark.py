"""The benchmark reports what it says it reports."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "code_repair.py"


@pytest.mark.req("SB-05")
def test_the_benchmark_counts_recovered_touched_and_wrongly_accepted(tmp_path: Path, python: str) -> None:
    code = "def add(a, b):\n    return a + b\n"
    cases = [
        {"kind": "clean", "text": code, "expected": code, "recoverable": True},
        {"kind": "fence", "text": f"```python\n{code}```", "expected": code, "recoverable": True},
        {"kind": "cdata", "text": f"<![CDATA[{code}]]>", "expected": code, "recoverable": True},
        {"kind": "trunc", "text": code[:12], "expected": code, "recoverable": False},
    ]
    file = tmp_path / "cases.jsonl"
    file.write_text("".join(json.dumps(case) + "\n" for case in cases))
    command = [python, str(BENCHMARK), "--cases", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    systems = {name: {**metrics, "ms_per_case": 0} for name, metrics in report["systems"].items()}
    assert set(report) == {"benchmark", "args", "machine", "systems"}
    assert report["args"] == {"cases": "cases.jsonl", "count": 4}
    assert systems == {
        "habitus": {
            "recovered": 1.0,
            "recovered_by_kind": {"cdata": 1.0, "clean": 1.0, "fence": 1.0},
            "clean_touched": 0,
            "truncated_accepted": 0,
            "ms_per_case": 0,
        },
        "plain": {
            "recovered": 0.6667,
            "recovered_by_kind": {"cdata": 0.0, "clean": 1.0, "fence": 1.0},
            "clean_touched": 0,
            "truncated_accepted": 0,
            "ms_per_case": 0,
        },
    }
