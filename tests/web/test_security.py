"""At the door: strangers, other sites, other names for this machine, forged forms and too large a body."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from itertools import product
from pathlib import Path

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from starlette.routing import Route
from starlette.types import ASGIApp

from habitus import sql
from habitus.app import Habitus
from habitus.app.operating.people import UserAccountStore, UserRole, open_user_accounts
from habitus.journal.model import Turn
from habitus.settings import Settings
from habitus.web.app import make_web_app
from habitus.web.home_pool import HomePool
from habitus.web.security import OWNER_IDENTITY, SESSION_SECONDS, SignInService, load_sign_in_service
from tests.contracts import postgres
from tests.homes import furnish
from tests.jobs.counting import until
from tests.web.conftest import HOST, standing

SWITCH = "/api/v1/skills/brew-tea/disable"


def is_on(habitus: Habitus) -> bool:
    summary = habitus.skills.find("brew-tea").summary
    assert summary is not None
    return summary.enabled


@pytest.mark.req("CL-04")
def test_a_stranger_sees_nothing_and_changes_nothing(stranger: TestClient, habitus: Habitus) -> None:
    paths = ("skills", "lessons", "settings", "review", "sessions", "turns/t")
    for refused in (stranger.post(SWITCH), *(stranger.get(f"/api/v1/{path}") for path in paths)):
        assert (refused.status_code, refused.headers["content-type"]) == (401, "application/problem+json")
        assert "habitus up" in refused.json()["detail"]
    for token in ("wrong", "", "é", "x" * 10_000):
        header = {b"Authorization": f"Bearer {token}".encode()}
        assert stranger.get("/api/v1/skills", headers=header).status_code == 401
    assert is_on(habitus)


@pytest.mark.req("CL-04")
def test_a_form_of_another_page_changes_nothing(browser: TestClient, habitus: Habitus) -> None:
    assert browser.post(SWITCH, headers={"X-CSRF": "guess"}).status_code == 403
    assert browser.post(SWITCH, headers={"Origin": "http://evil.example"}).status_code == 403
    assert browser.post(SWITCH, headers={"Origin": "null"}).status_code == 403
    assert browser.post(SWITCH, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    del browser.headers["X-CSRF"]
    assert browser.post(SWITCH).status_code == 403
    assert is_on(habitus)


@pytest.mark.req("CL-04")
def test_a_name_that_was_pointed_here_gets_nothing(browser: TestClient) -> None:
    for host in ("evil.example", "evil.example:8765", "127.0.0.1", "127.0.0.1:80", ""):
        assert browser.get("/api/v1/skills", headers={"Host": host}).status_code == 421
    told = browser.get("/api/v1/skills", headers={"Host": "habitus"}).json()
    assert told["detail"] == "Open http://127.0.0.1:8765; a proxy passes on the header Host unchanged."
    assert browser.get("/api/v1/skills", headers={"Host": "localhost:8765"}).status_code == 200


@pytest.mark.req("CL-04")
def test_who_is_signed_in_and_on_our_page_may_change_things(browser: TestClient, habitus: Habitus) -> None:
    assert browser.post(SWITCH).status_code == 200
    assert not is_on(habitus)
    browser.cookies.clear()
    assert browser.post(SWITCH).status_code == 401


@pytest.mark.req("CL-04")
def test_a_cookie_is_ours_unchanged_and_not_for_ever(tmp_path: Path) -> None:
    now = 1_000.0
    settings = Settings(home=tmp_path, cwd=tmp_path, user_home=tmp_path)
    people = UserAccountStore(sql.create_in_memory_engine(), settings, lambda: datetime.now(UTC))
    keys = SignInService(b"k" * 32, people, clock=lambda: now)
    link = keys.create_owner_sign_in_key()
    cookie = keys.exchange_sign_in_key_for_cookie(link)
    assert cookie is not None
    assert keys.exchange_sign_in_key_for_cookie(link) is None
    assert keys.identify_by_cookie(cookie) == OWNER_IDENTITY
    until, rest = cookie.split(".", 1)
    forged = [f"{int(until) + 1}.{rest}", cookie[:-1], "", ".", "..", f"{until}.x.", "é", cookie + "x"]
    assert [other for other in forged if keys.identify_by_cookie(other)] == []
    assert SignInService(b"other" * 8, people).identify_by_cookie(cookie) is None
    now += SESSION_SECONDS
    assert keys.identify_by_cookie(cookie) is None


@pytest.mark.req("CL-04")
def test_the_key_is_kept_for_its_owner_and_survives_a_restart(habitus: Habitus) -> None:
    first = load_sign_in_service(habitus)
    assert stat.S_IMODE((habitus.settings.home / "web.key").stat().st_mode) == 0o600
    assert load_sign_in_service(habitus).owner_token == first.owner_token
    habitus.settings = habitus.settings.model_copy(update={"home": habitus.settings.home / "missing"})
    assert load_sign_in_service(habitus).owner_token != first.owner_token


@pytest.mark.req("CL-04")
def test_too_large_a_body_is_refused_before_it_is_read(api: TestClient, habitus: Habitus) -> None:
    read = 0

    def endless() -> Iterator[bytes]:
        nonlocal read
        while read < 100 * 1024 * 1024:
            read += 1024 * 1024
            yield b"x" * 1024 * 1024

    large = {"Content-Length": str(100 * 1024 * 1024), "Content-Type": "multipart/form-data; boundary=x"}
    assert api.post("/api/v1/uploads", content=b"", headers=large).status_code == 413
    assert api.post(SWITCH, headers={"Content-Length": "3000000"}).status_code == 413
    chunked = api.post("/api/v1/uploads", content=endless(), headers={"Content-Type": large["Content-Type"]})
    assert chunked.status_code in (400, 413)
    assert is_on(habitus)


@pytest.mark.req("CL-04")
def test_no_answer_lets_a_browser_run_what_is_written_in_it(stranger: TestClient) -> None:
    for path in ("/api/v1/skills", "/static/habitus.css", "/nothing", "/api/v1/nothing"):
        headers = stranger.get(path).headers
        policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
        assert policy["script-src"] == policy["style-src"] == "'self'"
        assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
        assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.req("CL-04")
@pytest.mark.parametrize(
    ("role", "statuses"), [(UserRole.VIEWER, [403, 403]), (UserRole.REVIEWER, [200, 403]), (UserRole.ADMIN, [200, 200])]
)
def test_everybody_does_what_their_role_allows_and_is_named(
    stranger: TestClient, habitus: Habitus, role: UserRole, statuses: list[int]
) -> None:
    people = open_user_accounts(habitus)
    invited = people.add_or_reinvite_user("ben", role)
    habitus.journal.record_complete_turn(
        Turn(id="t1", session="s1", request="tea", started_on=habitus.clock(), user="ben")
    )
    program = {"Authorization": f"Bearer {invited.token}"}
    assert [one["id"] for one in stranger.get("/api/v1/sessions", headers=program).json()["sessions"]] == ["s1"]
    judged = stranger.post("/api/v1/turns/t1/outcome", json={"ok": True}, headers=program)
    made = stranger.post(SWITCH, headers=program)
    assert [judged.status_code, made.status_code] == statuses
    if made.status_code == 200:
        (switch,) = habitus.skills.get_layer("user").store.read_change_history("brew-tea").lifecycle_events
        assert switch.author.name == "ben"

    assert stranger.get(f"/enter?key={invited.link}").status_code == 303
    assert stranger.get("/activity").status_code == 200
    assert f"ben, {role.value}" in stranger.get("/").text
    assert ('class="looking"' in stranger.get("/skills").text) is (role is not UserRole.ADMIN)
    assert ('class="looking"' in stranger.get("/inbox").text) is (role is UserRole.VIEWER)
    people.remove_and_bar_account("ben")
    assert stranger.get("/activity").status_code == 401
    assert stranger.get("/api/v1/skills", headers=program).status_code == 401


@pytest.mark.req("CL-04")
def test_what_somebody_else_teaches_stays_out_of_the_owners_pages(stranger: TestClient, habitus: Habitus) -> None:
    habitus.memory.add("The owner drinks coffee.")
    invited = open_user_accounts(habitus).add_or_reinvite_user("ben", UserRole.ADMIN)
    program = {"Authorization": f"Bearer {invited.token}"}
    made = stranger.post("/api/v1/lessons", json={"text": "Ben drinks tea."}, headers=program)
    assert made.status_code == 201
    pages = "".join(page.read_text() for page in (habitus.settings.home / "memory").glob("*.md"))
    assert "The owner drinks coffee." in pages
    assert "Ben drinks tea." not in pages


@pytest.mark.req("CL-04")
def test_a_compressed_page_has_another_token_each_time_and_all_of_them_work(
    browser: TestClient, habitus: Habitus
) -> None:
    """One that stays the same could be guessed from the sizes of compressed pages that repeat what was asked."""
    pages = [browser.get("/settings") for _ in range(3)]
    assert [page.headers["content-encoding"] for page in pages] == ["gzip"] * 3
    tokens = [re.findall(r'"X-CSRF": "(\w+)"', page.text)[0] for page in pages]
    assert len({token[:40] for token in tokens} | {token[40:] for token in tokens}) == 6
    for token in tokens:
        assert browser.post(SWITCH, headers={"X-CSRF": token}, data={"on": "false"}).status_code == 200
    assert browser.post(SWITCH, headers={"X-CSRF": tokens[0][:40] + tokens[1][40:]}).status_code == 403


@pytest.mark.req("CL-02")
def test_static_files_are_kept_for_good_and_sent_compressed(browser: TestClient) -> None:
    editor = re.findall(r'src="(/static/\w+/vendor/codemirror.js)"', browser.get("/new").text)[0]
    sent = browser.get(editor)
    assert sent.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert int(sent.headers["content-length"]) < 150_000 < len(sent.content)
    other = browser.get("/static/0123456789ab/vendor/codemirror.js")  # of a page that an earlier version has sent
    assert (other.content, other.headers["cache-control"]) == (sent.content, "no-cache")
    assert browser.get(editor, headers={"If-None-Match": sent.headers["etag"]}).status_code == 304
    plain = browser.get(editor, headers={"Accept-Encoding": "identity"})
    assert ("content-encoding" in plain.headers, plain.content) == (False, sent.content)


@pytest.mark.req("CL-04")
def test_nobody_looks_who_has_not_signed_in(stranger: TestClient, keys: SignInService) -> None:
    assert [stranger.get(path).status_code for path in ("/", "/skills", "/lessons", "/inbox")] == [401] * 4
    assert stranger.get("/static/habitus.css").status_code == 200
    assert stranger.get(f"/enter?key={keys.create_owner_sign_in_key()}").status_code == 303
    assert stranger.get("/skills").status_code == 200


@pytest.mark.req("CL-04")
def test_a_page_that_is_not_there_tells_a_stranger_nothing_of_the_home(
    stranger: TestClient, browser: TestClient
) -> None:
    wrong = {path: stranger.get(path) for path in ("/enterx", "/enter/x", "/static/nope", "/static/")}
    assert {path: answer.status_code for path, answer in wrong.items()} == {
        "/enterx": 401,
        "/enter/x": 401,
        "/static/nope": 404,
        "/static/": 404,
    }
    for answer in wrong.values():
        assert "Inbox" not in answer.text
        assert version("habitus") not in answer.text
    assert "Inbox" in browser.get("/static/nope").text


@pytest.mark.req("CL-04")
def test_a_trusted_proxy_says_who_asks_and_nobody_else_does(habitus: Habitus, keys: SignInService) -> None:
    open_user_accounts(habitus).add_or_reinvite_user("ben", UserRole.ADMIN)
    web = habitus.settings.web.model_copy(update={"proxy_header": "X-User", "proxies": ("10.0.0.0/8",)})
    habitus.settings = habitus.settings.model_copy(update={"web": web})
    desks = HomePool(habitus)
    app = make_web_app(desks, keys, {HOST})
    proxy, other = (TestClient(app, base_url=f"http://{HOST}", client=(at, 1)) for at in ("10.1.2.3", "11.0.0.1"))
    ben = {"X-User": "ben"}
    page = proxy.get("/", headers=ben).text
    assert "ben, admin" in page
    assert proxy.post(SWITCH, headers=ben).status_code == 403  # the proxy signs in every page's requests
    (csrf,) = re.findall(r'"X-CSRF": "(\w+)"', page)
    assert proxy.post(SWITCH, headers={**ben, "X-CSRF": csrf}).status_code == 200
    (switch,) = habitus.skills.get_layer("user").store.read_change_history("brew-tea").lifecycle_events
    assert switch.author.name == "ben"
    assert proxy.get("/").status_code == 401
    assert proxy.get("/", headers={"X-User": "eve"}).status_code == 403
    assert proxy.get("/", headers=[("X-User", "ben"), ("X-User", "eve")]).status_code == 403
    assert [other.get("/", headers=given).status_code for given in (ben, {})] == [403, 401]
    desks.close()


@pytest.mark.req("CL-04")
def test_of_links_and_tokens_only_hashes_are_kept(habitus: Habitus, stranger: TestClient) -> None:
    invited = open_user_accounts(habitus).add_or_reinvite_user("ben", UserRole.VIEWER)
    program = {"Authorization": f"Bearer {invited.token}"}
    assert stranger.get("/api/v1/skills", headers=program).status_code == 200
    with sql.write_transaction(habitus.shared) as connection:
        kept = repr(connection.execute(sa.text("SELECT * FROM sign_ins")).all())
        connection.execute(sa.text("ALTER TABLE sign_ins RENAME TO gone"))
    assert "ben" in kept
    assert invited.link not in kept
    assert invited.token not in kept
    broken = stranger.get("/api/v1/skills", headers=program)
    assert (broken.status_code, broken.headers["content-type"]) == (503, "application/problem+json")


@pytest.mark.req("CL-04")
def test_what_another_site_can_send_with_our_cookie_changes_nothing(browser: TestClient, habitus: Habitus) -> None:
    """A form, and what a page may fetch without being asked first: no word of ours is with it."""
    del browser.headers["X-CSRF"], browser.headers["Origin"]
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        for headers in ({}, {"Origin": "null"}, {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}):
            sent = browser.post(SWITCH, content=b'{"on": true}', headers={"Content-Type": kind, **headers})
            assert sent.status_code == 403, (kind, headers)
    assert is_on(habitus)


@pytest.mark.req("CL-04")
def test_nobody_is_made_somebody_else_by_another_site(
    browser: TestClient, stranger: TestClient, keys: SignInService, habitus: Habitus
) -> None:
    """Neither by a cookie that was planted, nor by a link to the attacker's own account."""
    planted = "9999999999.0.eve.0"
    stranger.cookies.set(keys.cookie, planted)
    assert stranger.get("/activity").status_code == 401
    entered = stranger.get(f"/enter?key={keys.create_owner_sign_in_key()}")
    assert planted not in entered.headers["set-cookie"]
    theirs = open_user_accounts(habitus).add_or_reinvite_user("eve", UserRole.VIEWER).link
    led = browser.get(f"/enter?key={theirs}", headers={"Sec-Fetch-Site": "cross-site"})
    assert (led.status_code, "set-cookie" in led.headers) == (403, False)
    assert browser.post(SWITCH).status_code == 200


