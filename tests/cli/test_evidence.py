"""Evidence as a person sees it: offered, withheld, judged, worse in version 2, and rolled back by a proposal."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from habitus.app import Habitus, read_settings
from habitus.app.library.browsing import browse_skills
from habitus.app.use_cases.evidence import plan_evidence
from habitus.app.use_cases.skills import ListSkillsRequest
from habitus.events import OutcomeKind
from habitus.evidence.model import EvidenceItem, ItemKind, UnitRandomizer
from habitus.journal.model import ExposureAssignment, Turn, TurnOutcome
from habitus.memory.model import LessonDraft, LessonProducer, LessonScope
from habitus.operating_system import get_account_name
from habitus.settings import Settings
from habitus.skills.edits import EditOperation, TextEdit
from habitus.skills.model import Skill
from tests.cli.conftest import Direct
from tests.homes import furnish
from tests.usage import list_evidence_numbers

SHARE = 0.5
PAIRS = 14  # conversations of each version, offered and withheld
TEA = EvidenceItem(kind=ItemKind.SKILL, name="brew-tea")


def settings_of(home: Path, share: float = SHARE) -> Settings:
    settings = read_settings(home, {"HOME": str(home), "USER": get_account_name()})
    evidence = settings.evidence.model_copy(update={"withhold": share})
    return settings.model_copy(update={"cwd": home, "durable": False, "evidence": evidence})


def pairs(habitus: Habitus, prefix: str) -> Iterator[tuple[str, bool]]:
    """Ids of conversations, one to which the lot offers the skill after one from which it withholds it."""
    seed = habitus.journal.get_or_create_random_seed()
    lots = ((f"{prefix}-{n}", UnitRandomizer(unit=f"{prefix}-{n}", seed=seed, share=SHARE)) for n in range(10_000))
    drawn = [(id, lot.assign(TEA).is_offered) for id, lot in lots]
    arms = ([one for one in drawn if one[1] is arm] for arm in (True, False))
    for pair in list(zip(*arms, strict=False))[:PAIRS]:
        yield from pair


@pytest.fixture(scope="session")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home where tea went well with the first version of a skill and badly with the second; made once."""
    home = furnish(tmp_path_factory.mktemp("judged") / "home")
    with Habitus.open(settings_of(home)) as habitus:
        made = Skill(name="brew-tea", description="How to brew tea.", body="1. Boil water.")
        habitus.skills.create(made, habitus.build_author())
        for version, helps in ((1, True), (2, False)):
            if version == 2:
                worse = TextEdit(operation=EditOperation.REPLACE, content="1. Use cold water.")
                habitus.skills.edit("brew-tea", worse, habitus.build_author())
            for n, (id, is_offered) in enumerate(pairs(habitus, f"v{version}")):
                with habitus.turn("how do I brew tea?", conversation=id) as turn:
                    assert ("brew-tea —" in turn.system) is is_offered
                    if is_offered:  # nobody is helped or harmed by what is not opened
                        turn.run("recall_skill", {"name": "brew-tea"})
                    # Now and then the worse version succeeds, or its failures would be a proposal without evidence.
                    turn.done("Like this.", ok=helps is is_offered or n % 6 == 0)
    return home


@pytest.fixture
def tea(direct: Direct, judged: Path) -> Direct:
    shutil.rmtree(direct.home)
    shutil.copytree(judged, direct.home)
    return direct


def list_rows(direct: Direct, query: dict[str, str]) -> Any:
    """What the parameters of a link open, by command."""
    side = {"true": ("--offered",), "false": ("--withheld",)}.get(query.get("offered", ""), ())
    about = ("--version", query["version"], "--kind", query["kind"], "--of", query["of"])
    return direct.json("skills", "evidence", "rows", query["name"], *about, *side)


def check_evidence_opens(direct: Direct) -> None:
    """Each number about brew-tea opens exactly so many conversations, by command."""
    for finding in direct.json("skills", "evidence", "brew-tea")["items"]:
        for number, query in list_evidence_numbers(finding):
            opened = list_rows(direct, query)
            assert (opened["total"], len(opened["rows"])) == (number, number), query


@pytest.mark.req("LA-06")
def test_each_number_of_the_evidence_opens_the_conversations_it_counts(tea: Direct) -> None:
    check_evidence_opens(tea)
    opened = tea.json("skills", "evidence", "rows", "brew-tea", "--of", "explicit", "--withheld")
    assert len(opened["rows"]) == PAIRS
    assert all(row["has_text"] and row["said"].startswith("without brew-tea: ") for row in opened["rows"])
    assert tea.json("sessions", "list")["total"] == 4 * PAIRS


