"""Journeys in a real browser: what only scripts, keys and a screen can show."""

from __future__ import annotations

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Site
from tests.web.test_pages import PAGES


@pytest.mark.req("CL-02", "CL-04")
def test_a_person_searches_edits_and_takes_back(page: Page, site: Site) -> None:
    expect(page.get_by_role("heading", name="Today")).to_be_visible()
    page.keyboard.press("/")
    page.wait_for_url("**/skills?focus=1")
    search = page.get_by_role("searchbox", name="Search skills")
    expect(search).to_be_focused()
    search.press_sequentially("finish the bookkeeping")
    page.wait_for_url("**/skills?q=finish+the+bookkeeping&*")
    expect(page.locator(".rows li").first).to_contain_text("Close the month")
    page.get_by_role("switch", name="Close the month").click()
    expect(page.get_by_role("switch", name="Close the month")).to_have_attribute("aria-checked", "false")
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("switch", name="Close the month")).to_have_attribute("aria-checked", "true")

    page.get_by_role("link", name="Close the month").click()
    page.wait_for_url("**/close-the-month", wait_until="load")
    page.keyboard.press("e")
    steps = page.locator("markdown-editor .cm-content")
    steps.click()
    page.keyboard.press("Control+End")
    page.keyboard.type("5. Drink **tea**.")
    expect(page.locator("#preview strong")).to_have_text("tea")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_contain_text("Saved as version 4.")
    assert "5. Drink **tea**." in site.habitus.skills.load("close-the-month").body
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("version 5")).to_be_visible()
    assert "Drink" not in site.habitus.skills.load("close-the-month").body

    page.set_viewport_size({"width": 375, "height": 812})
    for path in ("/", "/skills", "/skills/close-the-month?tab=edit", "/review"):
        page.goto(f"{site.address}{path}")
        assert page.evaluate("document.documentElement.scrollWidth") == 375, path


@pytest.mark.full
@pytest.mark.req("CL-02")
def test_a_file_is_dropped_looked_at_and_saved(page: Page, site: Site, tmp_path: Path) -> None:
    file = tmp_path / "brew-tea.md"
    file.write_text("---\nname: brew-tea\ndescription: How tea is brewed\n---\n1. Boil water.\n")
    page.goto(f"{site.address}/new")
    page.get_by_label("A file with skills").set_input_files(file)
    expect(page.locator("#looked")).to_contain_text("Nothing suspicious was found.")
    assert not site.habitus.skills.is_taken("brew-tea")
    page.get_by_role("button", name="Save them").click()
    expect(page.get_by_role("status")).to_contain_text("Saved: 1 skill.")
    assert site.habitus.skills.is_taken("brew-tea")


@pytest.mark.full
@pytest.mark.req("CL-02")
def test_what_waits_is_approved_and_turned_down(page: Page, site: Site) -> None:
    page.goto(f"{site.address}/review")
    expect(page.get_by_label("2 waiting")).to_be_visible()
    page.get_by_role("button", name="Approve").first.click()
    expect(page.get_by_role("status")).to_contain_text("Approved.")
    page.get_by_placeholder("Why not?").fill("Too small.")
    page.get_by_role("button", name="Turn down").click()
    expect(page.get_by_text("Nothing waits for you")).to_be_visible()
    expect(page.locator("#waiting")).to_be_hidden()


@pytest.mark.full
@pytest.mark.req("CL-02")
def test_what_went_wrong_is_said_on_the_open_page(page: Page, site: Site) -> None:
    page.goto(f"{site.address}/lessons")
    page.get_by_label("Something to remember").fill("   ")
    page.get_by_role("button", name="Remember it").click()
    expect(page.get_by_role("status")).to_contain_text("can't be kept")
    expect(page.get_by_role("heading", name="Lessons")).to_be_visible()


@pytest.mark.full
@pytest.mark.req("CL-02")
@pytest.mark.parametrize("width", [1280, 375])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_accessible_and_fits_the_screen(chromium: Browser, site: Site, width: int, scheme: str) -> None:
    context = chromium.new_context(
        viewport={"width": width, "height": 812}, color_scheme="dark" if scheme == "dark" else "light"
    )
    page, problems = context.new_page(), []
    site.enter(page)
    for path in PAGES:
        page.goto(f"{site.address}{path}")
        found = Axe().run(page).response["violations"]
        problems += [(path, one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in SERIOUS]
        if page.evaluate("document.documentElement.scrollWidth") > width:
            problems.append((path, "wider than the screen", ""))
    context.close()
    assert problems == []


SERIOUS = ("serious", "critical")
