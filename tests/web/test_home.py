"""The first page, and finding anything from every page."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from habitus.app import Habitus
from habitus.app.library import updating
from habitus.memory.model import Draft, Producer
from tests.web.furnished import furnish_with_life, furnish_with_much
from tests.web.test_pages import seen


@pytest.mark.req("CL-02", "CL-03")
def test_home_counts_a_month_and_has_five_rows_with_what_to_do(browser: TestClient, habitus: Habitus) -> None:
    first = browser.get("/").text
    for step in ("Connect an agent", "Bring skills in", "Choose a model", "Try a request"):
        assert step in first
    assert re.search(r'class="done"><div class="grow"><strong>Bring skills in', first)  # brew-tea is there
    furnish_with_life(habitus)
    furnish_with_much(habitus, skills=3, waiting=6, requests=8)
    page = browser.get("/").text
    tiles = dict(re.findall(r"<strong>([^<]+)</strong> (requests|went well|skills used|waiting)<", page))
    assert {label: number for number, label in tiles.items()} | {"went well": ""} == {
        "requests": "25",
        "went well": "",
        "skills used": "4",
        "waiting": "8",
    }
    needs = page.split('id="needs"')[1].split("</ul>")[0]
    assert needs.count("<li>") == 5
    assert 'href="/inbox/1"' in needs
    assert page.count('class="spark"') == 4
    assert "checklist" not in page
    told = browser.get("/api/v1/overview").json()
    assert [len(told["days"]), told["waiting"][-1], sum(day["good"] for day in told["days"])] == [30, 8, 13]
    assert [one["name"] for one in told["helps"]][:1] == ["close-the-month"]
    assert {one["title"] for one in told["agents"]} == {"Claude Code", "Agents by MCP"}


@pytest.mark.req("CL-02")
def test_what_agents_learned_is_counted_and_an_import_is_one_line_with_undo(
    browser: TestClient, habitus: Habitus, tmp_path: Path
) -> None:
    for name in ("one-thing", "other-thing"):
        (tmp_path / "here" / name).mkdir(parents=True)
        text = f"---\nname: {name}\ndescription: {name}\n---\n1. Do the {name}.\n"
        (tmp_path / "here" / name / "SKILL.md").write_text(text)
    updating.add(habitus, str(tmp_path / "here"), (), updating.Manner())
    habitus.memory.add("I said this myself.")
    habitus.memory.encode(
        Draft(text="An agent found this out.", kind="lesson", confidence=0.9, produced_by=Producer.DETECTOR)
    )
    page = browser.get("/").text
    text = " ".join(seen(page).split())
    assert "Agents learned this week 1 An agent found this out." in text
    assert "2 skills imported just now : one-thing, other-thing Undo" in text
    line = page.split('class="imported')[1].split("</form>")[0]
    words = re.findall(r'name="undo" value="([^"]+)"', line)
    browser.post("/undo", data={"undo": words})
    assert not habitus.skills.is_taken("one-thing")
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
