"""The detector benchmark on made-up traces whose scores can be counted by hand."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "detectors.py"
BENCH_DATA = os.environ.get("HABITUS_BENCH_DATA", "")


def run(python: str, *arguments: object) -> dict[str, dict[str, dict[str, object]]]:
    done = subprocess.run([python, SCRIPT, *map(str, arguments)], capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    assert report["benchmark"] == "detectors"
    assert isinstance(report, dict)
    return report


def row(trace: str, number: int, success: bool) -> str:
    fields = {"trace": trace, "step": number, "turn": number, "tool": "t", "args": f'{{"n": {number}}}'}
    return json.dumps(
        {**fields, "success": success, "error": None if success else f"no {trace} {number}", "result_len": 9}
    )


def test_scores_of_made_up_traces(tmp_path: Path, python: str) -> None:
    outcomes = {
        "loop": [False, False, False],
        "missed": [True, True],
        "false alarm": [False, False],
        "calm": [True],
        "short": [],
    }
    labels = {"loop": ["Resource Abuse"], "missed": ["Resource Abuse", "Other"]}
    traces, meta, clean = tmp_path / "t.jsonl", tmp_path / "m.jsonl", tmp_path / "c.jsonl"
    traces.write_text(
        "\n".join(row(name, n, success) for name, each in outcomes.items() for n, success in enumerate(each))
    )
    meta.write_text(
        "\n".join(json.dumps({"trace": name, "annotated_errors": labels.get(name, [])}) for name in outcomes)
    )
    clean.write_text("\n".join([row("a", 1, True), row("a", 2, True), row("b", 1, False), row("c", 1, True)]))
    systems = run(python, "--traces", traces, "--meta", meta, "--clean", clean)["systems"]
    ours = systems["habitus"]
    assert (ours["precision"], ours["recall"], ours["f1"], ours["alarm_rate"]) == (0.5, 0.5, 0.5, 0.0)
    per_detector = ours["per_detector"]
    assert isinstance(per_detector, dict)
    assert {name for name, scores in per_detector.items() if scores["recall"]} == {
        "repeated_tool_error",
        "repeated_error_signature",
    }
    assert {"length", "error_count"} < set(systems)
    assert systems["length"]["alarm_rate"] == 0.5


@pytest.mark.skipif(not BENCH_DATA, reason="HABITUS_BENCH_DATA does not point to the public traces")
def test_public_traces_meet_the_goal(python: str) -> None:
    folder = Path(BENCH_DATA) / "traces"
    report = run(
        python,
        *("--traces", folder / "trail.jsonl", "--meta", folder / "trail.meta.jsonl"),
        *("--clean", folder / "tau_airline_gpt4o.jsonl"),
    )
    ours = report["systems"]["habitus"]
    assert float(str(ours["f1"])) >= 0.70
    assert int(str(ours["alarms"])) <= 1