@pytest.mark.req("CL-04", "OP-07")
def test_the_first_link_makes_one_admin_once_while_there_is_no_user(habitus: Habitus, stranger: TestClient) -> None:
    people, now = open_user_accounts(habitus), datetime.now(UTC)
    expired = people.create_first_admin_link(now - timedelta(minutes=16))
    link = people.create_first_admin_link(now)
    assert people.create_first_admin_link(now) == ""  # of two replicas that start, one says it
    assert [stranger.get(f"/enter?key={key}").status_code for key in (expired, f"{link}x", link, link)] == [
        *(403, 403, 303, 403)
    ]
    assert stranger.get("/team").status_code == 200
    assert [(one.name, one.role) for one in people.list_accounts()] == [("admin", UserRole.ADMIN)]
    assert people.create_first_admin_link(now + timedelta(hours=1)) == ""
    people.remove_and_bar_account("admin")
    unused = people.create_first_admin_link(now)
    people.add_or_reinvite_user("ben", UserRole.VIEWER)
    assert stranger.get(f"/enter?key={unused}").status_code == 403


@pytest.mark.req("CL-04")
def test_of_two_who_bring_one_link_one_comes_in(keys: SignInService) -> None:
    links = [keys.create_owner_sign_in_key() for _ in range(20)]
    with ThreadPoolExecutor(8) as threads:
        came = list(threads.map(keys.exchange_sign_in_key_for_cookie, [link for link in links for _ in range(8)]))
    assert sum(cookie is not None for cookie in came) == len(links)


