"""While the shared database is away, pages and REST are read from what this host last saw of it, and say so."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from habitus.app import Habitus, read_settings
from habitus.app.home_directory import OFFLINE_SNAPSHOT_FILE
from habitus.app.operating.people import UserRole, open_user_accounts
from habitus.app.sharing import offline_snapshot
from habitus.skills.model import Skill
from habitus.web.api.wording import API_ROOT
from habitus.web.app import build_application_without_home, make_web_app
from habitus.web.home_pool import AS_OF_HEADER, HomePool
from habitus.web.security import load_sign_in_service
from tests.conftest import Cli
from tests.contracts.lines import Line
from tests.contracts.test_everybody_at_once import Call, Sent, is_read, routes, world
from tests.homes import furnish
from tests.web.conftest import HOST


@pytest.mark.req("OP-03")
def test_pages_and_rest_are_read_from_the_copy_and_the_log_says_it_once(
    home: Path, tmp_path: Path, line: Line, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "habitus")
    settings = read_settings(home, {"HOME": str(tmp_path), "USER": "ann", "HABITUS_DATABASE": line.url})
    with Habitus.open(settings.model_copy(update={"cwd": tmp_path})) as habitus:
        tea = Skill(name="brew-tea", description="How tea is brewed", body="1. Boil water.")
        habitus.skills.create(tea, habitus.build_author())
        desks, keys = HomePool(habitus), load_sign_in_service(habitus)
        headers = {"Authorization": f"Bearer {keys.owner_token}"}
        api = TestClient(make_web_app(desks, keys, {HOST}), base_url=f"http://{HOST}", headers=headers)
        paths = ("/api/v1/skills/brew-tea", "/api/v1/skills", "/api/v1/lessons", "/api/v1/search?q=brew+tea")
        try:
            wait_until((home / OFFLINE_SNAPSHOT_FILE).exists)
            before = [api.get(path) for path in paths]
            line.cut()
            caplog.clear()
            away = [api.get(path) for _ in range(5) for path in paths]
            assert [answer.status_code for answer in away] == [200] * len(away)
            assert all(AS_OF_HEADER in answer.headers for answer in away)
            assert [answer.json() for answer in away[: len(paths)]] == [answer.json() for answer in before]
            page = api.get("/skills")
            assert "The database is unreachable. This is a snapshot from" in page.text
            assert "brew-tea" in page.text
            for path in ("/automation", "/api/v1/jobs", "/api/v1/skills/brew-tea/improvements"):
                assert api.get(path).status_code == 200
            assert api.post("/api/v1/lessons", json={"text": "Tea is hot."}).status_code == 503
            said = [record.message for record in caplog.records if "database" in record.message]
            assert said == ["The database is unreachable. This process uses the offline snapshot."]
            line.restore()
            wait_until(lambda: AS_OF_HEADER not in api.get(paths[0]).headers)
            assert api.post("/api/v1/lessons", json={"text": "Tea is hot."}).status_code == 201
        finally:
            desks.close()


@pytest.mark.req("OP-03", "OP-07")
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_replica_that_never_saw_a_person_says_that_the_database_is_away_not_that_they_must_sign_in(
    home: Path, tmp_path: Path, line: Line, is_restarted: bool
) -> None:
    settings = read_settings(home, {"HOME": str(tmp_path), "USER": "ann", "HABITUS_DATABASE": line.url})
    web = settings.web.model_copy(update={"proxy_header": "X-User", "proxies": ("10.0.0.1",)})
    settings = settings.model_copy(update={"cwd": tmp_path, "web": web})
    with ExitStack() as around:
        if is_restarted:
            # Its snapshot is older than the account.
            with Habitus.open(settings) as before:
                offline_snapshot.refresh_snapshot(before)
        other = settings.model_copy(update={"home": furnish(tmp_path / "other")})
        with Habitus.open(other) as elsewhere:
            invited = open_user_accounts(elsewhere).add_or_reinvite_user("ben", UserRole.ADMIN)
            cookie = load_sign_in_service(elsewhere).exchange_sign_in_key_for_cookie(invited.link) or ""
        if is_restarted:
            line.cut()
        habitus = around.enter_context(Habitus.open(settings))
        desks = around.enter_context(closing(HomePool(habitus)))
        keys = load_sign_in_service(habitus)
        app = make_web_app(desks, keys, {HOST})
        line.cut()
        for headers in (
            {"X-User": "ben"},
            {"Cookie": f"habitus-0={cookie}"},
            {"Authorization": f"Bearer {invited.token}"},
        ):
            ben = TestClient(app, base_url=f"http://{HOST}", headers=headers, client=("10.0.0.1", 1))
            for path in ("/skills", "/api/v1/skills"):
                told = ben.get(path)
                assert (told.status_code, "The database is unreachable" in told.text) == (503, True), told.text
        stranger = TestClient(app, base_url=f"http://{HOST}")
        assert stranger.get("/skills").status_code == 401
        line.restore()
        wait_until(lambda: ben.get("/api/v1/skills").status_code == 200)


@pytest.mark.req("OP-03", "OP-08")
def test_no_empty_list_of_jobs_or_workers_is_printed_while_the_database_is_away(run_cli: Cli, line: Line) -> None:
    address = {"HABITUS_DATABASE": line.url}
    id = json.loads(run_cli("jobs", "add", "curate", "--json", env=address).out)["id"]
    with Habitus.open(read_settings(run_cli.home, {"HOME": str(run_cli.home), **address})) as habitus:
        offline_snapshot.refresh_snapshot(habitus)
    line.cut()
    for words in (("list",), ("workers",), ("list", "--json"), ("show", id)):
        done = run_cli("jobs", *words, env=address)
        assert (done.code, "The database is unreachable." in done.out + done.err) == (1, True), (words, done)
        assert len((done.out + done.err).splitlines()) == (1 if "--json" not in words else 4), done


# The copy has none of these: who asks for one is told that there is none, and as of when.
NOT_COPIED = re.compile(
    r"GET /(turns|sessions|jobs|review|review/effect|inbox|inbox/effect|inbox/alike|activity|chat)/{id}"
)


@pytest.mark.full
@pytest.mark.req("OP-03")
def test_every_read_is_answered_from_the_copy_and_leaves_no_trace_in_the_log(
    tmp_path: Path, line: Line, caplog: pytest.LogCaptureFixture
) -> None:
    with world(tmp_path / "home", line.url) as here:
        reads = here.calls([route for route in routes() if is_read(route)], ["bob"])
        named = next(call.sent for call in reads if call.route == "GET /evidence/rows")
        reads += [
            Call(
                route=f"GET {path}",
                who="bob",
                path=fill(path, reads),
                sent=named if path == "/insights/evidence" else Sent(),
                is_page=True,
            )
            for path in pages()
        ]
        before = [200 if call.is_page else here.ask(call).status_code for call in reads]
        offline_snapshot.refresh_snapshot(here.habitus)
        caplog.clear()
        cutting = threading.Timer(0.5, line.cut)
        cutting.start()
        followed = here.ask(Call(route="GET /live", who="bob", path="/live", sent=Sent(), is_page=True))
        assert followed.status_code == 200  # until the database was away: it has no other end
        cutting.join()
        wait_until(lambda: AS_OF_HEADER in here.ask(reads[0]).headers)
        for call, there in zip(reads, before, strict=True):
            found = here.ask(call)
            expected = 404 if NOT_COPIED.match(call.route) else there
            assert (found.status_code, AS_OF_HEADER in found.headers) == (expected, True), f"{call.route}: {found.text}"
        assert [record for record in caplog.records if record.exc_info] == []


def pages() -> list[str]:
    """Every page, and every part of one, that is read."""
    reads = [
        route.path
        for route in build_application_without_home().routes
        if isinstance(route, APIRoute) and "GET" in (route.methods or ())
    ]
    # The owner's, of a provider of sign-ins, or not without more than an address.
    aside = ("/enter", "/model", "/oidc/sign-in", "/oidc/callback", "{rest:path}", "/changes", "/file", "/live")
    return [path for path in reads if not path.startswith(API_ROOT) and not path.endswith(aside)]


def fill(path: str, calls: Sequence[Call]) -> str:
    """A page's address with the names and ids that REST is asked for."""
    known = {call.route.partition("/")[2]: call.path.split("/")[2] for call in calls if "{" in call.route}
    of = {"activity": "sessions", "chat": "sessions", "inbox": "review"}
    start = path.split("/")[1]
    id = known.get(f"{of.get(start, start)}/{{id}}", "")
    return path.replace("{name}", known["skills/{name}"]).replace("{agent}", "codex").replace("{id}", id)


def wait_until(holds: Callable[[], bool]) -> None:
    tick = threading.Event()
    for _ in range(6000):
        if holds():
            return
        tick.wait(0.1)
    raise AssertionError("It never came.")
