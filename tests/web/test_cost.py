"""The cost of a change over REST, in transactions, looks at directories and YAML read."""

from __future__ import annotations

import gc

import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from habitus.app import Habitus
from habitus.web.app import build_application_without_home, make_web_app
from habitus.web.home_pool import HomePool
from habitus.web.security import SignInService
from tests.costs import assert_cheap_edit, counted_costs
from tests.web.conftest import HOST

SKILL = "/api/v1/skills/brew-tea"


@pytest.mark.req("PF-04")
def test_an_edit_takes_few_transactions_one_look_and_one_parse_each_way(api: TestClient) -> None:
    api.get("/api/v1/skills")  # notes what is new on disk
    tag = api.get(SKILL).headers["ETag"]
    for number in (2, 3):  # the second time the file is a moment old
        with counted_costs() as costs:
            changed = api.patch(SKILL, json={"body": f"{number}.", "title": f"T{number}"}, headers={"If-Match": tag})
        assert changed.json()["undo"] == ["undo", f"brew-tea@user:{number}"]
        assert_cheap_edit(costs)
        tag = changed.headers["ETag"]
    shown = api.get(SKILL).json()
    assert (shown["body"], shown["title"], shown["version"]) == ("3.", "T3", 3)


@pytest.mark.req("PF-05")
def test_a_route_is_analysed_at_its_first_request(habitus: Habitus, keys: SignInService) -> None:
    """Analysing all of them is a fifth of what the start of a server costs."""

    def list_analysed() -> set[str]:
        return {route.path for route in gc.get_objects() if type(route) is APIRoute and id(route) not in before}

    before = {id(route) for route in gc.get_objects() if type(route) is APIRoute}
    desks = HomePool(habitus)
    app = make_web_app(desks, keys, {HOST}, app=build_application_without_home())
    assert list_analysed() == set()
    api = TestClient(app, base_url=f"http://{HOST}", headers={"Authorization": f"Bearer {keys.owner_token}"})
    assert [api.get(path).status_code for path in ("/lessons", "/api/v1/lessons", "/static/icon.svg")] == [200] * 3
    assert list_analysed() == {"/lessons", "/api/v1/lessons"}
    assert api.head("/lessons").status_code == 405
    desks.close()
