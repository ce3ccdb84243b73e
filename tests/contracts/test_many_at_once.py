"""Many requests at once, on SQLite and on PostgreSQL: none waits for itself, and each gets its own answer."""

from __future__ import annotations

import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response

from habitus.app import Habitus
from habitus.settings import Settings
from habitus.skills.layers.listing import LibrarySnapshot
from habitus.skills.library import Library
from habitus.skills.model import Skill
from habitus.skills.stores.files import DirectoryBackend
from habitus.sql.change_notifications import ChangeTopic, get_change_feed
from habitus.web.app import make_web_app
from habitus.web.home_pool import HomePool
from habitus.web.security import load_sign_in_service
from tests.conftest import Cli
from tests.contracts.test_two_hosts import soon
from tests.costs import counted_costs
from tests.web.conftest import HOST, standing

API = "/api/v1"


@pytest.fixture(params=["sqlite", "postgresql"])
def habitus_settings(request: pytest.FixtureRequest, habitus_settings: Settings) -> Settings:
    database = request.getfixturevalue("url") if request.param == "postgresql" else None
    return habitus_settings.model_copy(update={"database": database, "durable": True})


@pytest.fixture
def api(habitus: Habitus) -> Iterator[TestClient]:
    """A program that sends the token."""
    keys, desks = load_sign_in_service(habitus), HomePool(habitus)
    headers = {"Authorization": f"Bearer {keys.owner_token}"}
    with TestClient(
        make_web_app(desks, keys, {HOST}, app=standing()), base_url=f"http://{HOST}", headers=headers
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


@pytest.mark.req("OP-05", "SK-22")
def test_pausing_and_resuming_at_once_are_both_done(habitus: Habitus) -> None:
    switch = habitus.pause
    with ThreadPoolExecutor(4) as pool:
        paused = pool.map(lambda number: switch.pause("ann") if number % 2 else switch.resume(), range(400))
        assert None not in list(paused)


SIZE = """
import sys
from habitus.app import Habitus, read_settings
settings = read_settings()
with Habitus.open(settings.for_server() if sys.argv[1:] else settings) as habitus:
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


@pytest.mark.req("OP-05")
def test_a_read_takes_few_transactions(api: TestClient, habitus: Habitus) -> None:
    tea = Skill(name="brew-tea", title="Brew tea", description="How tea is brewed", body="1. Boil water.")
    habitus.skills.create(tea, habitus.build_author())
    if habitus.shared is not habitus.local:
        assert soon(
            lambda: get_change_feed(habitus.shared).get_token_of_announced_changes(ChangeTopic.ROWS) is not None
        )
    few = {"/skills": 7, f"{API}/skills": 5, "/skills/brew-tea": 6, f"{API}/skills/brew-tea": 3}
    for path, most in few.items():  # one less, but when word of changes is proved anew
        assert api.get(path).status_code == 200  # fills what is kept from one request to the next
        taken: list[int] = []
        while not taken or (min(taken) > most and len(taken) < 20):  # caches expire on a slow machine, so try again
            with counted_costs() as costs:
                assert api.get(path).status_code == 200
            taken.append(costs.transactions)
        assert min(taken) <= most, (path, taken)


@pytest.mark.req("OP-05")
def test_requests_at_once_share_a_look_at_the_directories(api: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot, look = Library.snapshot, DirectoryBackend.list_folder_change_stamps
    looks = Counter[Path]()
    crowd = threading.Barrier(8)

    def together(self: Library, **given: Any) -> LibrarySnapshot:
        with suppress(threading.BrokenBarrierError):
            crowd.wait()
        crowd.abort()  # they come at once, and nobody is kept again
        return snapshot(self, **given)

    def counted(self: DirectoryBackend, known: Mapping[str, str]) -> Mapping[str, str]:
        looks[self.root] += 1
        return look(self, known)

    def ask_at_once() -> int:
        """How often the directory that was looked at most was, for eight requests."""
        looks.clear()
        crowd.reset()
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: api.get(f"{API}/skills").json(), range(8)))
        assert answers == answers[:1] * 8
        return max(looks.values())

    api.get(f"{API}/skills")
    monkeypatch.setattr(Library, "snapshot", together)
    monkeypatch.setattr(DirectoryBackend, "list_folder_change_stamps", counted)
    # On a busy machine they may still come one after the other; if each always had a look of its own, none would do.
    assert any(ask_at_once() < 8 for _ in range(50))
