"""Search over the library, the answer to 'why', trigger cases, and what is wrong with a whole set."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from habitus.agent.choosing.placement_explanation import SkillPlacementExplanation, explain_skill_placement
from habitus.app import Habitus
from habitus.app.library.explaining import select_skills_for_request
from habitus.errors import Invalid
from habitus.events import OutcomeKind
from habitus.files import build_tree_file
from habitus.journal.model import SelectedSkill, SkillPlacementKind, Turn, TurnOutcome
from habitus.skills import lint
from habitus.skills.choosing import evals, menu
from habitus.skills.choosing.selection import UserRequest
from habitus.skills.edits import EditOperation, TextEdit
from habitus.skills.formats import skill_md
from habitus.skills.model import ActorKind, Author, Manifest, Skill
from habitus.skills.review import ProposalAction, SkillChange

SKILLS = [
    Skill(
        name="csv-summary",
        description="Summarises a table of values.",
        when_to_use="somebody hands over a CSV or spreadsheet and wants to know what is in it",
        body="1. Load the table.\n2. Count rows and columns.\n3. Describe every column.",
    ),
    Skill(
        name="release-notes",
        description="Writes release notes from merged changes.",
        when_to_use="a new version ships and its changes must be announced",
        body="1. Collect merged pull requests.\n2. Group them.\n3. Write one line each.",
    ),
    Skill(
        name="incident-report",
        description="Writes the report after an outage.",
        when_to_use="a service was down and the cause must be written up",
        body="1. Build the timeline.\n2. Find the cause.\n3. Name the follow-ups.",
    ),
]


@pytest.fixture
def habitus_skills() -> list[Skill]:
    return SKILLS


def first(habitus: Habitus, query: str) -> str:
    return habitus.finder.search(query, k=1).hits[0].id


@pytest.mark.req("SE-10")
def test_a_paraphrase_finds_the_skill_and_an_edit_is_found_at_once(habitus: Habitus) -> None:
    assert first(habitus, "tell me what this spreadsheet contains") == "csv-summary"
    assert first(habitus, "write up the outage of last night") == "incident-report"
    change = TextEdit(operation=EditOperation.APPEND, content="4. Draw a zeppelin over the chart.")
    habitus.skills.edit("release-notes", change, habitus.build_author())
    assert first(habitus, "zeppelin") == "release-notes"
    habitus.skills.remove("release-notes", habitus.build_author())
    assert all(hit.id != "release-notes" for hit in habitus.finder.search("zeppelin", k=10).hits)


@pytest.mark.req("SE-10")
def test_the_index_is_kept_and_shared_by_processes(habitus: Habitus) -> None:
    assert first(habitus, "spreadsheet") == "csv-summary"
    with Habitus.open(habitus.settings) as other:
        assert first(other, "spreadsheet") == "csv-summary"
        other.skills.create(
            replace(SKILLS[0], name="zeppelin-care", when_to_use="a zeppelin needs care"), other.build_author()
        )
    assert first(habitus, "zeppelin") == "zeppelin-care"


@pytest.mark.req("SE-10")
@pytest.mark.parametrize("query", ["", "   ", "🎉🎉", "x" * 1_000_000, "\x00", "数据表里有什么"])
def test_no_request_breaks_the_search(habitus: Habitus, query: str) -> None:
    habitus.finder.search(query)


def explained(habitus: Habitus, name: str, request: UserRequest) -> SkillPlacementExplanation:
    selection = select_skills_for_request(habitus, request)
    drawn = menu.compose_menu(selection.menu, 4000, lambda: defaultdict(float))
    among = selection.list_eligible_names()
    return explain_skill_placement(
        habitus.skills.find(name), selection, drawn, habitus.finder.search(request.text, k=99, among=among)
    )


@pytest.mark.req("SE-08")
def test_why_tells_the_rule_the_rank_and_the_gate(habitus: Habitus) -> None:
    asked = UserRequest(text="what is in this spreadsheet")
    found = explained(habitus, "csv-summary", asked)
    assert (found.place, found.rank) == ("menu", 1)
    assert found.parts
    assert "ranks 1" in " ".join(found.sentences)
    with_rule = replace(SKILLS[0], name="always-there", manifest=Manifest(always_include=True))
    habitus.skills.create(with_rule, habitus.build_author())
    assert explained(habitus, "always-there", asked).reason == "always_include"
    habitus.skills.set_enabled("csv-summary", False, habitus.build_author())
    found = explained(habitus, "csv-summary", asked)
    assert (found.place, found.reason) == ("left_out", "disabled: switched off")


@pytest.mark.req("SE-08", "SE-07")
def test_why_tells_what_search_finds_instead_of_the_menu(habitus: Habitus) -> None:
    selection = select_skills_for_request(habitus, UserRequest(text=""))
    drawn = menu.compose_menu(selection.menu, 60, lambda: defaultdict(float))
    assert drawn.cut
    found = explain_skill_placement(habitus.skills.find(drawn.cut[0]), selection, drawn, habitus.finder.search(""))
    assert found.place == "cut"
    assert found.sentences[0] == f"{drawn.cut[0]} is not listed: found by search."


@pytest.mark.req("SE-03")
def test_a_skill_stays_after_a_turn_that_went_well(habitus: Habitus) -> None:
    habitus.journal.record_complete_turn(
        Turn(
            id="t1",
            session="s",
            conversation="c",
            request="sum it",
            started_on=datetime.now(UTC),
            selected=(SelectedSkill(name="csv-summary", place=SkillPlacementKind.LOADED, reason="recall_skill"),),
        )
    )
    follow_up = UserRequest(text="and the other file", source_type="talk", conversation="c", now=datetime.now(UTC))
    assert select_skills_for_request(habitus, follow_up).eager == ()
    habitus.journal.record_outcome("t1", TurnOutcome(kind=OutcomeKind.OK, weight=1.0, source="user"))
    assert [str(choice) for choice in select_skills_for_request(habitus, follow_up).eager] == ["csv-summary(sticky=t1)"]


@pytest.mark.req("SE-10")
def test_trigger_cases_are_read_from_the_skill_and_bad_ones_are_said() -> None:
    def cases(text: str) -> list[evals.TriggerEvalCase]:
        return evals.parse_trigger_eval_cases("x", {evals.EVALS_FILE: build_tree_file(text.encode())})

    one = [evals.TriggerEvalCase(query="a", should_trigger=False)]
    assert cases('[{"query": "a", "should_trigger": false}]') == one
    assert cases('{"evals": [{"prompt": "a", "should_trigger": false}]}') == one
    assert evals.parse_trigger_eval_cases("x", {}) == []
    for bad in ("{", '{"other": 1}', '[{"should_trigger": true}]', '["a"]', "7"):
        with pytest.raises(Invalid, match=evals.EVALS_FILE):
            cases(bad)
    kept = evals.render_eval_file_with_case({evals.EVALS_FILE: build_tree_file(b'[{"query": "a"}]')}, "x", one[0])
    assert json.loads(kept) == [{"query": "a", "should_trigger": False}]
    held: dict[str, Any] = {"note": 1, "evals": [{"query": "a", "expect": ["x"]}, {"prompt": "b", "files": {}}]}
    kept = evals.render_eval_file_with_case({evals.EVALS_FILE: build_tree_file(json.dumps(held).encode())}, "x", one[0])
    assert json.loads(kept) == {**held, "evals": [{**held["evals"][0], "should_trigger": False}, held["evals"][1]]}


@pytest.mark.req("SK-20")
def test_a_budget_of_no_tokens_is_reported_as_exceeded(habitus: Habitus) -> None:
    found = lint.lint_library(
        habitus.skills.list_skills(),
        budget=lint.PromptBudget(menu=0, eager=0, eager_costs={"csv-summary": 3}),
        search=lambda cue, among: habitus.finder.search(cue, k=4, among=among),
        neighbours={},
        progress=lambda done: None,
    )
    said = [(finding.names, finding.hint) for finding in found if finding.kind == "budget"]
    assert (("csv-summary",), "Shorten it: it is not shown.") in said
    assert ((), "Shorten the when-to-use lines, disable unused skills.") in said


@pytest.mark.full
@pytest.mark.req("SK-20")
def test_the_set_is_told_of_duplicates_and_hidden_copies(habitus: Habitus, tmp_path: Path) -> None:
    habitus.skills.create(replace(SKILLS[0], name="table-summary"), habitus.build_author())
    other = tmp_path / ".claude/skills/release-notes"
    other.mkdir(parents=True)
    (other / "SKILL.md").write_text("---\nname: release-notes\ndescription: Another.\n---\n\nOther.\n")
    found = list(
        lint.lint_library(
            habitus.skills.list_skills(),
            budget=lint.PromptBudget(menu=4000, eager=40_000, eager_costs={}),
            search=lambda cue, among: habitus.finder.search(cue, k=4, among=among),
            neighbours=habitus.finder.find_neighbours_of_all_skills(),
            progress=lambda done: None,
        )
    )
    pairs = {frozenset(finding.names) for finding in found if finding.kind == "duplicate"}
    assert pairs == {frozenset({"csv-summary", "table-summary"})}
    assert [finding.names for finding in found if finding.kind == "shadowed"] == [("release-notes",)]
    assert all(finding.hint for finding in found)


@pytest.mark.req("SK-20", "SK-21")
def test_a_new_skill_of_the_agent_that_duplicates_another_waits_and_says_so(habitus: Habitus) -> None:
    agent = Author(actor=ActorKind.AGENT, name="main")
    copy = {"SKILL.md": build_tree_file(skill_md.render_skill_md(replace(SKILLS[0], name="table-summary")))}
    change = SkillChange(action=ProposalAction.WRITE, name="table-summary", layer="user", tree=copy)
    proposal = habitus.review.submit(change, agent).proposal
    assert proposal is not None
    assert proposal.reasons[-1].startswith("near-duplicate of csv-summary (0.")
