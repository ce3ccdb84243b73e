"""The application in this process, with a browser that is signed in, a stranger, and a program with the token."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
from fastapi.testclient import TestClient
from starlette.types import ASGIApp

from habitus.app import Habitus
from habitus.skills.model import Skill
from habitus.web.app import doors, make_app
from habitus.web.homes_by_person import Desks
from habitus.web.routing import Application
from habitus.web.security import Keys, keys_of

HOST = "127.0.0.1:8765"


@cache
def standing() -> Application:
    """Doors that tests stand behind in turn: setting them up takes longer than most tests."""
    return doors()


@pytest.fixture
def habitus_skills() -> list[Skill]:
    return [Skill(name="brew-tea", title="Brew tea", description="How tea is brewed", body="1. Boil water.\n")]


@pytest.fixture
def keys(habitus: Habitus) -> Keys:
    return keys_of(habitus)


@pytest.fixture
def app(habitus: Habitus, keys: Keys) -> Iterator[ASGIApp]:
    desks = Desks(habitus)
    yield make_app(desks, keys, {HOST, "localhost:8765"}, app=standing())
    desks.close()


@pytest.fixture
def stranger(app: ASGIApp) -> TestClient:
    return TestClient(app, base_url=f"http://{HOST}", follow_redirects=False)


@pytest.fixture
def api(app: ASGIApp, keys: Keys) -> TestClient:
    """A program that sends the token."""
    return TestClient(app, base_url=f"http://{HOST}", headers={"Authorization": f"Bearer {keys.bearer}"})


@pytest.fixture
def browser(app: ASGIApp, keys: Keys) -> TestClient:
    """A browser that opened the link, on a page of ours."""
    client = TestClient(app, base_url=f"http://{HOST}")
    cookie = keys.enter(keys.new_link()) or ""
    client.cookies.set(keys.cookie, cookie)
    client.headers.update({"X-CSRF": keys.csrf(cookie), "Origin": f"http://{HOST}"})
    return client
