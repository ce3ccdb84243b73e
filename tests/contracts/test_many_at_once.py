"""Many requests at once, on SQLite and on PostgreSQL: none waits for itself, and each gets its own answer."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response

from habitus.app import Habitus, read_settings
from habitus.web.app import make_app
from habitus.web.desks import Desks
from habitus.web.security import keys_of
from tests.conftest import Cli
from tests.web.conftest import HOST, standing

API = "/api/v1"


@pytest.fixture(params=["sqlite", "postgresql"])
def api(request: pytest.FixtureRequest, home: Path, tmp_path: Path) -> Iterator[TestClient]:
    """A program that sends the token."""
    database = request.getfixturevalue("url") if request.param == "postgresql" else None
    settings = read_settings(home, {"HOME": str(tmp_path), "USER": "ann"})
    with Habitus.open(settings.model_copy(update={"cwd": tmp_path, "database": database})) as habitus:
        keys, desks = keys_of(habitus), Desks(habitus)
        headers = {"Authorization": f"Bearer {keys.bearer}"}
        with TestClient(
            make_app(desks, keys, {HOST}, app=standing()), base_url=f"http://{HOST}", headers=headers
        ) as client:
            yield client
        desks.close()


@pytest.mark.req("OP-05")
def test_lessons_added_at_once_each_have_their_own_undo(api: TestClient) -> None:
    def add(number: int) -> Response:
        return api.post(f"{API}/lessons", json={"text": f"The wine of vineyard {number} needs {number} years."})

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(add, range(16)))
    assert [answer.status_code for answer in answers] == [201] * 16
    told = [answer.json() for answer in answers]
    assert [one["undo"] for one in told] == [["undo", f"{one['lesson']['id']}:1"] for one in told]
    kept = api.get(f"{API}/lessons").json()["lessons"]
    assert {one["id"] for one in kept} == {one["lesson"]["id"] for one in told}


SIZE = """
import sys
from habitus.app import Habitus, read_settings
settings = read_settings()
with Habitus.open(settings.for_many() if sys.argv[1:] else settings) as habitus:
    print(habitus.shared.pool.size())
"""


def test_a_server_has_more_connections_than_a_command_and_the_settings_decide(
    run_cli: Cli, python: str, url: str
) -> None:
    def size(*words: str, **more: str) -> int:
        environ = run_cli.environ({"HABITUS_DATABASE": url, **more})
        done = subprocess.run([python, "-c", SIZE, *words], env=environ, capture_output=True, text=True, check=True)
        return int(done.stdout)

    assert [size(), size("serves")] == [2, 8]
    assert size("serves", HABITUS_DATABASE_CONNECTIONS="3") == 3
