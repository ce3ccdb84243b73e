"""The page in a real browser: Debian's chromium, signed in, on a home with life in it."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest
import uvicorn
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from habitus.app import Habitus, read_settings
from habitus.cli.operating.up import StreamEndingServer
from habitus.web.app import make_web_app
from habitus.web.home_pool import HomePool
from habitus.web.security import SignInService, load_sign_in_service
from habitus.web.streams import StreamEndingMiddleware
from tests.web.furnished import furnish_with_life

expect.set_options(timeout=int(os.environ.get("BROWSER_TIMEOUT_MS", "300000")))  # a busy machine takes its time
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)


class Writer(Protocol):
    def __call__(self, *who: str, count: int = 1) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Site:
    habitus: Habitus
    address: str
    keys: SignInService

    def enter(self, page: Page) -> None:
        """As a person does, by the link."""
        page.goto(f"{self.address}/enter?key={self.keys.create_owner_sign_in_key()}")


@pytest.fixture
def is_lived_in() -> bool:
    """Whether there are skills, lessons and conversations already."""
    return True


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of the database; empty means SQLite in the home. Parametrize it indirectly with "postgresql"."""
    if getattr(request, "param", "") != "postgresql":
        yield ""
        return
    from tests.contracts import postgres  # the real server is started only for the tests that need it

    with postgres.schema(request.getfixturevalue("postgres_server")) as address:
        yield address


def _build_environ(directory: Path, database: str) -> dict[str, str]:
    environ = {"HOME": str(directory), "USER": "ann", "HABITUS_DURABLE": "false"}
    return environ | ({"HABITUS_DATABASE": database} if database else {})


@pytest.fixture
def site(home: Path, tmp_path: Path, is_lived_in: bool, database: str) -> Iterator[Site]:
    settings = read_settings(home, _build_environ(tmp_path, database)).model_copy(update={"cwd": tmp_path})
    with Habitus.open(settings) as habitus:
        if is_lived_in:
            furnish_with_life(habitus)
        with serve(habitus) as site:
            yield site


@contextmanager
def serve(habitus: Habitus) -> Iterator[Site]:
    """Serve a home on this machine, as `habitus up` does, until the context closes."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()  # who comes before the server accepts waits, and is not turned away
        host = f"127.0.0.1:{listener.getsockname()[1]}"
        keys, homes = load_sign_in_service(habitus), HomePool(habitus)
        ending = StreamEndingMiddleware(make_web_app(homes, keys, [host]))
        server = StreamEndingServer(uvicorn.Config(ending, log_level="warning", lifespan="off"), ending)
        serving = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
        serving.start()
        try:
            yield Site(habitus=habitus, address=f"http://{host}", keys=keys)
        finally:
            server.should_exit = True
            serving.join()
            homes.close()


# Another process, as another agent is one: it records turns, proposes skills and learns, one after another.
WRITER = """
import os
import sys
from pathlib import Path
from habitus.app import Habitus, read_settings
from habitus.journal.model import Turn
from habitus.skills.model import ActorKind, Author, Skill
from habitus.skills.review import ProposalAction, SkillChange
from habitus.skills.trees import update_main_file

home, who, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
settings = read_settings(home, os.environ)
agent = Author(actor=ActorKind.AGENT, name=who, reason="it was asked for")
with Habitus.open(settings) as habitus:
    for number in range(count):
        id = f"{who}-{number}"
        now = habitus.clock()
        turn = Turn(id=id, session=who, request=f"Request {id}", started_on=now, user="ann")
        habitus.journal.record_complete_turn(turn)
        skill = Skill(name=f"wish-{id}", description=f"How {id} is done", body="1. Begin.\\n")
        change = SkillChange(
            action=ProposalAction.WRITE, name=skill.name, layer="user", tree=update_main_file({}, skill)
        )
        habitus.review.submit(change, agent)
        habitus.memory.add(f"Lesson of {id}: look first.")
"""


@pytest.fixture
def write(site: Site, python: str, tmp_path: Path, database: str) -> Writer:
    """Let as many processes write at once, and wait until they are done; on PostgreSQL each has the home of another
    host.
    """

    def write(*who: str, count: int = 1) -> None:
        started = []
        for name in who:
            home = tmp_path / f"host-{name}" / ".habitus" if database else site.habitus.settings.home
            environ = os.environ | _build_environ(home.parent, database)
            started.append(subprocess.Popen([python, "-c", WRITER, str(home), name, str(count)], env=environ))
        assert [one.wait() for one in started] == [0] * len(who)

    return write


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