@pytest.mark.full
@pytest.mark.req("LA-05", "SK-11", "LA-04")
def test_a_version_that_does_worse_is_rolled_back_by_a_proposal(tea: Direct) -> None:
    first, second = sorted(
        tea.json("skills", "evidence", "brew-tea")["items"], key=lambda one: int(one["item"]["version"])
    )
    assert (first["decision"]["verdict"], second["decision"]["verdict"]) == ("promote", "retire")
    for one in (first, second):
        arms = [one["estimate"][arm] for arm in ("offered", "withheld")]
        assert arms == [{"explicit": PAIRS, "weak": 0, "missing": 0}] * 2
    told = tea.ok("learn", "curate")
    assert "roll back to version 1" in told
    assert "Nothing was changed" in told
    assert tea.json("review", "list")["proposals"] == []
    for _ in range(2):  # looking again proposes nothing twice
        assert "habitus review show" in tea("learn", "curate", "--apply").out
    (proposal,) = tea.json("review", "list")["proposals"]
    assert (proposal["name"], proposal["by"]["actor"], proposal["action"]) == ("brew-tea", "job", "write")
    assert "Version 2 does worse than version 1" in proposal["reasons"][0]
    assert "now version 3" in tea.ok("review", "approve", str(proposal["id"]))
    assert "1. Boil water." in tea.skill_file("brew-tea").read_text()
    assert "propose" not in tea.ok("learn", "curate")
    shown = tea.ok("skills", "show", "brew-tea")
    assert "version 2: Harms: surely" in shown
    assert "version 1: Helps: surely" in shown


@pytest.mark.full
@pytest.mark.req("LA-05", "LA-04")
def test_a_person_reads_what_helps_and_what_they_turned_down_is_not_proposed_again(tea: Direct) -> None:
    assert tea("learn", "curate", "--apply").code == 0
    (proposal,) = tea.json("review", "list")["proposals"]
    tea.ok("review", "reject", str(proposal["id"]), "--reason", "I like it cold")
    tea.ok("learn", "curate", "--apply")
    assert tea.json("review", "list")["proposals"] == []
    said = tea.ok("skills", "evidence")
    assert "Helps: surely" in said
    assert "without a known effect: not opened, or without feedback." in said
    better, worse = (
        next(line for line in said.splitlines() if line.startswith(f"brew-tea v{version}") and "●" in line)
        for version in (1, 2)
    )
    assert worse.index("●") < better.index("│") < better.index("●")  # left and right of the line of no effect
    assert "Nothing is withheld at random" in said
    assert "50% of all offers are withheld" in tea.ok("skills", "evidence", env={"HABITUS_EVIDENCE_WITHHOLD": "0.5"})
    one = tea.ok("skills", "evidence", "brew-tea")
    assert f"offered     in {PAIRS} conversations: {PAIRS} judged, 0 by weak signals only, 0 without feedback" in one
    planned = tea.json("skills", "evidence", "plan")
    assert all(one["item"]["name"] != "brew-tea" for one in planned["plans"])
    assert "The plan assumes 10%" in tea.ok("skills", "evidence", "plan")
    unknown = tea("skills", "evidence", "brew-coffee")
    assert (unknown.code, "Did you mean 'brew-tea'?" in unknown.err) == (1, True)
    assert "evidence" in tea.ok("doctor", env={"HABITUS_EVIDENCE_WITHHOLD": "0.1"})


@pytest.mark.req("LA-05", "LA-04")
def test_harm_is_proposed_for_switching_off_and_what_is_ignored_for_a_place_off_the_menu(direct: Direct) -> None:
    with Habitus.open(settings_of(direct.home)) as habitus:
        for name in ("scald-tea", "dull-tea"):
            habitus.skills.create(Skill(name=name, description="Of tea.", body="1. Wait."), habitus.build_author())
        draft = LessonDraft(
            text="Tea is best cold.", kind="lesson", scope=LessonScope.GLOBAL, produced_by=LessonProducer.CEREBELLUM
        )
        lesson = habitus.memory.encode(draft).engram
        assert lesson is not None
        bad = [("skill", "scald-tea"), ("skill", "data-summary@bundled"), ("lesson", lesson.id)]
        for n in range(40):
            is_offered = n % 2 == 0
            drawn = [
                ExposureAssignment(kind=k, item=i, version=1, is_offered=is_offered, propensity=0.5, is_used=is_offered)
                for k, i in bad
            ]
            dull = ExposureAssignment(kind="skill", item="dull-tea", version=1, is_used=True, is_ignored=True)
            went = OutcomeKind.FAILED if is_offered else OutcomeKind.OK
            turn = Turn(id=f"t{n}", session=f"c{n}", request="", started_on=habitus.clock(), exposures=(*drawn, dull))
            habitus.journal.record_complete_turn(
                replace(turn, outcomes=(TurnOutcome(kind=went, weight=1.0, source="user"),))
            )
    assert direct("learn", "curate", "--apply").code == 0
    found = {(one["name"], one["action"]): one["id"] for one in direct.json("review", "list")["proposals"]}
    assert found.keys() == {("scald-tea", "disable"), ("data-summary", "disable"), ("dull-tea", "write")}
    assert [one["id"] for one in direct.json("lessons", "archive")["lessons"]] == [lesson.id]
    direct.ok("review", "approve", *map(str, found.values()))
    states = {one["name"]: one["state"] for one in direct.json("skills", "list")["skills"]}
    assert [states[name] for name in ("scald-tea", "data-summary", "dull-tea")] == ["disabled", "disabled", "ok"]
    assert 'disable_model_invocation: "true"' in direct.skill_file("dull-tea").read_text()
    assert direct.ok("learn", "curate").startswith("Nothing to curate.")


