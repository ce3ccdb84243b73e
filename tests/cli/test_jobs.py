"""`habitus jobs` and `habitus jobs work` as a person types them."""

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
    assert (imported["state"], imported["parts_total"]) == ("pending", None)
    assert "waits for a worker: none is running" in " ".join(direct.ok("jobs", "list").split())
    others = [direct.json("jobs", "add", kind)["id"] for kind in ("curate", "index", "learn", "mine", "verify")]

    assert "All jobs are done." in direct.ok("jobs", "work", "--until-idle", "--concurrency", "2")
    assert {direct.json("jobs", "show", id)["state"] for id in others} == {"done"}
    assert "1 of 1 part" in direct.ok("jobs", "show", others[0], "--follow")

    done = direct.json("jobs", "show", imported["id"])
    assert (done["state"], done["parts_done"], done["parts_total"], done["result"]["imported"]) == ("done", 1, 1, 2)
    assert {skill["name"] for skill in direct.json("skills", "list", "--layer", "user")["skills"]} == {"tea", "coffee"}
    failed = direct.json("jobs", "show", lost["id"])
    assert failed["state"] == "failed"
    assert failed["reason"].startswith("There is no ")
    _skill(tmp_path / "nowhere", "water")
    assert direct.json("jobs", "retry", lost["id"])["state"] == "pending"
    assert direct.json("jobs", "cancel", lost["id"])["state"] == "cancelled"


@pytest.mark.req("OP-01")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("add", "knit"),
            "There are no jobs of the kind 'knit'. There are: curate, draft-tasks, dream, import, improve, index,",
        ),
        (("add", "import"), "'import' does not take 0 words. Say where from"),
        (("schedule", "set", "dream", "at times"), "can't be 'at times': write off, hourly, 'daily at 3:30'"),
        (("show", "nothing"), "There is no job 'nothing'. See 'habitus jobs list'."),
    ],
)
def test_what_can_t_be_done_is_said_in_a_line(direct: Direct, words: tuple[str, ...], told: str) -> None:
    ran = direct("jobs", *words)
    assert ran.code == 1
    assert told in ran.err


@pytest.mark.req("OP-01")
def test_what_starts_by_itself_is_listed_and_dreaming_only_where_it_is_switched_on(direct: Direct) -> None:
    before = {each["kind"]: each for each in direct.json("jobs", "schedule")["schedule"]}
    assert {kind: each["when"] for kind, each in before.items()} == {
        "curate": "daily at 3",
        "learn": "hourly",
        "mine": "daily at 3",
        "verify": "off",
        "dream": "off",
        "improve": "off",
    }
    assert (before["dream"]["next_on"], before["dream"]["last"]) == (None, None)
    direct.ok("config", "set", "schedule.timezone", "UTC")
    assert "schedule.dream is set to daily at 2:30" in direct.ok("jobs", "schedule", "set", "dream", "Daily at 2:30")
    (after,) = [each for each in direct.json("jobs", "schedule")["schedule"] if each["kind"] == "dream"]
    assert after["next_on"].endswith("02:30:00+00:00")


@pytest.mark.req("OP-01")
def test_a_worker_of_some_kinds_leaves_the_others(direct: Direct) -> None:
    direct.ok("jobs", "add", "mine", "--priority", "high")
    direct.ok("jobs", "add", "index", "--priority", "low")
    assert "1 job left for the next worker." in direct.ok("jobs", "work", "--queues", "index", "--until-idle")
    assert [(job["kind"], job["priority"]) for job in direct.json("jobs", "list")["jobs"]] == [("mine", "high")]
