"""While the shared database is away, pages and REST are read from what this host last saw of it, and say so."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from habitus.app import Habitus, read_settings
from habitus.app.home_directory import STAND_IN
from habitus.skills.model import Skill
from habitus.web.app import make_app
from habitus.web.homes_by_person import AS_OF, Desks
from habitus.web.security import keys_of
from tests.contracts.lines import Line
from tests.web.conftest import HOST


@pytest.mark.req("OP-03")
def test_pages_and_rest_are_read_from_the_copy_and_the_log_says_it_once(
    home: Path, tmp_path: Path, line: Line, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "habitus")
    settings = read_settings(home, {"HOME": str(tmp_path), "USER": "ann", "HABITUS_DATABASE": line.url})
    with Habitus.open(settings.model_copy(update={"cwd": tmp_path})) as habitus:
        tea = Skill(name="brew-tea", description="How tea is brewed", body="1. Boil water.")
        habitus.skills.create(tea, habitus.person())
        desks, keys = Desks(habitus), keys_of(habitus)
        headers = {"Authorization": f"Bearer {keys.bearer}"}
        api = TestClient(make_app(desks, keys, {HOST}), base_url=f"http://{HOST}", headers=headers)
        paths = ("/api/v1/skills/brew-tea", "/api/v1/skills", "/api/v1/lessons", "/api/v1/search?q=brew+tea")
        try:
            wait_until((home / STAND_IN).exists)
            before = [api.get(path) for path in paths]
            line.cut()
            caplog.clear()
            away = [api.get(path) for _ in range(5) for path in paths]
            assert [answer.status_code for answer in away] == [200] * len(away)
            assert all(AS_OF in answer.headers for answer in away)
            assert [answer.json() for answer in away[: len(paths)]] == [answer.json() for answer in before]
            page = api.get("/skills")
            assert "The database is away. This is what was seen" in page.text
            assert "brew-tea" in page.text
            assert api.post("/api/v1/lessons", json={"text": "Tea is hot."}).status_code == 503
            said = [record.message for record in caplog.records if "database" in record.message]
            assert said == ["The database is away. This process works from what was seen last."]
            line.mend()
            wait_until(lambda: AS_OF not in api.get(paths[0]).headers)
            assert api.post("/api/v1/lessons", json={"text": "Tea is hot."}).status_code == 201
        finally:
            desks.close()


def wait_until(holds: Callable[[], bool]) -> None:
    tick = threading.Event()
    for _ in range(600):
        if holds():
            return
        tick.wait(0.1)
    raise AssertionError("It never came.")
