"""What other systems wrote arrives whole, and what is wrong is called by its name."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Direct
from tests.cli.test_climb import DRAFT, followed, opened, script

MACROS = {
    "look_up": {
        "name": "look_up",
        "trigger_description": "Look a skill up.",
        "steps": [
            {"tool_name": "search_skills", "param_template": {"query": "$query", "limit": "$limit"}, "save_as": "hits"},
            {"tool_name": "read_skill", "param_template": {"name": "${name}", "path": "$hits"}},
        ],
        "branches": {},
        "execution_mode": "sequential",
        "status": "active",
        "usage_count": 3,
        "success_count": 2,
    }
}


@pytest.mark.req("SK-19")
def test_ghosts_macros_get_their_parameters_from_their_steps(direct: Direct, tmp_path: Path) -> None:
    (tmp_path / "ghost").mkdir()
    (tmp_path / "ghost/composed_skills.json").write_text(json.dumps(MACROS))
    direct.ok("skills", "import", str(tmp_path / "ghost"), "--trust")
    (recipe,) = direct.json("skills", "recipes", "list")["recipes"]
    assert (recipe["status"], recipe["problems"]) == ("active", [])
    assert [one["name"] for one in recipe["plan"]["parameters"]] == ["limit", "query", "name"]
    assert all(one["is_required"] for one in recipe["plan"]["parameters"])
    direct.ok("skills", "export", "look-up", "--format", "ghost", "--to", str(tmp_path / "back"))
    back = json.loads((tmp_path / "back/composed_skills/composed_skills.json").read_text())["look_up"]
    given = [{"query": "$query", "limit": "$limit"}, {"name": "${name}", "path": "$hits"}]
    assert [step["param_template"] for step in back["steps"]] == given


TODAY = """---
name: csv-summary
description: Sums up a CSV file. A CSV file needs a summary
metadata:
  display_name: CSV Summary
  provenance: consolidator
  created_at: '2026-02-03T04:05:06+00:00'
---
# Steps

