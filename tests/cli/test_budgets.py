"""Budgets of runs, through the commands: every request counts, and what stops says what it spent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Direct
from tests.cli.test_climb import FEW, used


def script(path: Path, *steps: dict[str, str]) -> str:
    path.write_text(json.dumps(steps))
    return f"script:{path}"


@pytest.mark.req("IM-06")
def test_dreaming_with_answers_nobody_can_read_stops_within_its_budget(direct: Direct, tmp_path: Path) -> None:
    model = script(tmp_path / "script.json", *([{"say": "I can't."}] * 40))
    found = direct.json("learn", "dream", "--cycles", "3", "--budget", "10000", "--domain", "sql", "--model", model)
    assert [each["is_spent"] for each in found["cycles"]] == [True]  # nothing is laid out that nobody can try
    assert "are left. " in found["cycles"][0]["reason"]
    spent = found["job"]["result"]
    assert 0 < spent["tokens"] <= 10_000
    assert spent["requests"] > 0
    assert f"{spent['tokens']:,} of 200,000 tokens spent today" in direct("doctor").out

    said = direct("learn", "dream", "--budget", "1", "--model", model).out
    assert "The next request could take " in said
    assert said.splitlines()[-1] == "1 could not be tried, 0 tokens."
    assert "'5 miles' is no budget. Give tokens (50000" in direct("learn", "dream", "--budget", "5 miles").err
    unpriced = direct("learn", "dream", "--budget", "$2", "--model", model).err
    assert f"The price of {model} is unknown, so a budget in dollars can't be enforced." in unpriced


@pytest.mark.req("IM-06", "LA-04")
def test_climbs_with_answers_nobody_can_read_stay_within_the_day_and_say_what_they_spent(
    direct: Direct, tmp_path: Path
) -> None:
    used(direct, (10, 2), (3, 4), (5, 8))
    model = script(tmp_path / "script.json", *([{"say": "I can't."}] * 40))
    within = {**FEW, "HABITUS_LEARNING_TOKENS": "8000"}
    runs = [("learn", "curate", "--apply", "--model", model), *[("skills", "climb", "both", "--model", model)] * 9]
    spent = []
    for run in runs:
        said = direct(*run, env=within).out
        spent.append(int(said.splitlines()[-1].partition(" tokens spent in ")[0].replace(",", "")))
        assert ("gave a malformed answer" in said) == (spent[-1] > 0)
        if not spent[-1]:
            assert "Learning may spend 8,000 tokens a day" in said
            break
    assert spent[0] > 0
    assert spent[1] > 0
    assert spent[-1] == 0
    assert f"{sum(spent):,} of 8,000 tokens spent today" in direct("doctor", env=within).out
    assert direct.json("review", "list")["proposals"] == []


@pytest.mark.req("IM-06", "LA-05")
def test_a_trial_stops_at_its_budget_and_says_what_it_spent(stocked: Direct, tmp_path: Path) -> None:
    cases = tmp_path / "cases.json"
    cases.write_text(json.dumps([{"request": "totals of a CSV file?", "expect": "sum"}]))
    model = script(tmp_path / "script.json", {"fail": "down"}, *([{"say": "Sum it."}] * 40))
    asked = ("skills", "trial", "csv-summary", "--cases", str(cases), "--runs", "20", "--yes", "--model", model)
    said = stocked.ok(*asked, "--budget", "12k,5m")
    (line,) = [line for line in said.splitlines() if line.startswith("Stopped: its budget is spent: ")]
    tokens = int(line.removeprefix("Stopped: its budget is spent: ").split()[0].replace(",", ""))
    assert 3_000 < tokens <= 12_000
