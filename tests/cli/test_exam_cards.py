"""An exam card from its publisher's commands to a stranger's: published, added as a claim, tried, dropped."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from habitus.skills.sources import discovery
from habitus.skills.trees import CARD_FILE
from habitus.tasks.checks import ReplyMatchesPatternCheck
from habitus.tasks.files import serialize_tasks
from habitus.tasks.model import Task
from tests.cli.conftest import Direct
from tests.cli.test_discovery import serving
from tests.cli.test_improve import _furnished, _script
from tests.homes import furnish

NAME = "name-a-town"


def _say(direct: Direct, *words: str) -> str:
    ran = direct(*words)
    assert ran.code == 0, ran.err
    return " ".join(ran.out.split())


def _write_trial(path: Path, tasks: int) -> None:
    """An agent that writes capitals with the skill alone."""
    pair = [{"say": "Altberg"}, {"say": "ALTBERG"}]
    path.write_text(json.dumps([step for place in range(tasks) for step in (pair if place % 2 else pair[::-1])]))


@pytest.mark.full
@pytest.mark.req("IM-09")
def test_a_card_is_published_added_as_a_claim_tried_with_ones_own_tasks_and_dropped_from_other_files(
    direct: Direct, tmp_path: Path
) -> None:
    _furnished(direct, 24)
    file, site = tmp_path / "model.json", tmp_path / "site"
    model = ("-m", _script(file, 24, 1))
    refused = direct("skills", "publish", str(site), NAME, "--card")
    assert (refused.code, "No exam has accepted the current text" in refused.err) == (1, True)
    _say(direct, "skills", "improve", NAME, "--rounds", "1", "--yes", *model)
    _say(direct, "review", "approve", "1")
    assert "with it against without: not measured" in _say(direct, "skills", "publish", str(site), NAME, "--card")
    other = tmp_path / "other.json"
    for place in (other, file):
        _write_trial(place, 24)
        _say(direct, "skills", "trial", NAME, "--yes", "-m", f"script:{place}")
        # Only what the exam's own solver and model did stands beside its result.
        shown = _say(direct, "skills", "publish", str(site))
        assert ("with it against without: +100 points (" in shown) is (place == file)
    (row,) = json.loads((site / discovery.INDEX_PATH).read_text())["skills"]
    card = row[discovery.EXAM_KEY]
    assert set(card) == {
        "skill", "digest", "families", "solver", "model", "new_against_old", "with_against_without", "gate", "date"
    }  # fmt: skip
    assert (card["families"], card["solver"], card["gate"], len(card["digest"])) == (6, "habitus", 1, 64)
    assert {*card["new_against_old"], *card["with_against_without"]} == {"value", "low", "high"}
    assert not any(f"number {number:03}" in json.dumps(row) for number in range(24)), "no task travels"
    assert "ts publisher claims (exam of" in (site / discovery.PAGE_PATH).read_text()

    cli = replace(direct.cli, home=furnish(tmp_path / "elsewhere"), user_home=tmp_path / "her")
    stranger = replace(direct, cli=cli)
    with serving(site) as address:
        added = _say(stranger, "skills", "add", address, "--trust")
    assert "Its publisher claims (exam of" in added
    assert "with it against without: +100 points (" in added
    cases, checks = tmp_path / "cases.toml", (ReplyMatchesPatternCheck(pattern="^[A-Z]+$"),)
    cases.write_text(serialize_tasks([Task(id=f"t{n}", request=f"Name town {n}.", checks=checks) for n in range(2)]))
    _write_trial(file, 2)
    tried = _say(stranger, "skills", "trial", NAME, "--cases", str(cases), "--yes", *model)
    assert "With it 2 of 2 succeeded, without it 0 of 2 succeeded." in tried
    assert "To compare: its publisher claims (exam of" in tried
    _write_trial(file, 2)
    told = stranger("skills", "trial", NAME, "--cases", str(cases), "--yes", "--json", *model)
    assert json.loads(told.out)["claim"].startswith("its publisher claims (exam of")
    _say(stranger, "skills", "edit", NAME, "--append", "3. Smile.")
    _write_trial(file, 2)
    tried = _say(stranger, "skills", "trial", NAME, "--cases", str(cases), "--yes", *model)
    assert "To compare" not in tried, "the claim is about other files"

    _say(direct, "skills", "export", NAME, "--to", str(tmp_path / "out"), "--card")
    (found,) = (tmp_path / "out").rglob(CARD_FILE)
    skill = found.parents[1]
    (skill / "SKILL.md").write_text((skill / "SKILL.md").read_text() + "\n4. Whistle.\n")
    shutil.rmtree(stranger.home / "skills" / NAME)
    assert "Its exam card is about other files, and was dropped." in _say(
        stranger, "skills", "import", str(skill), "--trust"
    )
    assert not (stranger.home / "skills" / NAME / CARD_FILE).exists()