@pytest.mark.full
@pytest.mark.req("LA-05")
def test_corrections_lost_words_odd_clocks_and_forgotten_people_are_followed(judged: Path, tmp_path: Path) -> None:
    home = shutil.copytree(judged, tmp_path / "home")
    with Habitus.open(settings_of(home), clock=lambda: datetime(2001, 1, 1, tzinfo=UTC)) as habitus:  # set back
        assert [one.decision.verdict for one in habitus.evidence.find_item_findings("brew-tea")] == [
            "promote",
            "retire",
        ]
        with habitus.turn("and now?", conversation=list(pairs(habitus, "v2"))[2][0]) as turn:
            turn.done("Like this.", ok=True)
        assert {(1.0, 0.0), (0.0, 1.0)} & {
            one.explicit_scores for one in habitus.journal.load_scored_exposures(["brew-tea"])
        }
        with habitus.turn("how do I brew tea?", conversation="late", caller_id="ticket-7") as turn:
            turn.done("Like this.")
    with Habitus.open(settings_of(home), clock=lambda: datetime(2040, 1, 1, tzinfo=UTC)) as habitus:
        habitus.journal.prune_turns()
        before = habitus.evidence.find_item_findings("brew-tea")[1].estimate
        assert before.offered.weak + before.withheld.weak == 1
        for ok in (False, True, True):
            habitus.outcome("ticket-7", ok=ok)
        after = habitus.evidence.find_item_findings("brew-tea")[1].estimate
        assert after.offered.explicit + after.withheld.explicit == 2 * PAIRS + 1
        assert habitus.evidence.erase_user(habitus.settings.user) > 0
        assert habitus.evidence.compute_findings().items == ()


@pytest.mark.req("LA-05", "CL-07")
def test_without_withholding_the_same_is_said_to_be_association(tmp_path: Path) -> None:
    with Habitus.open(settings_of(furnish(tmp_path / "home"), share=0.0)) as habitus:
        assert habitus.evidence.compute_findings().items == ()
        habitus.skills.create(Skill(name="brew-tea", description="How to brew tea.", body="1."), habitus.build_author())
        for n in range(3):
            with habitus.turn("how do I brew tea?", conversation=f"c{n}") as turn:
                turn.done("Like this.", ok=True)
        (found,) = habitus.evidence.find_item_findings("brew-tea")
        assert (found.decision.verdict, found.estimate.basis) == ("not known yet", "associational")
        assert found.decision.reason.startswith("It was opened in none of ")
        assert plan_evidence(habitus).plans == []


@pytest.mark.req("LA-05")
def test_a_list_of_skills_reads_no_conversation_that_sums_count(tmp_path: Path) -> None:
    """Of a hundred that are old, its rows say what the evidence says."""
    home, now = furnish(tmp_path / "home"), datetime(2030, 1, 1, tzinfo=UTC)
    with Habitus.open(settings_of(home), clock=lambda: now) as habitus:
        habitus.skills.create(Skill(name="brew-tea", description="How to brew tea.", body="1."), habitus.build_author())
        for n in range(100):
            offer = ExposureAssignment(
                kind="skill",
                item="brew-tea",
                version=1,
                is_offered=n % 2 > 0,
                propensity=0.5,
                tokens=9,
                is_used=n % 2 > 0,
            )
            said = TurnOutcome(kind=OutcomeKind.OK if n % 2 else OutcomeKind.FAILED, weight=1.0, source="user")
            at = now - timedelta(days=9)
            turn = Turn(id=f"t{n}", session=f"c{n}", request="tea?", started_on=at, ended_on=at, user="ann")
            habitus.journal.record_complete_turn(replace(turn, exposures=(offer,), outcomes=(said,)))
        for _ in range(2):  # the first look begins to count changes, the second keeps sums
            browse_skills(habitus, ListSkillsRequest(q="brew-tea"))
        until = habitus.journal.load_latest_cached_evidence_sums(habitus.clock()).until
        assert list(habitus.journal.iterate_exposure_batches((), since=until)) == []
        (row, *_) = browse_skills(habitus, ListSkillsRequest(q="brew-tea")).rows
        (found,) = habitus.evidence.find_item_findings("brew-tea")
        assert (row.item.name, row.verdict, row.effect) == ("brew-tea", "promote", found.estimate.offering)


