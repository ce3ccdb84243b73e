"""Journeys in a real browser: what only scripts, keys and a screen can show."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from habitus.files import build_tree_file
from habitus.skills.review import ProposalAction, SkillChange
from tests.browser.conftest import Site, drop
from tests.web.furnished import AGENT
from tests.web.test_pages import ATTACKS, PAGES


@pytest.mark.req("CL-02", "CL-04")
def test_a_person_searches_edits_and_takes_back(page: Page, site: Site) -> None:
    expect(page.get_by_role("heading", name="Home")).to_be_visible()
    page.keyboard.press("Control+k")
    page.keyboard.type("skills")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("close the month")
    expect(page.locator("#sought a").first).to_contain_text("Close the month")
    page.keyboard.press("Enter")
    page.wait_for_url("**/skills/close-the-month")
    page.get_by_role("link", name="Skills", exact=True).click()
    page.wait_for_load_state()
    search = page.get_by_role("searchbox", name="Search skills")
    search.focus()
    search.press_sequentially("finish the bookkeeping")
    page.wait_for_url("**/skills?q=finish+the+bookkeeping&*")
    expect(page.locator(".skills tbody tr").first).to_contain_text("Close the month")
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
    for path in ("/", "/skills", "/skills/close-the-month?tab=edit", "/inbox"):
        page.goto(f"{site.address}{path}")
        assert page.evaluate("document.documentElement.scrollWidth") == 375, path


@pytest.mark.full
@pytest.mark.req("IM-08")
def test_the_report_is_printed_on_one_page_without_what_surrounds_it(page: Page, site: Site) -> None:
    page.goto(f"{site.address}/insights/month")
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    page.emulate_media(media="print")
    expect(page.get_by_role("navigation", name="Pages")).to_be_hidden()
    expect(page.get_by_role("heading", name="Cost", exact=True)).to_be_visible()
    assert page.pdf().count(b"/Type /Page\n") == 1


@pytest.mark.full
@pytest.mark.req("CL-02")
def test_a_file_is_dropped_looked_at_and_saved(page: Page, site: Site, tmp_path: Path) -> None:
    file = tmp_path / "brew-tea.md"
    file.write_text("---\nname: brew-tea\ndescription: How tea is brewed\n---\n1. Boil water.\n")
    archive = tmp_path / "jam.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("make-jam/SKILL.md", file.read_text().replace("brew-tea", "make-jam"))
    for dropped, name in ((file, "brew-tea"), (archive, "make-jam")):
        page.goto(f"{site.address}/import")
        drop(page, dropped)
        expect(page.locator("#looked")).to_contain_text("Nothing suspicious was found.")
        assert not site.habitus.skills.is_name_taken(name)
        page.get_by_role("button", name="Import", exact=True).click()
        expect(page.get_by_role("status")).to_contain_text("Saved: 1 skill.")
        assert site.habitus.skills.is_name_taken(name)


@pytest.mark.full
@pytest.mark.req("CL-02")
def test_what_waits_is_approved_and_turned_down(page: Page, site: Site) -> None:
    page.goto(f"{site.address}/inbox")
    expect(page.get_by_label("2 pending review")).to_be_visible()
    page.get_by_role("button", name="Approve", exact=True).first.click()
    expect(page.get_by_role("status")).to_contain_text("Approved.")
    page.get_by_placeholder("Reason").fill("Too small.")
    page.get_by_role("button", name="Reject", exact=True).click()
    expect(page.get_by_text("Nothing pending review")).to_be_visible()
    expect(page.locator("#waiting")).to_be_hidden()


@pytest.mark.full
@pytest.mark.req("CL-02")
def test_what_went_wrong_is_said_on_the_open_page(page: Page, site: Site) -> None:
    page.goto(f"{site.address}/lessons")
    page.get_by_label("New lesson").fill("   ")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text("can't be stored")
    expect(page.get_by_role("heading", name="Lessons")).to_be_visible()


@pytest.mark.full
@pytest.mark.req("CL-02")
def test_a_skill_is_written_by_hand(page: Page, site: Site) -> None:
    page.keyboard.press("n")
    page.wait_for_url("**/new")
    page.get_by_label("Title").fill("Brew tea")
    page.get_by_label("What it does").fill("How tea is brewed")
    page.locator("markdown-editor .cm-content").click()
    page.keyboard.press("Control+A")  # the lines that stand there are typed over
    page.keyboard.type("1. Boil water.")
    expect(page.locator("#preview li")).to_have_text(["Boil water."])
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("heading", name="Brew tea")).to_be_visible()
    assert site.habitus.skills.load("brew-tea").body.strip() == "1. Boil water."


@pytest.mark.full
@pytest.mark.req("CL-02")
def test_an_earlier_version_is_compared_and_brought_back(page: Page, site: Site) -> None:
    page.goto(f"{site.address}/skills/close-the-month?tab=history")
    page.get_by_role("link", name="Changes", exact=True).nth(1).click()
    expect(page.get_by_role("heading", name="What version 2 changed")).to_be_visible()
    page.get_by_role("button", name="Roll back").last.click()
    expect(page.get_by_role("status")).to_contain_text("version 1")
    assert "Tell the team" not in site.habitus.skills.load("close-the-month").body


@pytest.mark.full
@pytest.mark.req("CL-02")
def test_somebody_asks_whether_a_skill_would_be_used(page: Page, site: Site) -> None:
    page.goto(f"{site.address}/skills/close-the-month?tab=fits")
    page.get_by_label("A request").fill("close the books of March")
    page.get_by_role("button", name="Try", exact=True).click()
    expect(page.locator(".card h2")).to_be_visible()
    page.goto(f"{site.address}/try")
    page.get_by_role("textbox", name="A request").press_sequentially("close the books of March")
    expect(page.locator("#tried").get_by_role("link", name="Close the month").first).to_be_visible()


@pytest.mark.full
@pytest.mark.req("CL-02")
def test_a_lesson_is_added_changed_put_away_and_brought_back(page: Page, site: Site) -> None:
    page.goto(f"{site.address}/lessons")
    page.get_by_label("New lesson").fill("Invoices are numbered by year.")
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_role("link", name="Invoices are numbered by year.").click()
    page.get_by_label("Text").fill("Invoices are numbered by month.")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="Invoices are numbered by month.")).to_be_visible()
    page.goto(f"{site.address}/lessons")
    page.get_by_role("button", name="Archive: Invoices are numbered by month.").click()
    page.get_by_role("button", name="Restore: Invoices are numbered by month.").click()
    expect(page.get_by_role("button", name="Archive: Invoices are numbered by month.")).to_be_visible()


@pytest.mark.full
@pytest.mark.req("CL-02")
def test_a_conversation_is_looked_at_and_judged(page: Page, site: Site) -> None:
    page.goto(f"{site.address}/activity")
    shown_first = page.locator("#item").element_handle()  # the latest, which is the same here
    page.get_by_role("link", name="Please close March.").click()
    page.wait_for_function("shown => !shown.isConnected", arg=shown_first)
    expect(page.get_by_text("14 invoices are booked.")).to_be_visible()
    page.get_by_role("button", name="This turn failed").click()
    expect(page.locator(".turn .state", has_text="failed")).to_be_visible()
    sources = [outcome.kind.value for outcome in site.habitus.journal.get_turn("t1", user="ann").outcomes]
    assert "failed" in sources


@pytest.mark.full
@pytest.mark.req("CL-02")
def test_learning_is_paused_and_resumed(page: Page, site: Site) -> None:
    switch = page.get_by_role("switch", name="Pause learning")
    switch.click()
    expect(switch).to_have_attribute("aria-checked", "true")
    expect(page.locator("#paused")).to_be_visible()
    assert site.habitus.pause.get_pause_details() is not None
    page.get_by_role("button", name="Undo").click()
    expect(switch).to_have_attribute("aria-checked", "false")
    expect(page.locator("#paused")).to_be_hidden()


@pytest.mark.full
@pytest.mark.req("CL-02")
def test_the_keys_are_told_and_move_down_the_list(page: Page, site: Site) -> None:
    page.goto(f"{site.address}/skills")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    page.wait_for_url("**/skills/close-the-month")
    page.go_back()
    page.keyboard.press("j")
    page.keyboard.press("e")
    page.wait_for_url("**/skills/close-the-month?tab=edit")


@pytest.mark.full
@pytest.mark.req("CL-02", "CL-04")
def test_of_two_tabs_the_second_sees_the_conflict_and_keeps_its_text(page: Page, site: Site) -> None:
    address = f"{site.address}/skills/tidy-inbox?tab=edit"
    page.goto(address)
    other = page.context.new_page()
    other.goto(address)
    for tab, text in ((page, "First tab."), (other, "Second tab.")):
        tab.locator("markdown-editor .cm-content").click()
        tab.keyboard.press("Control+End")
        tab.keyboard.type(text)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_contain_text("Saved as version 2.")
    other.get_by_role("button", name="Save").click()
    expect(other.get_by_text("Another person saved version 2 while you were editing.")).to_be_visible()
    expect(other.locator("markdown-editor .cm-content")).to_contain_text("Second tab.")
    assert "First tab." in site.habitus.skills.load("tidy-inbox").body
    other.get_by_role("button", name="Save").click()
    expect(other.get_by_role("status")).to_contain_text("Saved as version 3.")
    assert "Second tab." in site.habitus.skills.load("tidy-inbox").body


@pytest.mark.full
@pytest.mark.req("CL-04")
def test_nothing_that_is_written_in_a_skill_runs(page: Page, site: Site) -> None:
    """In any field, on any page: a script that ran would open a dialog, and one that was stopped is complained of."""
    page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
    habitus = site.habitus
    for number, attack in enumerate(ATTACKS):
        said = json.dumps(attack)
        fields = ("title", "description", "when_to_use", "license", "compatibility")
        head = "".join(f"{key}: {said}\n" for key in fields) + f"tags: [{said}]\nmetadata: {{x: {said}}}\n"
        text = f"---\nname: attack-{number}\n{head}---\n{attack}\n\n`{attack}`\n"
        folder = habitus.settings.home / "skills" / f"attack-{number}"
        folder.mkdir()
        (folder / "SKILL.md").write_text(text)
        (folder / "onerror=alert(1).md").write_text(attack)
        habitus.memory.add(f"{attack} is no lesson {number}", topic=attack)
        tree = {"SKILL.md": build_tree_file(text.replace("attack-", "wish-").encode())}
        wish = SkillChange(
            action=ProposalAction.WRITE, name=f"wish-{number}", layer="user", tree=tree, findings=(attack,)
        )
        habitus.review.submit(wish, replace(AGENT, reason=attack))
        for tab in ("read", "edit", "history&version=1", "fits&request=x", "files"):
            page.goto(f"{site.address}/skills/attack-{number}?tab={tab}")
    for path in ("/", "/skills", f"/skills?q={quote(ATTACKS[0])}", "/inbox", "/lessons", "/try?request=attack"):
        page.goto(f"{site.address}{path}")
    assert page.evaluate("document.querySelectorAll('main img, main iframe, main object').length") == 0


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
    for path in (*PAGES, "/model"):
        page.goto(f"{site.address}{path}")
        found = Axe().run(page).response["violations"]
        problems += [(path, one["id"], one["nodes"][0]["html"]) for one in found]
        if page.evaluate("document.documentElement.scrollWidth") > width:
            problems.append((path, "wider than the screen", ""))
    context.close()
    assert problems == []


# Numbers what a person can use on the page and can see; what says that it is no stop (tabindex -1) is elsewhere too.
MARK_CONTROLS = """[...document.querySelectorAll("a[href], button, input, select, textarea, summary")]
  .filter((one) => one.checkVisibility({visibilityProperty: true}) && one.type !== "hidden")
  .filter((one) => !one.disabled && one.tabIndex >= 0)
  .map((one, at) => (one.dataset.at = at, one.outerHTML.slice(0, 120)))"""


@pytest.mark.full
@pytest.mark.req("CL-02")
def test_every_control_of_every_page_is_reached_by_keyboard_alone(page: Page, site: Site) -> None:
    unreached = []
    for path in (*PAGES, "/model"):
        page.goto(f"{site.address}{path}")
        expect(page.locator("main .busy, .htmx-request")).to_have_count(0)
        controls = page.evaluate(MARK_CONTROLS)
        reached = set()
        for _ in range(2 * len(controls) + 20):  # once round from wherever the page puts the focus first
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.dataset.at"))
            if len(reached - {None}) == len(controls):
                break
        unreached += [(path, control) for at, control in enumerate(controls) if str(at) not in reached]
    assert unreached == []