HOSTILE = ("..%2f..%2fweb.key", "%00", "%ed%a0%80", "9" * 5000, "%C2%B2", "%0d%0aX-Evil:%201", "~", "*", "%F0%9F%98%80")


@pytest.mark.full
@pytest.mark.req("CL-04", "SC-01")
def test_no_id_in_an_address_leads_anywhere_else(api: TestClient, habitus: Habitus) -> None:
    key = (habitus.settings.home / "web.key").read_bytes()
    routes = [route for route in standing().routes if isinstance(route, Route) and "{" in route.path]
    assert len(routes) > 50
    for route, id in product(routes, HOSTILE):
        for method in route.methods or ():
            answer = api.request(method, re.sub(r"\{\w+(:path)?\}", id, route.path), json={})
            assert answer.status_code < 500, (method, route.path, id)
            assert key not in answer.content
            assert "x-evil" not in answer.headers


@pytest.mark.req("SC-04")
@pytest.mark.parametrize("is_removed", [True, False])
def test_a_cookie_ends_with_the_role_or_the_membership_it_was_given_for(
    stranger: TestClient, keys: SignInService, habitus: Habitus, is_removed: bool
) -> None:
    people = open_user_accounts(habitus)
    old = keys.exchange_sign_in_key_for_cookie(people.add_or_reinvite_user("eve", UserRole.VIEWER).link) or ""
    assert keys.identify_by_cookie(old) is not None
    if is_removed:
        people.remove_and_bar_account("eve")
        assert keys.identify_by_cookie(old) is None
    new = keys.exchange_sign_in_key_for_cookie(people.add_or_reinvite_user("eve", UserRole.ADMIN).link) or ""
    stranger.cookies.set(keys.cookie, old)
    assert stranger.get("/api/v1/sessions").status_code == 401
    stranger.cookies.set(keys.cookie, new)
    assert stranger.get("/api/v1/sessions").status_code == 200


