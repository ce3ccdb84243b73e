"""What a new person does first, without a terminal, and on a phone; in a real browser."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from habitus.app.conversations.models import resolve_main_and_cheap_model_names
from habitus.sandbox.credentials.vault import open_vault
from tests.browser.conftest import Site

KEY = "sk-ant-a-key-that-nobody-else-reads"


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An agent on this machine, no keys, no local servers, and something to open the vault with."""
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HABITUS_VAULT_KEY", "a password of some length")
    (tmp_path / ".claude").mkdir()
    return tmp_path


@pytest.mark.req("AG-02", "CL-02")
@pytest.mark.parametrize("is_lived_in", [False])
def test_a_model_is_chosen_a_key_kept_and_both_are_tested(
    surroundings: Path, page: Page, site: Site, is_lived_in: bool
) -> None:
    page.get_by_role("link", name="Choose", exact=True).click()
    page.get_by_label("API key").fill(KEY)
    page.get_by_role("button", name="Keep and use").click()
    expect(page.get_by_role("status").first).to_contain_text("is used from now on")
    expect(page.get_by_text("ANTHROPIC_API_KEY is kept in the vault")).to_be_visible()
    assert KEY not in page.content()
    home = site.habitus.settings.home
    assert not any(KEY.encode() in file.read_bytes() for file in home.rglob("*") if file.is_file())
    assert open_vault(home, {"HABITUS_VAULT_KEY": "a password of some length"}).get("ANTHROPIC_API_KEY") == KEY
    assert resolve_main_and_cheap_model_names(
        site.habitus.settings, {"HABITUS_VAULT_KEY": "a password of some length"}
    )[0]

    script = surroundings / "model.json"
    script.write_text(json.dumps([{"say": "ready"}]))
    page.get_by_role("textbox", name="Model", exact=True).fill(f"script:{script}")
    page.get_by_role("button", name="Use", exact=True).click()
    page.get_by_role("button", name=f"Test script:{script}").click()
    expect(page.get_by_text("answered “ready”")).to_be_visible()


@pytest.mark.req("CL-02", "CL-06")
def test_connecting_says_what_is_added_and_inviting_warns_of_an_own_address(
    surroundings: Path, page: Page, site: Site
) -> None:
    page.goto(f"{site.address}/connections")
    page.get_by_role("button", name="Connect Claude Code").click()
    expect(page.locator(".changes")).to_contain_text("Adds our server to ~/.claude.json")
    expect(page.locator(".changes")).to_contain_text("nothing else changes")
    expect(page.locator(".changes pre").first).to_be_hidden()
    page.get_by_text("Show the exact changes").click()
    expect(page.locator(".changes pre").first).to_be_visible()

    page.goto(f"{site.address}/team")
    expect(page.get_by_text("nobody else can open it")).to_be_visible()
    page.get_by_label("Name", exact=True).fill("ben")
    page.get_by_role("button", name="Invite").click()
    expect(page.get_by_role("alert")).to_contain_text("only works on this machine")
    page.get_by_label("Name", exact=True).fill("ben")
    page.get_by_label("Address").fill("http://shop.example:8765")
    page.get_by_role("button", name="Invite").click()
    expect(page.get_by_label("The link")).to_have_value(re.compile("^http://shop.example:8765/enter"))
    expect(page.get_by_role("alert")).to_have_count(0)


# Labels of the map that are shown and lie on one that is shown before them.
COVERED_LABELS = """[...document.querySelectorAll(".map text")]
  .filter((one) => getComputedStyle(one).opacity > 0).filter((one, at, all) =>
  all.slice(0, at).some((other) => {
    const [a, b] = [one.getBoundingClientRect(), other.getBoundingClientRect()];
    return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  })).map((label) => label.textContent)"""


@pytest.mark.req("CL-02")
def test_the_menu_of_a_phone_and_the_map(page: Page, site: Site) -> None:
    page.set_viewport_size({"width": 375, "height": 812})
    page.goto(f"{site.address}/skills?view=map")
    pages = page.get_by_role("navigation", name="Pages")
    expect(pages.get_by_role("link", name="Inbox")).to_be_hidden()
    pages.get_by_role("button", name="Menu").click()
    expect(pages.get_by_role("link", name="Inbox")).to_be_visible()
    expect(pages.get_by_role("button", name="Sign out")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    assert page.evaluate(COVERED_LABELS) == []
    dots = page.locator(".map a")
    page.get_by_label("Highlight skills").fill("month")
    expect(page.locator(".map a.hit")).to_have_attribute("href", "/skills/close-the-month")
    dots.first.focus()
    expect(page.locator(".map-card")).to_be_visible()
    whole = page.locator(".map svg").get_attribute("viewBox")
    page.get_by_role("button", name="Zoom in").click()
    assert page.locator(".map svg").get_attribute("viewBox") != whole
    page.get_by_role("button", name="Whole map").click()
    assert page.locator(".map svg").get_attribute("viewBox") == whole