1. Read the header.
"""
STATS = {
    "total_recalls": 7,
    "stage_1": {"recommended": 7, "used": 5, "last_used": "2026-02-04T00:00:00+00:00", "confidence": 0.0},
    "stage_2": {"recommended": 0, "used": 0, "last_used": "", "confidence": 0.0},
    "stage_3": {"recommended": 1, "used": 2, "last_used": "", "confidence": 0.0},
}


@pytest.mark.req("SK-19")
def test_antons_skill_md_keeps_title_counters_and_date_both_ways(direct: Direct, tmp_path: Path) -> None:
    folder = tmp_path / "anton/csv-summary"
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_text(TODAY)
    (folder / "stats.json").write_text(json.dumps(STATS))
    (folder / "scripts/columns.py").write_text("def columns():\n    return []\n")
    direct.ok("skills", "import", str(tmp_path / "anton"))
    shown = direct.json("skills", "show", "csv-summary")
    assert (shown["title"], shown["created_on"][:19]) == ("CSV Summary", "2026-02-03T04:05:06")
    assert shown["files"] == ["SKILL.md", "scripts/columns.py"]
    assert any("of steps: used 5" in one for one in shown["source_counts"])
    assert any("of code: used 2" in one for one in shown["source_counts"])

    direct.ok("skills", "export", "csv-summary", "--format", "anton", "--to", str(tmp_path / "back"))
    back = tmp_path / "back/csv-summary"
    assert (back / "SKILL.md").read_text() == TODAY
    stats = json.loads((back / "stats.json").read_text())
    assert {key: stats["stage_1"][key] for key in ("recommended", "used")} == {"recommended": 7, "used": 5}
    assert (back / "scripts/columns.py").is_file()
    assert not (back / "meta.json").exists()
    direct.ok("skills", "edit", "csv-summary", "--title", "Sums of CSV")
    direct.ok("skills", "export", "csv-summary", "--format", "anton", "--to", str(tmp_path / "again"))
    assert "display_name: Sums of CSV" in (tmp_path / "again/csv-summary/SKILL.md").read_text()


@pytest.mark.req("SK-19")
def test_a_stats_json_of_something_else_makes_no_skill_antons(direct: Direct, tmp_path: Path) -> None:
    (tmp_path / "tea").mkdir()
    (tmp_path / "tea/SKILL.md").write_text("---\nname: tea\ndescription: Makes tea.\n---\n\n1. Boil.\n")
    (tmp_path / "tea/stats.json").write_text('{"cups": 3}')
    direct.ok("skills", "import", str(tmp_path / "tea"))
    assert "stats.json" in direct.json("skills", "show", "tea")["files"]


OUTER = "## outer\n\nCalls another.\n\n```yaml\nsteps:\n- tool: inner\n```\n"
INNER = "## inner\n\nLists.\n\n```yaml\nsteps:\n- tool: list_skills\n```\n"


@pytest.mark.req("LA-02")
def test_a_recipe_that_calls_a_recipe_is_told_so(direct: Direct) -> None:
    direct.ok("skills", "new", "looking", "-d", "Looks.")
    (direct.home / "skills/looking/chunks.md").write_text(f"# Recipes\n\n{OUTER}\n{INNER}")
    found = {one["name"]: one for one in direct.json("skills", "recipes", "list")["recipes"]}
    assert found["inner"]["status"] == "active"
    assert found["outer"]["status"] == "broken"
    assert "it calls 'inner', a recipe, and recipes can't call recipes" in found["outer"]["reason"]


def test_a_stage_of_recipes_is_called_recipe(direct: Direct) -> None:
    direct.ok("skills", "new", "looking", "-d", "Looks.")
    (direct.home / "skills/looking/chunks.md").write_text(f"# Recipes\n\n{INNER}")
    direct.ok("skills", "recipes", "run", "inner")
    assert " steps, recipe\n" in direct.ok("skills", "show", "looking")
    stats = direct.ok("skills", "stats")
    assert " recipe " in stats
    assert "chunks" not in stats


@pytest.mark.req("LA-01")
def test_a_draft_with_other_field_names_is_called_malformed(direct: Direct) -> None:
    followed(direct)
    other = {"program": DRAFT["code"], "summary": "Adds."}
    failed = direct("skills", "climb", "add-up", "--model", script(direct, other, other, other))
    assert failed.code == 1
    assert "gave a malformed answer: code: Field required" in failed.out
    assert "no program can do it alone" not in failed.out


def test_tags_are_the_same_in_upper_and_lower_case(direct: Direct) -> None:
    direct.ok("skills", "new", "tea", "-d", "Makes tea.", "--tags", "Kitchen")
    assert [one["name"] for one in direct.json("skills", "list", "--tag", "kitchen")["skills"]] == ["tea"]


def test_unknown_variables_are_named_once(direct: Direct) -> None:
    strange = {"HABITUS_MODLE": "x", "HABITUS_COLOUR": "y", "HABITUS_MEMORY": "off"}
    told = direct("skills", "list", env=strange).err
    assert told.count("HABITUS_MODLE") == told.count("HABITUS_COLOUR") == 1
    assert "Did you mean 'HABITUS_MODEL'?" in told
    assert "HABITUS_MEMORY:" not in told
    assert "HABITUS_" not in direct("skills", "list").err


@pytest.mark.req("LA-03")
def test_a_procedure_done_on_five_days_is_asked_about_once_and_unasked(direct: Direct) -> None:
    with opened(direct) as habitus:
        for day in range(5):
            with habitus.turn(f"total of month {day}", conversation=f"c{day}") as turn:
                turn.observe("fetch_sheet", {"month": f"2026-0{day + 1}"}, f"sheet {day}", ok=True)
                turn.observe("sum_column", {"column": "total", "sheet": f"sheet {day}"}, str(day), ok=True)
                turn.observe("send_mail", {"to": "ann", "text": str(day)}, "sent", ok=True)
                turn.done("Sent.", ok=True)
    (mine,) = [one for one in direct.json("jobs", "schedule")["schedule"] if one["kind"] == "mine"]
    assert mine["next_on"]  # None if it is off
    for _ in range(2):
        direct.ok("jobs", "add", "mine")
        assert direct("jobs", "work", "--until-idle").code == 0
    (pending,) = direct.json("review", "list")["proposals"]
    assert pending["reasons"][0] == "you did this 5 times; keep it as a skill?"


def test_the_doctor_has_a_row_for_audio_and_one_for_missing_packages(
    direct: Direct, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = {one["name"]: one for one in direct.json("doctor")["checks"]}
    assert "transcribed" in checks["audio"]["detail"]
    assert "extras" not in checks
    monkeypatch.setitem(sys.modules, "prompt_toolkit", None)
    (row,) = [one for one in direct.json("doctor")["checks"] if one["name"] == "extras"]
    assert row["detail"] == "'habitus chat' can't be used."
    assert row["hint"].endswith(f"or: pip install 'habitus[chat] @ {Path(__file__).parents[2].as_uri()}'.")
