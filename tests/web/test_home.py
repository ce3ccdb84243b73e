"""The first page, and finding anything from every page."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from habitus.app import Habitus
from habitus.app.library import importing
from habitus.app.operating.people import UserRole, open_user_accounts
from habitus.memory.model import LessonDraft, LessonProducer
from habitus.skills.model import ActorKind, Author, Skill
from habitus.skills.review import ProposalAction, SkillChange
from habitus.skills.trees import update_main_file
from tests.web.furnished import AGENT, furnish_with_life, furnish_with_much
from tests.web.test_pages import seen


@pytest.mark.req("CL-02", "CL-03")
def test_home_counts_a_month_and_has_five_rows_with_what_to_do(browser: TestClient, habitus: Habitus) -> None:
    first = browser.get("/").text
    for step in ("Connect an agent", "Add skills", "Choose a model", "Try a request"):
        assert step in first
    assert re.search(r'class="done"><div class="grow"><strong>Add skills', first)  # brew-tea is there
    later = ("Helps most", 'id="agents"', 'id="learned"')  # which would not fit the first screen
    assert ("Needs attention" in first, [part for part in later if part in first]) == (True, [])
    furnish_with_life(habitus)
    furnish_with_much(habitus, skills=3, waiting=6, requests=8)
    page = browser.get("/?user=*").text
    tiles = dict(
        re.findall(r"<strong>([^<]+) <svg.*?</strong>(requests|succeeded[^<]*|skills used|pending review)<", page)
    )
    succeeded = "succeeded, of those with feedback"
    assert {label: number for number, label in tiles.items()} | {succeeded: ""} == {
        "requests": "25",
        succeeded: "",
        "skills used": "4",
        "pending review": "8",
    }
    needs = page.split('id="needs"')[1].split("</ul>")[0]
    assert needs.count("<li>") == 5
    assert 'href="/inbox/1"' in needs
    assert page.count('class="spark"') == 4
    assert "checklist" not in page
    told = browser.get("/api/v1/overview?all_users=true").json()
    assert [len(told["days"]), told["pending_per_day"][-1], sum(day["succeeded"] for day in told["days"])] == [
        30,
        8,
        13,
    ]
    assert [one["name"] for one in told["helps"]][:1] == ["close-the-month"]
    assert {one["title"] for one in told["agents"]} == {"Claude Code", "Agents by MCP"}


@pytest.mark.req("CL-02")
def test_what_hurts_comes_first_of_what_waits(browser: TestClient, habitus: Habitus) -> None:
    furnish_with_much(habitus, skills=3, waiting=6, requests=8)
    hurtful = SkillChange(action=ProposalAction.DISABLE, name="brew-tea", layer="user")
    watcher = Author(actor=ActorKind.JOB, name="evidence", reason="It harms: 3 of 20 fail more often with it.")
    habitus.review.submit(hurtful, watcher)
    assert "Habitus (evidence) wants to switch it off<" in browser.get("/inbox").text
    rows = browser.get("/").text.split('id="needs"')[1].split("<li>")
    assert [("brew-tea" in row, "3 of 20 fail more often" in row) for row in rows[1:3]] == [
        (True, True),
        (False, False),
    ]


@pytest.mark.req("CL-02", "CL-04")
def test_what_is_harmless_is_approved_in_its_row_and_taken_back_from_the_notice(
    browser: TestClient, stranger: TestClient, habitus: Habitus
) -> None:
    tree = update_main_file({}, Skill(name="make-jam", description="How jam is made", body="1. Boil the fruit.\n"))
    change = SkillChange(action=ProposalAction.WRITE, name="make-jam", layer="user", tree=tree)
    jam = habitus.review.submit(change, AGENT).proposal
    doubtful = habitus.review.submit(replace(change, name="odd", findings=("it looks odd",)), AGENT).proposal
    assert jam is not None
    assert doubtful is not None
    rows = browser.get("/").text.split('id="needs"')[1].split("</ul>")[0].split("<li>")[1:]
    assert [re.findall(r">(Approve|Review)<", row) for row in rows] == [["Approve"], ["Review"]]
    done = browser.post(f"/inbox/{jam.id}/approve-here").text
    assert ("Approved: Add make-jam." in done, "<h1>Home</h1>" in done) == (True, True)
    assert habitus.skills.is_name_taken("make-jam")
    reviewer, viewer = (
        {"Authorization": f"Bearer {open_user_accounts(habitus).add_or_reinvite_user(name, role).token}"}
        for name, role in (("ben", UserRole.REVIEWER), ("eve", UserRole.VIEWER))
    )
    words = re.findall(r'name="undo" value="([^"]+)"', done)
    assert 'hx-post="/inbox/undo"' in done
    for other in (["undo", "brew-tea:1"], ["skills", "remove", "brew-tea"]):
        assert stranger.post("/inbox/undo", data={"undo": other}, headers=reviewer).status_code == 409
    assert stranger.post("/inbox/undo", data={"undo": words}, headers=reviewer).status_code == 204
    assert not habitus.skills.is_name_taken("make-jam")
    assert ">Approve<" in stranger.get("/", headers=reviewer).text
    assert ">Approve<" not in stranger.get("/", headers=viewer).text
    assert stranger.post(f"/inbox/{jam.id}/approve-here", headers=viewer).status_code == 403


@pytest.mark.req("CL-02")
def test_what_agents_learned_is_counted_and_an_import_is_one_line_with_undo(
    browser: TestClient, habitus: Habitus, tmp_path: Path
) -> None:
    for name in ("one-thing", "other-thing"):
        (tmp_path / "here" / name).mkdir(parents=True)
        text = f"---\nname: {name}\ndescription: {name}\n---\n1. Do the {name}.\n"
        (tmp_path / "here" / name / "SKILL.md").write_text(text)
    importing.fetch_and_import_skills(habitus, str(tmp_path / "here"), (), importing.ImportOptions())
    habitus.memory.add("I said this myself.")
    habitus.memory.encode(
        LessonDraft(text="An agent found this out.", kind="lesson", confidence=0.9, produced_by=LessonProducer.DETECTOR)
    )
    page = browser.get("/").text
    text = " ".join(seen(page).split())
    assert "Agents learned this week 1 An agent found this out." in text
    assert "2 skills imported just now : one-thing, other-thing Undo" in text
    line = page.split('class="imported')[1].split("</form>")[0]
    words = re.findall(r'name="undo" value="([^"]+)"', line)
    browser.post("/undo", data={"undo": words})
    assert not habitus.skills.is_name_taken("one-thing")
    assert "imported" not in seen(browser.get("/").text).split("Fails")[0]


@pytest.mark.req("CL-02", "CL-03")
def test_skills_lessons_conversations_and_commands_are_found_together(
    browser: TestClient, stranger: TestClient, habitus: Habitus
) -> None:
    furnish_with_life(habitus)

    def found(words: str) -> list[str]:
        return [html.unescape(one) for one in re.findall(r'<a href="([^"]+)"', browser.get(f"/find?q={words}").text)]

    assert found("close")[0] == "/skills/close-the-month"
    assert "/activity/s1" in found("close march")
    (lesson,) = [one for one in habitus.memory.list_lessons("all") if "day first" in one.text]
    assert f"/lessons/{lesson.id}" in found("day first")
    assert {"#pause", "/try?request=pause"} <= set(found("pause"))
    assert found("invite")[-2:] == ["/team", "/try?request=invite"]
    assert "/settings" in found("")
    told = browser.get("/api/v1/find", params={"q": "day first"}).json()["found"]
    assert ("lesson", lesson.id) in [(one["kind"], one["id"]) for one in told]
    assert [stranger.get(path).status_code for path in ("/find?q=a", "/api/v1/find?q=a", "/api/v1/overview")] == [
        401
    ] * 3
