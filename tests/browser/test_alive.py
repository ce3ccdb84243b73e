"""Pages that follow what other processes write, in a real browser, while two processes write at once."""

from __future__ import annotations

import subprocess
import sys

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Site

# Another process, as another agent is one: it records turns and proposes skills, one after another.
WRITER = """
import sys
from pathlib import Path
from habitus.app import Habitus, read_settings
from habitus.journal.model import Turn
from habitus.skills.model import ActorKind, Author, Skill
from habitus.skills.review import ProposalAction, SkillChange
from habitus.skills.trees import update_main_file

home, who, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
settings = read_settings(home, {"HOME": str(home.parent), "USER": "ann", "HABITUS_DURABLE": "false"})
agent = Author(actor=ActorKind.AGENT, name=who, reason="it was asked for")
with Habitus.open(settings) as habitus:
    for number in range(count):
        id = f"{who}-{number}"
        now = habitus.clock()
        habitus.journal.record_turn(Turn(id=id, session=who, request=f"Request {id}", started_on=now, user="ann"))
        skill = Skill(name=f"wish-{id}", description=f"How {id} is done", body="1. Begin.\\n")
        change = SkillChange(
            action=ProposalAction.WRITE, name=skill.name, layer="user", tree=update_main_file({}, skill)
        )
        habitus.review.submit(change, agent)
        habitus.memory.add(f"Lesson of {id}: look first.")
"""

PLACE = "document.querySelector('#row-t1').getBoundingClientRect().top"


def write(site: Site, *who: str, count: int = 1) -> None:
    """Let as many processes write at once, and wait until they are done."""
    home = site.habitus.settings.home
    started = [subprocess.Popen([sys.executable, "-c", WRITER, str(home), name, str(count)]) for name in who]
    assert [one.wait() for one in started] == [0] * len(who)


@pytest.mark.full
@pytest.mark.req("CL-02")
def test_what_two_processes_write_appears_on_the_open_page(page: Page, site: Site) -> None:
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

    write(site, "rob", "sue", count=3)

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
@pytest.mark.parametrize("is_lived_in", [False])
def test_the_first_thing_appears_on_an_empty_page(page: Page, site: Site, is_lived_in: bool) -> None:
    page.goto(f"{site.address}/inbox")
    expect(page.get_by_role("heading", name="Nothing pending review")).to_be_visible()
    write(site, "rob")
    expect(page.get_by_role("button", name="Approve", exact=True)).to_be_visible()


@pytest.mark.req("CL-02")
def test_a_page_that_hears_nothing_has_a_button_and_catches_up(page: Page, site: Site) -> None:
    page.goto(f"{site.address}/activity")
    expect(page.get_by_role("button", name="Refresh")).to_be_hidden()
    page.evaluate("follow = () => {}, document.querySelector('#refresh').hidden = false")  # the stream is lost
    write(site, "rob")
    page.get_by_role("button", name="Refresh").click()
    expect(page.locator("#requests")).to_contain_text("Request rob-0")
    expect(page.get_by_role("button", name="Refresh")).to_be_hidden()
