"""One import is one line, and one undo takes all of it back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from habitus.app.use_cases.overview import show_overview
from tests.cli.conftest import Direct
from tests.cli.test_climb import opened

pytestmark = pytest.mark.req("LA-06")


def write_skills(folder: Path, count: int) -> None:
    for number in range(count):
        skill = folder / f"s{number}"
        skill.mkdir(parents=True)
        told = f"Counts to {number}, as {folder.name}."
        (skill / "SKILL.md").write_text(f"---\nname: s{number}\ndescription: {told}\n---\n\n1. Count.\n")


def list_imports(direct: Direct) -> list[tuple[int, tuple[str, ...]]]:
    with opened(direct) as habitus:
        return [(len(one.names), one.undo) for one in show_overview(habitus).imports]


def count_skills(direct: Direct) -> int:
    return int(direct.json("skills", "list", "--layer", "user", "--limit", "1")["total"])


@pytest.mark.full
def test_a_large_import_is_one_line_and_its_undo_brings_nothing_to_review(direct: Direct, tmp_path: Path) -> None:
    write_skills(tmp_path / "first", 1)
    direct.ok("skills", "import", str(tmp_path / "first"))
    write_skills(tmp_path / "many", 503)  # more than one batch; s0 is held, because it is from elsewhere here
    made = json.loads(direct("skills", "import", str(tmp_path / "many"), "--json").out)
    assert [one for one, _ in list_imports(direct)] == [502, 1]
    assert [one["name"] for one in json.loads(direct("review", "list", "--json").out)["proposals"]] == ["s0"]

    undone = direct(*made["undo"])
    assert undone.code == 0
    assert len(undone.out.splitlines()) <= 3
    assert "502 skills, such as s1@user: each is in the archive" in undone.out
    assert "s0@user no longer needs review." in undone.out
    assert direct.json("review", "list")["proposals"] == []
    assert (count_skills(direct), [one for one, _ in list_imports(direct)]) == (1, [1])


def test_a_job_in_several_parts_is_one_import_with_one_undo(direct: Direct, tmp_path: Path) -> None:
    write_skills(tmp_path / "many", 205)
    job = direct.json("jobs", "add", "import", str(tmp_path / "many"))
    direct("jobs", "work", "--until-idle")
    done = direct.json("jobs", "show", job["id"])
    assert (done["parts_done"] > 1, done["result"]["imported"]) == (True, 205)
    ((count, undo),) = list_imports(direct)
    assert (count, f"habitus {' '.join(undo)}") == (205, done["result"]["undo"])
    direct.ok(*undo)
    assert count_skills(direct) == 0


def test_an_import_that_is_held_as_a_whole_can_be_undone_too(direct: Direct, tmp_path: Path) -> None:
    write_skills(tmp_path / "first", 1)
    direct.ok("skills", "import", str(tmp_path / "first"))
    write_skills(tmp_path / "other", 1)
    made = json.loads(direct("skills", "import", str(tmp_path / "other"), "--json").out)
    again = json.loads(direct("skills", "import", str(tmp_path / "other"), "--json").out)
    assert (len(made["undo"]), again["undo"]) == (2, [])
    assert "no longer needs review" in direct(*made["undo"]).out
    assert direct.json("review", "list")["proposals"] == []