@pytest.mark.req("LA-05")
def test_withholding_is_off_until_it_is_set_and_says_so_when_on(direct: Direct) -> None:
    assert "nothing is withheld" in direct.ok("doctor")
    assert direct("config", "set", "evidence.withhold", "0.9").code == 1
    direct.ok("config", "set", "evidence.withhold", "0.1")
    assert "10% of all offers are withheld at random" in direct.ok("doctor")


@pytest.mark.req("LA-05")
def test_a_trial_says_its_cost_first_and_keeps_both_arms(direct: Direct, tmp_path: Path) -> None:
    direct.ok("skills", "new", "brew-tea", "-d", "How to brew tea.", "-f", "-", stdin="1. Boil water.")
    cases, script = tmp_path / "cases.json", tmp_path / "script.json"
    cases.write_text(json.dumps([{"request": "how do I brew tea?", "expect": "boil"}]))
    # The arms take turns: first with it, then without it; in the next pair the other way round. What is nobody's
    # failure is tried again.
    replies = [{"say": "Boil  water."}, {"say": "No idea."}, {"fail": "out of order"}, {"say": "No."}, {"say": "BOIL."}]
    script.write_text(json.dumps(replies))
    asked = ("skills", "trial", "brew-tea", "--cases", str(cases), "--runs", "2", "--model", f"script:{script}")
    unsaid = direct("skills", "trial", "brew-tea", "--model", f"script:{script}")
    assert (unsaid.code, "'brew-tea' has no tasks of its own." in unsaid.err) == (1, True)
    refused = direct(*asked, stdin="n\n")
    assert (refused.code, "4 conversations with script:" in refused.out) == (1, True)
    assert direct.json("skills", "evidence")["items"] == []
    said = direct.ok(*asked, "--yes")
    assert "With it 2 of 2 succeeded, without it 0 of 2 succeeded (1 could not be judged)." in said
    assert "Evidence on version 1:" in said
    (one,) = direct.json("skills", "evidence", "brew-tea")["items"]
    assert (one["trial_offered"], one["trial_withheld"]) == (2, 3)
    assert "5 of these conversations were trials." in one["sentence"]
    assert "in trials   2 with it, 3 without" in direct.ok("skills", "evidence", "brew-tea")
    told = "In trials, which count as no use: brew-tea v1: 2 with it, 3 without."
    assert direct.ok("skills", "stats", "brew-tea").endswith(f"{told}\n")
    (counted,) = direct.json("skills", "stats")["trials"]
    assert [counted[name] for name in ("item", "version", "offered", "withheld")] == ["brew-tea", 1, 2, 3]
    for name, link in counted["links"].items():
        assert list_rows(direct, dict(parse_qsl(link.partition("?")[2])))["total"] == counted[name]
    check_evidence_opens(direct)
    found = one["estimate"]
    own = direct.skill_file("brew-tea").parent / "evals" / "evals.json"
    own.parent.mkdir()
    own.write_text(json.dumps([{"query": "brew tea?", "should_trigger": True, "matches": "(?i)boil"}, {"query": "x"}]))
    assert "2 conversations with" in direct("skills", "trial", "brew-tea", *asked[-2:], stdin="n\n").out
    assert (found["basis"], found["offered"]["explicit"], found["withheld"]) == (
        "randomised",
        2,
        {"explicit": 2, "weak": 0, "missing": 1},
    )


@pytest.mark.req("LA-05")
@pytest.mark.parametrize(
    ("cases", "told"),
    [
        ("[", "is not JSON"),
        ("[]", "has no tasks"),
        ('["x"]', "There is no 'request' in case 1"),
        ('[{"request": "x"}]', "There is no check in case 1"),
        ('[{"request": "x", "expect": 7}]', "'expect' of case 1"),
        ('[{"request": "x", "matches": "("}]', "is not a pattern"),
    ],
)
def test_cases_that_nobody_could_judge_are_refused_in_a_line(direct: Direct, cases: str, told: str) -> None:
    ran = direct("skills", "trial", "brew-tea", "--cases", "-", "--yes", "--model", "script:none", stdin=cases)
    assert (ran.code, told in ran.err, ran.err.count("\n")) == (1, True, 1)
