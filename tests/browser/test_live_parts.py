"""Parts of a page that live: an answer as it is written, and what a change would have done, in a real browser."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Site


@pytest.mark.full
@pytest.mark.req("CL-02")
def test_a_person_sets_a_model_talks_judges_and_stops(page: Page, site: Site, tmp_path: Path) -> None:
    script = tmp_path / "model.json"
    steps = [
        {"call": "recall_skill", "arguments": {"name": "close-the-month"}, "say": "Let me look."},
        {"say": "March is **closed**."},
        {"hang": True, "say": "April takes "},
    ]
    script.write_text(json.dumps(steps))
    page.goto(f"{site.address}/settings")
    page.get_by_role("textbox", name="Model", exact=True).fill(f"script:{script}")
    page.get_by_role("button", name="Save: Model").click()
    expect(page.get_by_role("status")).to_contain_text("Saved.")

    page.goto(f"{site.address}/chat")
    files = [tmp_path / "sales.csv", tmp_path / "notes.md"]
    for file in files:
        file.write_text("north,7\n")
        page.get_by_label("Attach files").set_input_files(file)  # the second choice joins the first
    page.get_by_role("button", name="Remove notes.md").click()
    page.get_by_label("Your request").fill("Please close March.")
    page.keyboard.press("Enter")
    expect(page.locator("section.turn .prose strong")).to_have_text("closed")
    expect(page.locator("section.turn .chip")).to_have_text(["sales.csv"])
    expect(page.locator("section.turn")).to_contain_text("close-the-month version 3 was opened by the agent")
    page.get_by_role("button", name="This turn succeeded").click()
    expect(page.locator("section.turn .facts")).to_contain_text("succeeded")

    page.get_by_label("Your request").fill("And April?")
    page.keyboard.press("Enter")
    expect(page.locator("live-part .reply")).to_contain_text("April takes")
    page.reload()  # whoever comes back hears what was said meanwhile
    expect(page.locator("live-part .reply")).to_contain_text("April takes")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("section.turn")).to_have_count(2)
    expect(page.locator("live-part")).to_have_count(0)


@pytest.mark.full
@pytest.mark.req("CL-02")
def test_what_a_change_would_have_done_comes_when_it_is_looked_at(page: Page, site: Site) -> None:
    page.goto(f"{site.address}/inbox")
    expect(page.locator(".effect").first).to_contain_text("the last 1 request")


@pytest.mark.full
@pytest.mark.req("CL-02")
@pytest.mark.parametrize("is_lived_in", [False])
def test_the_first_page_of_a_new_home_fits_the_screen(page: Page, site: Site, is_lived_in: bool) -> None:
    page.goto(site.address)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollHeight") <= 860
