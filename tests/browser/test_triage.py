"""The inbox by keyboard and in bulk, in a real browser."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import Page, expect

from habitus.llm.scripted import ScriptedModel, calls, says
from habitus.skills.review import ProposalState
from tests.browser.conftest import Site, Writer


@pytest.mark.req("CL-02")
def test_changes_are_decided_by_keyboard_and_all_at_once(page: Page, site: Site, write: Writer) -> None:
    """While another process adds to the list."""
    habitus = site.habitus
    write("rob", count=4)
    page.goto(f"{site.address}/inbox")
    rows, notice = page.locator("#pending > li"), page.get_by_role("status")
    expect(rows).to_have_count(6)
    page.keyboard.press("j")
    expect(page.locator("#item-title")).to_contain_text("sales-by-region")
    page.keyboard.press("a")
    expect(notice).to_contain_text("Approved.")
    assert habitus.skills.is_name_taken("sales-by-region")
    page.keyboard.press("u")
    expect(page.locator("#item-title")).to_contain_text("sales-by-region")  # loaded anew: rows alone arrive before that
    expect(rows).to_have_count(6)
    assert not habitus.skills.is_name_taken("sales-by-region")
    page.keyboard.press("d")
    expect(notice).to_contain_text("Rejected")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text("reject")
    page.keyboard.press("Escape")

    page.get_by_label("Kind").select_option("new")
    expect(rows).to_have_count(4)
    write("sue")
    expect(rows).to_have_count(5)  # of this kind only, as the filter says
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.get_by_role("button", name="Reject", exact=True).first.click()
    expect(notice).to_contain_text("Rejected: 1 item.")
    page.get_by_label("Kind").select_option("new")
    page.get_by_role("button", name="Approve all 4 new skills").click()
    expect(notice).to_contain_text("Approved: 4 items.")
    assert len(habitus.review.list_proposals_by_state(ProposalState.PENDING)) == 1
    page.get_by_role("button", name="Undo", exact=True).first.click()
    expect(rows).to_have_count(4)
    assert not habitus.skills.is_name_taken("wish-rob-3")


@pytest.mark.full
@pytest.mark.req("CL-02")
def test_a_turn_shows_what_happened_and_how_long_it_took(page: Page, site: Site) -> None:
    model = ScriptedModel([calls("recall_skill", {"name": "close-the-month"}), says("It is closed.")])

    async def ask() -> None:
        async with site.habitus.session(model) as session:
            await session.turn("Please close April.")

    # The browser's own loop runs in this thread.
    with ThreadPoolExecutor() as pool:
        pool.submit(asyncio.run, ask()).result()
    page.goto(f"{site.address}/activity")
    happened = page.get_by_role("list", name="What happened")
    expect(happened).to_contain_text("close-the-month version 3 was opened by the agent")
    expect(happened).to_contain_text(re.compile(r"was opened by the agent, relevance \d+ %"))
    call = happened.locator("li", has_text="recall_skill")
    expect(call).to_contain_text(re.compile(r"\d (ms|s)"))
    expect(call.locator("svg")).to_have_count(1)
    page.get_by_role("button", name="This turn succeeded").click()
    expect(page.get_by_role("button", name="This turn succeeded")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("link", name="Why these skills?").click()
    expect(page.locator("#tried .fit").first).to_contain_text("Close the month")
