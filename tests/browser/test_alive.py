"""Pages that follow what other processes and other hosts write, in a real browser, while two write at once."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Site, Writer

ON_BOTH_DATABASES = pytest.mark.parametrize(
    "database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.full)], indirect=True
)
PLACE = "document.querySelector('#row-t1').getBoundingClientRect().top"


@pytest.mark.req("CL-02")
@ON_BOTH_DATABASES
def test_what_two_processes_write_appears_on_the_open_page(page: Page, site: Site, write: Writer) -> None:
    """On eight pages at once, which share one connection; the typed text, the place and the opened parts stay."""
    tabs: dict[str, list[Page]] = {}
    for path in ("/", "/inbox", "/activity", "/lessons", "/", "/inbox", "/activity", "/lessons"):
        tab = page.context.new_page()
        tab.goto(f"{site.address}{path}")
        tabs.setdefault(path, []).append(tab)
    inbox, activity, lessons = (tabs[path][0] for path in ("/inbox", "/activity", "/lessons"))
    inbox.get_by_placeholder("Reason").fill("Too small, because")
    inbox.get_by_text("Edit before approving").click()
    lessons.get_by_label("New lesson").fill("Half a lesson")
    activity.get_by_label("Search requests").focus()
    activity.evaluate("document.documentElement.style.minHeight = '3000px'; scrollTo(0, 300)")
    place = activity.evaluate(PLACE)
    shown = activity.locator(".turn").first.get_attribute("id")

    write("rob", "sue", count=3)

    for one in tabs["/"]:
        expect(one.locator(".tiles")).to_contain_text("8 pending review")
    for one in tabs["/inbox"]:
        expect(one.locator("#pending > li")).to_have_count(8)
        expect(one.locator("#waiting")).to_have_text("8")
    for one in tabs["/activity"]:
        expect(one.locator("#requests")).to_contain_text("Request sue-2")
        expect(one.locator("#requests")).to_contain_text("Request rob-2")
    for one in tabs["/lessons"]:
        expect(one.locator("#found")).to_contain_text("Lesson of rob-2")
    expect(inbox.get_by_placeholder("Reason")).to_have_value("Too small, because")
    expect(inbox.locator("details.acts")).to_have_attribute("open", "")
    expect(lessons.get_by_label("New lesson")).to_have_value("Half a lesson")
    assert abs(activity.evaluate(PLACE) - place) < 10  # six rows above it are new, and the reader sees the same ones
    assert activity.evaluate("document.activeElement.id") == "f-q"
    assert activity.locator(".turn").first.get_attribute("id") == shown


@pytest.mark.req("CL-02")
@ON_BOTH_DATABASES
@pytest.mark.parametrize("is_lived_in", [False])
def test_the_first_thing_appears_on_an_empty_page(page: Page, site: Site, write: Writer, is_lived_in: bool) -> None:
    page.goto(f"{site.address}/inbox")
    expect(page.get_by_role("heading", name="Nothing pending review")).to_be_visible()
    write("rob")
    expect(page.get_by_role("button", name="Approve", exact=True)).to_be_visible()


@pytest.mark.req("CL-02")
def test_a_page_that_hears_nothing_has_a_button_and_catches_up(page: Page, site: Site, write: Writer) -> None:
    page.goto(f"{site.address}/activity")
    expect(page.get_by_role("button", name="Refresh")).to_be_hidden()
    page.evaluate("follow = () => {}, document.querySelector('#refresh').hidden = false")  # the stream is lost
    write("rob")
    page.get_by_role("button", name="Refresh").click()
    expect(page.locator("#requests")).to_contain_text("Request rob-0")
    expect(page.get_by_role("button", name="Refresh")).to_be_hidden()
