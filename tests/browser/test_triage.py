"""The inbox by keyboard and in bulk, in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from habitus.skills.review import ProposalState
from tests.browser.conftest import Site
from tests.browser.test_alive import write


@pytest.mark.req("CL-02")
def test_changes_are_decided_by_keyboard_and_all_at_once(page: Page, site: Site) -> None:
    """While another process adds to the list."""
    habitus = site.habitus
    write(site, "rob", count=4)
    page.goto(f"{site.address}/inbox")
    rows, notice = page.locator("#pending > li"), page.get_by_role("status")
    expect(rows).to_have_count(6)
    page.keyboard.press("j")
    expect(page.locator("#item-title")).to_contain_text("sales-by-region")
    page.keyboard.press("a")
    expect(notice).to_contain_text("Approved.")
    assert habitus.skills.is_name_taken("sales-by-region")
    page.keyboard.press("u")
    expect(rows).to_have_count(6)
    assert not habitus.skills.is_name_taken("sales-by-region")
    page.keyboard.press("d")
    expect(notice).to_contain_text("Rejected")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text("decline")
    page.keyboard.press("Escape")

    page.get_by_label("Kind").select_option("new")
    expect(rows).to_have_count(4)
    write(site, "sue")
    expect(rows).to_have_count(5)  # of this kind only, as the filter says
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.get_by_role("button", name="Reject", exact=True).first.click()
    expect(notice).to_contain_text("Rejected: 1 item.")
    page.get_by_label("Kind").select_option("new")
    page.get_by_role("button", name="Approve all 4 new skills").click()
    expect(notice).to_contain_text("Approved: 4 items.")
    assert len(habitus.review.list(ProposalState.PENDING)) == 1
    page.get_by_role("button", name="Undo", exact=True).first.click()
    expect(rows).to_have_count(4)
    assert not habitus.skills.is_name_taken("wish-rob-3")
