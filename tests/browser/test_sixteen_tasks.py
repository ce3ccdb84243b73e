"""Sixteen tasks that people come for, each from Home in a real browser with at most three clicks, and no terminal."""

from __future__ import annotations

import json
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from habitus.journal.model import Turn
from tests.browser.conftest import Site, drop

ADDRESS = "https://1.1.1.1/team/skills.git"  # of the public internet; git is told to look for it here
SKILL = "---\nname: {0}\ndescription: About {0}\n---\n1. Begin.\n"


@pytest.fixture
def surroundings(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model that answers, an agent on this machine, and a repository that git finds behind a public address."""
    monkeypatch.setenv("HOME", str(tmp_path))
    script = tmp_path / "model.json"
    script.write_text(json.dumps([{"say": "The north sold **7**."}]))
    (home / "habitus.toml").write_text(f'model = "script:{script}"\n')
    (tmp_path / ".claude").mkdir()
    repository = tmp_path / "far" / "skills"
    (repository / "brew-tea").mkdir(parents=True)
    (repository / "brew-tea" / "SKILL.md").write_text(SKILL.format("brew-tea"))
    who = ("-c", "user.name=ann", "-c", "user.email=ann@example.org")
    for words in (("init", "-q"), ("add", "."), (*who, "commit", "-qm", "Tea")):
        subprocess.run(["git", "-C", str(repository), *words], check=True)
    (tmp_path / ".gitconfig").write_text(f'[url "file://{repository}"]\n\tinsteadOf = {ADDRESS}\n')
    return tmp_path


class Person:
    """Clicks, and counts them; typing and choosing a file are none."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self._address = address
        self._clicks = 0

    @contextmanager
    def task(self, name: str) -> Iterator[None]:
        self.page.goto(self._address)
        self._clicks = 0
        yield
        assert self._clicks <= 3, name

    def click(self, what: Locator) -> None:
        self._clicks += 1
        what.first.click()
        self.page.wait_for_load_state()  # nobody types before a page is there

    def goes_to(self, page: str) -> None:
        self.click(self.page.get_by_role("navigation", name="Pages").get_by_role("link", name=page))

    def opens(self, name: str) -> None:
        """By the keyboard alone."""
        self.page.keyboard.press("Control+k")
        self.page.keyboard.type(name)
        expect(self.page.locator("#sought a").first).to_contain_text(name)
        self.page.keyboard.press("Enter")
        expect(self.page.get_by_role("heading", name=name).first).to_be_visible()


@pytest.mark.full
@pytest.mark.req("CL-02")
def test_what_people_come_for_takes_three_clicks_and_no_terminal(surroundings: Path, page: Page, site: Site) -> None:
    habitus = site.habitus
    for number in range(3):
        asked = Turn(
            id=f"q{number}", session="q", request="Sum sales by region", started_on=habitus.clock(), user="ann"
        )
        habitus.journal.record_complete_turn(asked)
    person = Person(page, site.address)
    last = page.get_by_role("heading", name="Agents", exact=True).bounding_box()
    assert last is not None
    assert last["y"] + last["height"] < 860  # Home fits the first screen
    _look_after_skills(person, site)
    _bring_in(person, site, surroundings)
    _teach(person, site)
    _operate(person, site, surroundings)


def _look_after_skills(person: Person, site: Site) -> None:
    page, habitus = person.page, site.habitus
    with person.task("find"):
        person.goes_to("Skills")
        page.get_by_role("searchbox", name="Search skills").press_sequentially("finish the bookkeeping")
        expect(page.locator(".skills tbody tr").first).to_contain_text("Close the month")
    with person.task("edit"):
        person.opens("Close the month")
        person.click(page.get_by_role("link", name="Edit", exact=True))
        page.locator("markdown-editor .cm-content").focus()
        page.keyboard.press("Control+End")
        page.keyboard.type("5. Drink tea.")
        person.click(page.get_by_role("button", name="Save"))
        expect(page.get_by_role("status")).to_contain_text("Saved as version 4.")
        assert "Drink tea" in habitus.skills.load("close-the-month").body
        person.click(page.get_by_role("button", name="Undo"))  # the third task
        expect(page.get_by_text("version 5")).to_be_visible()
        assert "Drink tea" not in habitus.skills.load("close-the-month").body
    with person.task("compare"):
        person.opens("Close the month")
        person.click(page.get_by_role("link", name="History"))
        person.click(page.get_by_role("button", name="Show diff"))
        expect(page.locator(".diff .new").first).to_be_visible()
    with person.task("decide"):
        person.goes_to("Inbox")
        expect(page.locator(".effect")).to_contain_text("the last 4 requests")
        person.click(page.get_by_role("button", name="Approve", exact=True))
        expect(page.get_by_role("status")).to_contain_text("Approved.")
        assert "Add a chart" in habitus.skills.load("weekly-report").body
    with person.task("why"):
        person.goes_to("Skills")
        person.click(page.get_by_role("link", name="Try a request"))
        page.get_by_role("textbox", name="A request").press_sequentially("close the books of March")
        expect(page.locator("#tried .fit").first).to_contain_text("Close the month")
    with person.task("does it help"):
        person.goes_to("Insights")
        person.click(page.get_by_role("link", name="Everybody's"))
        expect(page.locator(".effect-row", has_text="close-the-month")).to_contain_text("helps")


def _bring_in(person: Person, site: Site, place: Path) -> None:
    page, habitus = person.page, site.habitus
    archive = place / "skills.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("make-jam/SKILL.md", SKILL.format("make-jam"))
    with person.task("zip"):
        person.goes_to("Skills")
        person.click(page.get_by_role("link", name="Import", exact=True))
        page.get_by_label("A file with skills").set_input_files(archive)
        person.click(page.get_by_role("button", name="Import", exact=True))
        expect(page.get_by_role("row", name="make-jam")).to_contain_text("imported")
        assert habitus.skills.is_name_taken("make-jam")
    folder = place / "garden"
    (folder / "plant-beans").mkdir(parents=True)
    (folder / "plant-beans" / "SKILL.md").write_text(SKILL.format("plant-beans"))
    with person.task("folder"):
        person.goes_to("Skills")
        person.click(page.get_by_role("link", name="Import", exact=True))
        drop(page, folder)
        person.click(page.get_by_role("button", name="Import", exact=True))
        expect(page.get_by_role("row", name="plant-beans")).to_contain_text("imported")
        with page.expect_navigation():  # the page is shown anew
            page.get_by_role("button", name="Undo import").click()
        assert not habitus.skills.is_name_taken("plant-beans")
    with person.task("address"):
        person.goes_to("Skills")
        person.click(page.get_by_role("link", name="Import", exact=True))
        page.get_by_label("A site, a repository or an archive").fill(ADDRESS)
        person.click(page.get_by_role("button", name="Fetch"))
        expect(page.get_by_role("row", name="brew-tea")).to_contain_text("imported")
        assert habitus.skills.is_name_taken("brew-tea")


def _teach(person: Person, site: Site) -> None:
    page = person.page
    with person.task("add a lesson"):
        person.goes_to("Lessons")
        page.get_by_label("New lesson").fill("Invoices are numbered by year.")
        person.click(page.get_by_role("button", name="Add", exact=True))
        expect(page.get_by_role("link", name="Invoices are numbered by year.")).to_be_visible()
    with person.task("correct one"):
        person.goes_to("Lessons")
        person.click(page.get_by_role("link", name="Invoices are numbered by year."))
        page.get_by_label("Text").fill("Invoices are numbered by month.")
        person.click(page.get_by_role("button", name="Save"))
        expect(page.get_by_role("heading", name="Invoices are numbered by month.")).to_be_visible()


def _operate(person: Person, site: Site, place: Path) -> None:
    page, habitus = person.page, site.habitus
    sales = place / "sales.csv"
    sales.write_text("region,sold\nnorth,7\n")
    with person.task("chat with a CSV"):
        person.goes_to("Chat")
        page.get_by_label("Attach files").set_input_files(sales)
        page.get_by_label("Your request").fill("What did the north sell?")
        page.keyboard.press("Enter")
        expect(page.locator("section.turn .prose strong")).to_have_text("7")
        expect(page.locator("section.turn .chip")).to_have_text(["sales.csv"])
    with person.task("pause"):
        person.click(page.get_by_role("switch", name="Pause learning"))
        expect(page.get_by_role("switch", name="Pause learning")).to_have_attribute("aria-checked", "true")
        assert habitus.pause.get_pause_details() is not None
    with person.task("invite a person"):
        person.goes_to("Team")
        page.get_by_label("Name").fill("ben")
        person.click(page.get_by_role("button", name="Invite"))
        assert page.get_by_label("The link").input_value().startswith(f"{site.address}/enter?key=")
    with person.task("connect an agent"):
        person.goes_to("Connections")
        person.click(page.get_by_role("button", name="Connect Claude Code"))
        expect(page.locator(".changes")).to_contain_text("mcpServers")
        person.click(page.locator(".changes").get_by_role("button", name="Connect Claude Code"))
        expect(page.get_by_role("status")).to_contain_text("Claude Code is connected.")
        assert "habitus" in json.loads((place / ".claude.json").read_text())["mcpServers"]
    with person.task("schedule a job"):
        person.goes_to("Automation")
        person.click(page.get_by_label("When: Find recipes"))
        page.get_by_label("When: Find recipes").select_option("sunday")
        expect(page.get_by_role("status")).to_contain_text("Saved.")
        expect(page.get_by_label("At what time: Find recipes")).to_have_value("03:00")
        assert "weekly on sunday at 03:00" in (habitus.settings.home / "habitus.toml").read_text()
