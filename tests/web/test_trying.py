"""What a skill can do by itself, run by hand on its page, and how it did."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from fastapi.testclient import TestClient

from habitus.app import Habitus
from tests.web.furnished import equip, furnish_with_life


@pytest.mark.req("CL-02")
def test_code_is_shown_run_with_a_payload_and_tested_again(browser: TestClient, habitus: Habitus) -> None:
    equip(habitus)
    page = browser.get("/skills/shout?tab=code").text
    assert "needs review" in page
    assert "Run it" not in page
    assert "not trusted yet" in browser.get("/skills/shout?tab=trust").text
    assert "Trusted as it is now." in browser.post("/skills/shout/trust", data={"on": "true"}).text
    page = browser.get("/skills/shout?tab=code").text
    assert "&#34;text&#34;: &#34;hi&#34;" in page or '"text": "hi"' in page
    ran = browser.post("/skills/shout/run", data={"payload": '{"text": "psst"}'}).text
    assert ("succeeded" in ran, "PSST" in ran) == (True, True)
    wrong = browser.post("/skills/shout/run", data={"payload": '{"text": 5}'}, headers={"HX-Request": "true"})
    assert (wrong.status_code, "does not fit the parameters" in wrong.text) == (422, True)
    assert "succeeded" in browser.post("/skills/shout/test").text
    told = browser.post("/api/v1/skills/shout/run", json={"payload": {"text": "psst"}}).json()
    assert (told["outcome"]["kind"], told["stdout"].strip()) == ("ok", "PSST")
    assert habitus.skills.read_counters("shout")  # it counts as any other use
    assert "No longer trusted." in browser.post("/skills/shout/trust", data={"on": "false"}).text
    assert browser.post("/skills/shout/run", data={"payload": '{"text": "psst"}'}).status_code == 409


@pytest.mark.req("CL-02")
def test_a_recipe_is_shown_and_run(browser: TestClient, habitus: Habitus) -> None:
    equip(habitus)
    page = browser.get("/skills/look-around?tab=recipes").text
    assert "Looks for skills that fit." in page
    ran = browser.post("/skills/look-around/recipes/look_around", data={"payload": '{"query": "shout loud"}'}).text
    assert ("succeeded" in ran, "shout" in ran) == (True, True)
    links = re.findall(r'href="([^"]+recipe=[^"]+)">1 ', browser.get("/skills/look-around?tab=recipes").text)
    assert len(links) == 2  # that it ran, and that it succeeded
    assert all("<h2>1 use" in browser.get(link.replace("&amp;", "&")).text for link in links)
    wrong = browser.post("/skills/look-around/recipes/look_around", data={"payload": "books"})
    assert (wrong.status_code, "is not JSON" in wrong.text) == (422, True)


@pytest.mark.full
@pytest.mark.req("CL-02")
def test_uses_are_drawn_week_by_week_and_version_by_version(browser: TestClient, habitus: Habitus) -> None:
    furnish_with_life(habitus)
    page = browser.get("/skills/close-the-month?tab=results").text
    assert 'aria-label="By version. v1: 0 succeeded, 0 failed; v2' in page
    assert 'aria-label="By week. ' in page
    told = browser.get("/api/v1/skills/close-the-month/evidence").json()
    counted = [sum(uses["used"] for _, uses in told[by]) for by in ("weeks", "versions")]
    assert counted[0] == counted[1] > 0
    assert all(datetime.fromisoformat(week).replace(tzinfo=UTC).weekday() == 0 for week, _ in told["weeks"])
    unsure = browser.get("/skills/weekly-report?tab=results").text
    assert "can't be measured" in unsure or "About" in unsure
