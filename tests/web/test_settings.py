"""Settings on the page: changed in the file, in force at once, taken back; and what only the machine's owner sets."""

from __future__ import annotations

import re

import pytest
from fastapi.testclient import TestClient

from habitus.app import Habitus
from habitus.app.operating.configuring import REMOTELY_SETTABLE
from habitus.web.pages.settings import SETTING_GROUPS


@pytest.mark.full
@pytest.mark.req("CL-02")
def test_a_setting_is_changed_holds_at_once_and_is_taken_back(browser: TestClient, habitus: Habitus) -> None:
    file = habitus.settings.home / "habitus.toml"
    saved = browser.post("/settings/value", data={"key": "review.auto", "value": "true"}).text
    assert "auto = true" in file.read_text()
    assert re.search(r'<option value="true" selected>apply at once', saved)
    browser.post("/settings/value", data={"key": "model", "value": "script:nowhere.json"})
    assert "There is no script nowhere.json" in browser.get("/chat").text
    words = re.findall(r'name="undo" value="([^"]+)"', saved)
    assert browser.post("/undo", data={"undo": words}).headers["hx-refresh"] == "true"
    assert "auto" not in file.read_text()
    assert re.search(r'<option value="false" selected>need review', browser.get("/settings").text)
    wrong = browser.post("/settings/value", data={"key": "evidence.withhold", "value": "9"})
    assert (wrong.status_code, "evidence.withhold" in wrong.text) == (422, True)


@pytest.mark.req("CL-02", "CL-04")
def test_what_runs_commands_or_names_places_is_not_set_from_a_browser(browser: TestClient, habitus: Habitus) -> None:
    elsewhere = {key for key in REMOTELY_SETTABLE if key.startswith("schedule.") or key == "review.somebody_else"}
    assert {key for settings in SETTING_GROUPS.values() for key in settings} == set(REMOTELY_SETTABLE) - elsewhere
    for key in ("editor", "base_url", "database", "allow_weaker_sandbox", "sandbox.runtime"):
        answers = [
            browser.post("/settings/value", data={"key": key, "value": "true"}),
            browser.post("/undo", data={"undo": ["config", "set", key, "true"]}),
        ]
        assert [answer.status_code for answer in answers] == [409, 409]
    assert not (habitus.settings.home / "habitus.toml").exists()