@pytest.fixture
def replicas(habitus_settings: Settings, tmp_path: Path, postgres_server: str) -> Iterator[dict[Habitus, ASGIApp]]:
    """Two replicas of one database, each with a home of its own."""
    with ExitStack() as around:
        address = around.enter_context(postgres.schema(postgres_server))
        homes = [
            around.enter_context(Habitus.open(habitus_settings.model_copy(update={"home": home, "database": address})))
            for home in (furnish(tmp_path / "one"), furnish(tmp_path / "two"))
        ]
        pools = [around.enter_context(closing(HomePool(habitus))) for habitus in homes]
        yield {pool.owner_home: make_web_app(pool, load_sign_in_service(pool.owner_home), {HOST}) for pool in pools}


def open_browser(app: ASGIApp, cookies: Mapping[str, str]) -> TestClient:
    return TestClient(app, base_url=f"http://{HOST}", cookies=dict(cookies), follow_redirects=False)


def sign_out(browser: TestClient) -> str:
    """Sign out on the page; the cookies that the browser drops."""
    page = browser.get("/activity").text
    assert "Sign out" in page
    (csrf,) = re.findall(r'"X-CSRF": "(\w+)"', page)
    answer = browser.post("/sign-out", headers={"X-CSRF": csrf, "Origin": f"http://{HOST}"})
    assert answer.status_code == 204
    return " ".join(re.findall(r'(habitus-\w+)=""; .*?Max-Age=0', answer.headers["set-cookie"]))


