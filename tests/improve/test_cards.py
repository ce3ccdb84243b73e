"""An exam card travels with a published skill as its publisher's claim, and never with files that it is not about."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from habitus.app import Habitus, read_settings
from habitus.app.learning.comparing import decide_running_comparisons
from habitus.app.learning.improving import plan_skill_trial, run_planned_skill_trial
from habitus.app.library.exam_cards import describe_publisher_claim, require_exam_card_of_current_text
from habitus.app.library.importing import ImportOptions, import_skills
from habitus.app.library.publishing import add_or_remove_published_skills
from habitus.app.use_cases.sources import ExportSkillsRequest, export_skills
from habitus.cli.skills.improving import _print_trial_result_and_evidence
from habitus.errors import Invalid
from habitus.files import build_tree_file
from habitus.improve.cards import parse_exam_card, serialize_exam_card
from habitus.learning.budget import RunBudget
from habitus.llm.model import CompletionRequest
from habitus.llm.scripted import ScriptedModel, ScriptStep, says
from habitus.skills.edits import EditOperation, TextEdit
from habitus.skills.sources import discovery
from habitus.skills.trees import CARD_FILE
from tests.improve.test_comparing import approved
from tests.improve.test_improving import NAME


def _export(habitus: Habitus, to: Path) -> Path:
    export_skills(habitus, ExportSkillsRequest(name=NAME, to=to, card=True))
    (found,) = to.rglob(CARD_FILE)
    return found


@pytest.mark.req("IM-09")
async def test_a_card_says_what_the_exam_found_and_no_task(home: Path, tmp_path: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        await approved(habitus)
        card = parse_exam_card(_export(habitus, tmp_path / "out").read_bytes())
        assert card is not None
        assert (card.skill, card.families, card.new_against_old.value, card.gate) == (NAME, 6, 1, 1)
        assert card.with_against_without is None
        assert card.solver == "habitus"
        assert card.date
        assert "Which town" not in json.dumps(card.to_json_values())
        site = tmp_path / "site"
        add_or_remove_published_skills(habitus, site, [NAME], card=True)
        (row,) = json.loads((site / discovery.INDEX_PATH).read_text())["skills"]
        assert row[discovery.EXAM_KEY]["digest"] == card.digest
        assert card.sentence.endswith("; with it against without: not measured")
        assert f"I{card.sentence[1:]}." in (site / discovery.PAGE_PATH).read_text()
        accepted = habitus.skills.read_tree(NAME)
        added = {**accepted, "scripts/more.py": build_tree_file(b"print(1)\n")}
        habitus.skills.write_tree("user", NAME, added, habitus.build_author())
        with pytest.raises(Invalid, match="No exam has accepted"):  # no exam saw this script
            add_or_remove_published_skills(habitus, site, [NAME], card=True)
        habitus.skills.write_tree("user", NAME, accepted, habitus.build_author())
        add_or_remove_published_skills(habitus, site, [NAME], card=True)
        edit = TextEdit(operation=EditOperation.APPEND, content="4. Smile.")
        habitus.skills.edit(NAME, edit, habitus.build_author())
        with pytest.raises(Invalid, match="No exam has accepted the current text"):
            add_or_remove_published_skills(habitus, site, [NAME], card=True)
        add_or_remove_published_skills(habitus, site, [NAME])
        (row,) = json.loads((site / discovery.INDEX_PATH).read_text())["skills"]
        assert discovery.EXAM_KEY not in row, "its text is another now"


@pytest.mark.req("IM-09")
async def test_who_adds_the_skill_sees_a_claim_and_a_card_of_other_files_is_dropped(home: Path, tmp_path: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        await approved(habitus)
        file = _export(habitus, tmp_path / "out")
    skill = file.parents[1]
    with Habitus.open(read_settings(tmp_path / "other")) as other:
        (done,) = import_skills(other, skill, (), "user", ImportOptions(is_trusted=True)).results
        (note,) = done.notes
        assert note.startswith("Its publisher claims (exam of 20")
        assert "6 task families, habitus and scripted:model): new against old +100 points (+41 to +100); with" in note
        assert note.endswith(f"Try it: habitus skills trial {NAME}")
        assert describe_publisher_claim(other.skills, NAME)
    (skill / "SKILL.md").write_text((skill / "SKILL.md").read_text() + "\n4. Smile.\n")
    with Habitus.open(read_settings(tmp_path / "third")) as third:
        (done,) = import_skills(third, skill, (), "user", ImportOptions(is_trusted=True)).results
        assert done.notes == ("Its exam card is about other files, and was dropped.",)
        assert CARD_FILE not in third.skills.read_tree(NAME)
        assert not describe_publisher_claim(third.skills, NAME)


@pytest.mark.req("IM-09")
@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"digest": 1, "families": "many"}', b"[" * 100_000])
def test_what_is_no_card_is_none(content: bytes) -> None:
    assert parse_exam_card(content) is None


@pytest.mark.req("IM-09")
async def test_a_trial_on_the_exams_tasks_adds_with_against_without_and_one_of_who_adds_it_compares(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def solve(ask: CompletionRequest) -> ScriptStep:
        return says("ALTBERG" if "in capitals" in f"{ask.system}{ask.messages}" else "Altberg")

    with Habitus.open(read_settings(home)) as habitus:
        await approved(habitus)
        list(decide_running_comparisons(habitus, apply=True))
        plan, model = plan_skill_trial(habitus, NAME, (), 1), RunBudget().wrap_model(ScriptedModel(solve))
        async for runner in run_planned_skill_trial(habitus, plan, model):
            last = runner
        card = require_exam_card_of_current_text(habitus, NAME)
        assert card.with_against_without is not None
        assert card.with_against_without.value == 1
        assert "; with it against without: +100 points (" in card.sentence
        tree = {**habitus.skills.read_tree(NAME), CARD_FILE: build_tree_file(serialize_exam_card(card))}
        habitus.skills.write_tree("user", NAME, tree, habitus.build_author())
        _print_trial_result_and_evidence(habitus, plan, last, as_json=False)
        said = " ".join(capsys.readouterr().out.split())
        assert "With it 24 of 24 succeeded, without it 0 of 24 succeeded." in said
        assert f"To compare: {card.sentence}." in said
