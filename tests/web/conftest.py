"""The application in this process, with a browser that is signed in, a stranger, and a program with the token."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
from fastapi.testclient import TestClient
from starlette.types import ASGIApp

from habitus.app import Habitus
from habitus.skills.model import Skill
from habitus.web.app import build_application_without_home, make_web_app
from habitus.web.home_pool import HomePool
from habitus.web.routing import FastAPIWithAccessRules
from habitus.web.security import SignInService, load_sign_in_service

HOST = "127.0.0.1:8765"


@cache
def standing() -> FastAPIWithAccessRules:
    """Doors that tests stand behind in turn: setting them up takes longer than most tests."""
    return build_application_without_home()


@pytest.fixture
def habitus_skills() -> list[Skill]:
    return [Skill(name="brew-tea", title="Brew tea", description="How tea is brewed", body="1. Boil water.\n")]


@pytest.fixture
def keys(habitus: Habitus) -> SignInService:
    return load_sign_in_service(habitus)


@pytest.fixture
def app(habitus: Habitus, keys: SignInService) -> Iterator[ASGIApp]:
    desks = HomePool(habitus)
    yield make_web_app(desks, keys, {HOST, "localhost:8765"}, app=standing())
    desks.close()


@pytest.fixture
def stranger(app: ASGIApp) -> TestClient:
    return TestClient(app, base_url=f"http://{HOST}", follow_redirects=False)


@pytest.fixture
def api(app: ASGIApp, keys: SignInService) -> TestClient:
    """A program that sends the token."""
    return TestClient(app, base_url=f"http://{HOST}", headers={"Authorization": f"Bearer {keys.owner_token}"})


@pytest.fixture
def browser(app: ASGIApp, keys: SignInService) -> TestClient:
    """A browser that opened the link, on a page of ours."""
    client = TestClient(app, base_url=f"http://{HOST}")
    cookie = keys.exchange_sign_in_key_for_cookie(keys.create_owner_sign_in_key()) or ""
    client.cookies.set(keys.cookie, cookie)
    client.headers.update({"X-CSRF": keys.make_csrf_token(cookie), "Origin": f"http://{HOST}"})
    return client