@pytest.mark.req("CL-04", "OP-07")
def test_a_copied_cookie_is_refused_on_every_replica_once_its_person_signs_out(
    replicas: dict[Habitus, ASGIApp],
) -> None:
    first, second = replicas.values()
    people = open_user_accounts(next(iter(replicas)))
    ann, ben = open_browser(first, {}), open_browser(first, {})
    for browser, name in ((ann, "ann"), (ben, "ben")):
        assert (
            browser.get("/enter", params={"key": people.add_or_reinvite_user(name, UserRole.ADMIN).link}).status_code
            == 303
        )
    copies = [open_browser(app, ann.cookies) for app in (first, second)]
    assert [copy.get("/activity").status_code for copy in copies] == [200, 200]
    # A balancer may send the request to another replica than the one that signed her in.
    ann = open_browser(second, ann.cookies)
    assert [sign_out(ann)] == list(ann.cookies)
    for copy in copies:
        until(lambda copy=copy: copy.get("/activity").status_code == 401)  # type: ignore[misc]
    assert ben.get("/activity").status_code == 200


@pytest.mark.req("CL-04")
def test_the_owners_copied_cookie_is_refused_after_signing_out_and_after_a_restart(
    browser: TestClient, keys: SignInService, habitus: Habitus
) -> None:
    (copied,) = dict(browser.cookies).values()
    other = keys.exchange_sign_in_key_for_cookie(keys.create_owner_sign_in_key()) or ""
    assert sign_out(browser) == keys.cookie
    for service in (keys, load_sign_in_service(habitus)):
        assert service.identify_by_cookie(copied) is None
        assert service.identify_by_cookie(other) == OWNER_IDENTITY
