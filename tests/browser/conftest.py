"""The page in a real browser: Debian's chromium, signed in, on a home with life in it."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvicorn
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from habitus.app import Habitus, read_settings
from habitus.web.app import make_web_app
from habitus.web.home_pool import HomePool
from habitus.web.security import SignInKeys, load_sign_in_keys
from tests.web.furnished import furnish_with_life

expect.set_options(timeout=int(os.environ.get("BROWSER_TIMEOUT_MS", "300000")))  # a busy machine takes its time
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)


@dataclass(frozen=True, kw_only=True)
class Site:
    habitus: Habitus
    address: str
    keys: SignInKeys

    def enter(self, page: Page) -> None:
        """As a person does, by the link."""
        page.goto(f"{self.address}/enter?key={self.keys.create_sign_in_key()}")


@pytest.fixture
def is_lived_in() -> bool:
    """Whether there are skills, lessons and conversations already."""
    return True


@pytest.fixture
def site(home: Path, tmp_path: Path, is_lived_in: bool) -> Iterator[Site]:
    environ = {"HOME": str(tmp_path), "USER": "ann", "HABITUS_DURABLE": "false"}
    settings = read_settings(home, environ).model_copy(update={"cwd": tmp_path})
    with Habitus.open(settings) as habitus, socket.socket() as door:
        if is_lived_in:
            furnish_with_life(habitus)
        door.bind(("127.0.0.1", 0))
        door.listen()  # who comes before the server accepts waits, and is not turned away
        host = f"127.0.0.1:{door.getsockname()[1]}"
        keys, desks = load_sign_in_keys(habitus), HomePool(habitus)
        server = uvicorn.Server(uvicorn.Config(make_web_app(desks, keys, [host]), log_level="warning", lifespan="off"))
        serving = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[door])))
        serving.start()
        try:
            yield Site(habitus=habitus, address=f"http://{host}", keys=keys)
        finally:
            server.should_exit = True
            serving.join()
            desks.close()


@pytest.fixture
def chromium() -> Iterator[Browser]:
    """One for each test: while it is there, no other event loop can run in this process."""
    where = shutil.which("chromium") or shutil.which("google-chrome")
    if where is None:
        pytest.skip("there is no browser here (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=where, args=FLAGS.split())
        yield browser
        browser.close()


def _is_complaint(said: ConsoleMessage) -> bool:
    """An answer that says what is wrong is none."""
    return said.type == "error" and "the server responded with a status of 4" not in said.text


def drop(page: Page, path: Path) -> None:
    """Let a file or a folder fall where files are dropped, as from the desktop."""
    at = page.locator("[data-drop]").bounding_box()
    assert at is not None
    page.wait_for_load_state()  # until its scripts are there, a browser opens what falls on it
    session = page.context.new_cdp_session(page)
    carried = {"items": [], "files": [str(path)], "dragOperationsMask": 1}
    where = {"x": at["x"] + at["width"] / 2, "y": at["y"] + 12}
    for kind in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": kind, "data": carried, **where})


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Where each journey leaves a picture of its end, for whoever wants to look at it."""
    place = Path(os.environ.get("SCREENSHOTS") or tmp_path / "screenshots")
    place.mkdir(parents=True, exist_ok=True)
    return place


@pytest.fixture
def page(chromium: Browser, site: Site, pictures: Path, request: pytest.FixtureRequest) -> Iterator[Page]:
    """Signed in; what a browser complains about, such as a script it was not allowed to run, fails the test."""
    complaints: list[str] = []
    context = chromium.new_context(viewport={"width": 1280, "height": 860})
    page = context.new_page()
    page.set_default_timeout(300_000)  # of a busy machine
    page.on("console", lambda said: complaints.append(said.text) if _is_complaint(said) else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    site.enter(page)
    yield page
    page.screenshot(path=pictures / f"{request.node.name.removeprefix('test_')}.png", full_page=True)
    context.close()
    assert complaints == []
