"""A bad skill, its tasks, an improvement, the approval on the page, the comparison in use, and the report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from habitus.app import Habitus, read_settings
from habitus.journal.model import SkillPlacementKind
from habitus.web.app import build_application, make_web_app
from habitus.web.home_pool import HomePool
from habitus.web.security import load_sign_in_service
from tests.cli.conftest import Direct
from tests.cli.test_climb import opened
from tests.cli.test_improve import _furnished, _script
from tests.improve.test_comparing import ask, conversations
from tests.web.conftest import HOST

NAME = "name-a-town"


def _sign_in(habitus: Habitus) -> TestClient:
    keys = load_sign_in_service(habitus)
    app = make_web_app(HomePool(habitus), keys, {HOST}, app=build_application())
    client = TestClient(app, base_url=f"http://{HOST}")
    cookie = keys.redeem_sign_in_key(keys.create_sign_in_key()) or ""
    client.cookies.set(keys.cookie, cookie)
    client.headers.update({"X-CSRF": keys.make_csrf_token(cookie), "Origin": f"http://{HOST}"})
    return client


def _say(direct: Direct, *words: str, env: Mapping[str, str] | None = None) -> str:
    """Run a command and return what it printed, on one line."""
    ran = direct(*words, env=env)
    assert ran.code == 0, ran.err
    return " ".join(ran.out.split())


@pytest.mark.full
@pytest.mark.req("IM-07", "IM-08")
def test_a_bad_skill_is_improved_approved_compared_in_use_and_reported(direct: Direct, tmp_path: Path) -> None:
    _furnished(direct, 24)
    month = f"{datetime.now(UTC):%Y-%m}"
    assert NAME in _say(direct, "skills", "improve", "--plan")
    model = {"HABITUS_MODEL": _script(tmp_path / "model.json", 24, 1)}
    assert "Proposed: habitus review show 1" in _say(
        direct, "skills", "improve", NAME, "--rounds", "1", "--yes", env=model
    )
    assert "20% of conversations get the version before it" in _say(direct, "review", "show", "1")
    with opened(direct) as habitus:
        page = _sign_in(habitus)
        assert "20% of conversations get the version before it" in page.get("/inbox/1").text
        assert page.post("/inbox/1/approve").status_code == 200
        # The change harms in use: those who got it are not content.
        new, old = (list(islice(conversations(habitus, new=is_new), n)) for is_new, n in ((True, 24), (False, 8)))
        for conversation in new:
            assert "Use capitals." in ask(habitus, conversation, ok=False)
        for conversation in old:
            assert "Use capitals." not in ask(habitus, conversation, ok=True)
        (turn,) = habitus.journal.list_session_turns(old[0])
        assert [one.place for one in turn.selected if one.name == NAME] == [SkillPlacementKind.EAGER]
        shown = page.get(f"/insights/month?month={month}").text
        assert "Because of compared changes about" in shown
        assert "fewer of 24 conversations succeeded" in shown
        assert turn.id in page.get(f"/insights/month/rows?of=succeeded&month={month}").text
    assert "version 1, drawn to be compared with version 2" in " ".join(
        _say(direct, "skills", "why", NAME, "--turn", turn.id).split()
    )
    assert "Harms: " in _say(direct, "skills", "comparisons")
    said = _say(direct, "report", "--month", month)
    assert "32 requests: 8 succeeded, 24 failed, 0 without feedback." in said
    assert "Because of compared changes about" in said
    assert "1 proposed, 1 approved; after comparing in use 0 kept, 0 rolled back" in said
    assert json.loads(_say(direct, "report", "rows", "compared", "--month", month, "--json"))["total"] == 32
    assert "rolled back" in _say(direct, "learn", "curate", "--apply")
    _say(direct, "review", "approve", "2")
    assert "Use capitals." not in direct.skill_file(NAME).read_text()
    _say(direct, "learn", "curate", "--apply")
    with Habitus.open(read_settings(direct.home)) as habitus:
        assert "Use capitals." not in ask(habitus, "afterwards")
    assert json.loads(_say(direct, "report", "--json"))["rolled_back"] == 1
