"""A server that has nothing but the copy of its database says so, and works on the database when that is back."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from habitus.app import Habitus, read_settings
from habitus.app.operating.people import UserRole, open_user_accounts
from habitus.app.sharing import offline_snapshot
from habitus.skills.model import Skill
from habitus.web.app import make_web_app
from habitus.web.home_pool import AS_OF_HEADER, HomePool
from habitus.web.security import load_sign_in_service
from tests.conftest import Cli
from tests.contracts.lines import Line
from tests.contracts.test_reads_while_away import wait_until
from tests.homes import furnish
from tests.web.conftest import HOST
from tests.web.test_up import program, up

AWAY = "The database is unreachable."
LESSON = {"text": "Tea is hot."}
TEA = Skill(name="brew-tea", description="How tea is brewed", body="1. Boil water.")


def open_host(home: Path, url: str) -> Habitus:
    settings = read_settings(home, {"HOME": str(home.parent), "USER": "ann", "HABITUS_DATABASE": url})
    return Habitus.open(settings.model_copy(update={"cwd": home.parent}))


@pytest.mark.req("OP-03", "CL-04")
def test_a_server_that_was_started_while_the_database_was_away_works_on_it_when_it_is_back(
    run_cli: Cli, tmp_path: Path, url: str, line: Line
) -> None:
    with open_host(run_cli.home, line.url) as habitus:
        habitus.skills.create(TEA, habitus.build_author())
        invited = open_user_accounts(habitus).add_or_reinvite_user("ben", UserRole.ADMIN)
        offline_snapshot.refresh_snapshot(habitus)
    ben = {"Authorization": f"Bearer {invited.token}"}
    line.cut()
    with up(run_cli, env={"HABITUS_DATABASE": line.url}) as said, program(said) as http:
        for who in ({}, ben):
            read = http.get("/api/v1/skills/brew-tea", headers=who)
            assert (read.status_code, AS_OF_HEADER in read.headers) == (200, True)
        assert http.post("/mcp", headers=ben, json={}).status_code == 400  # let in, and told what it lacks
        assert "The database is unreachable. This is a snapshot from" in http.get("/skills").text
        refused = http.post("/api/v1/lessons", json=LESSON)
        assert (refused.status_code, refused.json()["title"]) == (503, AWAY)
        assert http.get("/readyz").json()["status"] == "degraded"
        with open_host(furnish(tmp_path / "other"), url) as elsewhere:
            open_user_accounts(elsewhere).remove_and_bar_account("ben")
        line.restore()
        wait_until(lambda: AS_OF_HEADER not in http.get("/api/v1/skills").headers)
        assert http.get("/api/v1/skills", headers=ben).status_code == 401
        wait_until(lambda: http.post("/mcp", headers=ben, json={}).status_code == 401)
        assert http.post("/api/v1/lessons", json=LESSON).status_code == 201
        assert http.get("/readyz").json() == {"status": "ready", "reasons": []}
        id = http.post("/api/v1/jobs", json={"kind": "index"}).json()["id"]
        wait_until(lambda: http.get(f"/api/v1/jobs/{id}").json()["state"] == "done")


@pytest.mark.req("OP-03")
def test_a_setting_is_refused_while_the_database_is_away_and_the_server_keeps_its_connections(
    home: Path, line: Line
) -> None:
    with open_host(home, line.url) as habitus:
        desks, keys = HomePool(habitus), load_sign_in_service(habitus)
        headers = {"Authorization": f"Bearer {keys.owner_token}"}
        api = TestClient(make_web_app(desks, keys, {HOST}), base_url=f"http://{HOST}", headers=headers)
        try:
            offline_snapshot.refresh_snapshot(habitus)
            line.cut()
            refused = api.put("/api/v1/settings/bot_name", json={"value": "soup"})
            assert refused.status_code == 503
            assert refused.json()["title"].startswith(AWAY)
            line.restore()
            wait_until(lambda: AS_OF_HEADER not in api.get("/api/v1/skills").headers)
            assert "soup" not in api.get("/api/v1/settings").text
            assert api.post("/api/v1/lessons", json=LESSON).status_code == 201
            assert api.put("/api/v1/settings/bot_name", json={"value": "soup"}).status_code == 200
            assert api.post("/api/v1/lessons", json={"text": "Soup is hot."}).status_code == 201
        finally:
            desks.close()
