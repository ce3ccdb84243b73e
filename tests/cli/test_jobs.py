"""`habitus jobs` and `habitus worker` as a person types them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Direct


def _skill(folder: Path, name: str) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "SKILL.md").write_text(f"---\nname: {name}\ndescription: What {name} does\n---\n1. Do it.\n")


@pytest.mark.req("OP-01")
def test_what_is_left_to_a_worker_is_done_by_one(direct: Direct, tmp_path: Path) -> None:
    for name in ("tea", "coffee"):
        _skill(tmp_path / "theirs", name)
    imported = direct.json("jobs", "add", "import", str(tmp_path / "theirs"))
    lost = direct.json("jobs", "add", "import", str(tmp_path / "nowhere"))
    assert (imported["state"], imported["of"]) == ("waiting", None)
    assert "not begun" in direct.ok("jobs", "list")

    assert "All is done." in direct.ok("worker", "--until-idle")

    done = direct.json("jobs", "show", imported["id"])
    assert (done["state"], done["done"], done["of"], done["result"]) == ("done", 1, 1, {"imported": 2})
    assert {skill["name"] for skill in direct.json("skills", "list", "--layer", "user")["skills"]} == {"tea", "coffee"}
    failed = direct.json("jobs", "show", lost["id"])
    assert failed["state"] == "failed"
    assert failed["reason"].startswith("There is no ")
    _skill(tmp_path / "nowhere", "water")
    assert direct.json("jobs", "retry", lost["id"])["state"] == "waiting"
    assert direct.json("jobs", "cancel", lost["id"])["state"] == "cancelled"


@pytest.mark.req("OP-01")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("add", "knit"), "There are no jobs of the kind 'knit'. There are: curate, import, learn."),
        (("add", "learn"), "'learn' can't do with 0 words. Name transcripts"),
        (("show", "nothing"), "There is no job 'nothing'. See 'habitus jobs list'."),
    ],
)
def test_what_can_t_be_done_is_said_in_a_line(direct: Direct, words: tuple[str, ...], told: str) -> None:
    ran = direct("jobs", *words)
    assert ran.code == 1
    assert told in ran.err
