"""Sign-in with OpenID Connect, at a real provider in a process of its own."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from starlette.types import ASGIApp

from habitus.app import Habitus
from habitus.app.operating.people import UserRole, open_user_accounts
from habitus.app.use_cases.storage import erase_user
from habitus.app.use_cases.users import add_user, remove_user
from habitus.settings import OidcSettings, Settings, WebSettings
from tests.conftest import Cli
from tests.web.conftest import HOST
from tests.web.test_guests import ask_three_times

PEOPLE = {
    "s-ann": {"preferred_username": "Ann@example.org", "groups": ["staff", "reviewers"]},
    "s-ben": {"preferred_username": "ben", "groups": ["platform"]},
    "s-eve": {"preferred_username": "eve", "groups": ["guests"]},
    "s-owl": {"preferred_username": "boss", "groups": ["staff"]},
}


class Clock:
    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now


@contextmanager
def running_provider(port: int, *options: str) -> Iterator[str]:
    claims = [word for sub, of in PEOPLE.items() for word in ("--user-claims", json.dumps({"sub": sub, **of}))]
    command = [sys.executable, "-W", "ignore", "-m", "oidc_provider_mock", "--port", str(port), *options, *claims]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        issuer = f"http://127.0.0.1:{port}"
        try:
            while process.poll() is None:
                try:
                    httpx2.get(f"{issuer}/.well-known/openid-configuration").raise_for_status()
                    break
                except httpx2.TransportError:
                    threading.Event().wait(0.05)
            yield issuer
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def port() -> int:
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        return int(line.getsockname()[1])


@pytest.fixture
def provider(port: int) -> Iterator[str]:
    with running_provider(port) as issuer:
        yield issuer


@pytest.fixture
def habitus_clock() -> Clock:
    return Clock()


@pytest.fixture
def habitus_settings(home: Path, habitus_settings: Settings, port: int) -> Settings:
    (home / "oidc-secret").write_text("hush\n")
    oidc = OidcSettings(
        issuer=f"http://127.0.0.1:{port}", admins=("platform",), reviewers=("reviewers",), viewers=("staff",)
    )
    web = WebSettings(address=f"http://{HOST}")
    return habitus_settings.model_copy(update={"oidc": oidc, "web": web, "user": "olga"})


def sign_in(app: ASGIApp, sub: str, path: str = "/") -> TestClient:
    """A browser in which this person signs in, and came for this path."""
    browser = TestClient(app, base_url=f"http://{HOST}", follow_redirects=False)
    answer = browser.get(go_through(browser, sub, path))
    browser.headers["X-Answer"] = str(answer.status_code)
    browser.headers["X-Path"] = answer.headers.get("location", answer.text[:900].encode().hex())
    return browser


def go_through(browser: TestClient, sub: str, path: str = "/") -> str:
    """Sign in at the provider; the address that it sends the browser back to."""
    to_provider = browser.get("/oidc/sign-in", params={"path": path})
    assert to_provider.status_code == 303, to_provider.text
    asked = parse_qs(urlsplit(to_provider.headers["location"]).query)
    assert asked["code_challenge_method"] == ["S256"]
    assert {"code_challenge", "nonce", "state"} <= asked.keys()
    back = httpx2.post(to_provider.headers["location"], data={"sub": sub})
    assert back.status_code == 302, back.text
    address: str = back.headers["location"]
    assert address.startswith(f"http://{HOST}/oidc/callback?")
    return address


def came_to(browser: TestClient) -> tuple[str, str]:
    return browser.headers["X-Answer"], browser.headers["X-Path"]


def role_of(browser: TestClient) -> str:
    return next(iter(re.findall(r"(?:ann|ben|eve|boss), (\w+)<br>", browser.get("/activity").text)), "")


def tell(provider: str, sub: str, claims: Mapping[str, object]) -> None:
    httpx2.put(f"{provider}/users/{sub}", json=claims).raise_for_status()


@pytest.mark.req("OP-07")
def test_groups_at_the_provider_decide_who_comes_in_and_as_what(
    provider: str, app: ASGIApp, habitus: Habitus, habitus_clock: Clock, stranger: TestClient
) -> None:
    refused = stranger.get("/skills/brew-tea")
    assert refused.status_code == 401
    assert 'href="/oidc/sign-in?path=%2Fskills%2Fbrew-tea"' in refused.text
    ann, ben = sign_in(app, "s-ann", "/skills/brew-tea"), sign_in(app, "s-ben", "//evil.example")
    assert [came_to(ann), came_to(ben)] == [("303", "/skills/brew-tea"), ("303", "/")]
    assert [role_of(ann), role_of(ben)] == ["reviewer", "admin"]
    # Who is in none of the groups isn't let in.
    eve = sign_in(app, "s-eve")
    assert (came_to(eve)[0], role_of(eve)) == ("409", "")
    # A group that is taken away counts within five minutes.
    tell(provider, "s-ben", {"preferred_username": "other", "groups": ["staff"]})
    habitus_clock.now += timedelta(minutes=5)
    assert role_of(ben) == "viewer"
    tell(provider, "s-ben", {"preferred_username": "other", "groups": []})
    habitus_clock.now += timedelta(minutes=5)
    assert ben.get("/activity").status_code == 401
    assert [person.name for person in open_user_accounts(habitus).list_accounts()] == ["ann", "ben"]
    with habitus.shared.begin() as connection:
        kept = repr(connection.execute(sa.text("SELECT * FROM sign_ins")).all())
    # Only who has the secret can use the tokens.
    assert "access_token" not in kept
    assert "hush" not in kept


@pytest.mark.req("OP-07")
def test_an_account_removed_at_the_provider_is_out_within_five_minutes(
    provider: str, app: ASGIApp, habitus: Habitus, habitus_clock: Clock
) -> None:
    ann = sign_in(app, "s-ann")
    people = open_user_accounts(habitus)
    token = people.add_or_reinvite_user("ann", people.list_accounts()[0].role).token
    program = TestClient(app, base_url=f"http://{HOST}", headers={"Authorization": f"Bearer {token}"})
    ann = sign_in(app, "s-ann")
    assert (role_of(ann), program.get("/api/v1/skills").status_code) == ("reviewer", 200)
    httpx2.post(f"{provider}/users/s-ann/revoke-tokens").raise_for_status()
    habitus_clock.now += timedelta(minutes=5)
    assert program.get("/api/v1/skills").status_code == 401
    assert ann.get("/activity").status_code == 401
    # A sign-in at the provider lets them in again, with what they had.
    again = sign_in(app, "s-ann")
    assert (role_of(again), program.get("/api/v1/skills").status_code) == ("reviewer", 200)


@pytest.mark.req("OP-07")
def test_an_account_removed_here_is_out_at_once_and_does_not_come_back_by_itself(
    provider: str, app: ASGIApp, habitus: Habitus
) -> None:
    ann = sign_in(app, "s-ann")
    assert role_of(ann) == "reviewer"
    remove_user(habitus, "ann")
    assert ann.get("/activity").status_code == 401
    tell(provider, "s-ann", {"preferred_username": "boss", "groups": ["staff"]})
    assert came_to(sign_in(app, "s-ann"))[0] == "409"
    tell(provider, "s-ann", PEOPLE["s-ann"])
    added = add_user(habitus, "ann", open_user_accounts(habitus).add_or_reinvite_user("x", UserRole.VIEWER).person.role)
    assert added.name == "ann"
    # Her conversations keep nobody from coming back as who they were.
    ask_three_times(habitus.as_user("ann"), "ann", "How long does tea take?")
    assert role_of(sign_in(app, "s-ann")) == "reviewer"
    assert [one.name for one in open_user_accounts(habitus).list_accounts()].count("ann") == 1
    remove_user(habitus, "ann")
    # Not even who was removed is left of an erased person.
    erase_user(habitus, user="ann")
    with habitus.shared.begin() as connection:
        assert "s-ann" not in repr(connection.execute(sa.text("SELECT * FROM signing_keys")).all())


@pytest.mark.req("OP-07")
def test_while_the_provider_is_away_who_is_signed_in_stays(
    port: int, app: ASGIApp, habitus_clock: Clock, stranger: TestClient
) -> None:
    with running_provider(port):
        ann = sign_in(app, "s-ann")
    habitus_clock.now += timedelta(hours=1)
    assert role_of(ann) == "reviewer"
    assert stranger.get("/oidc/sign-in").status_code in (303, 503)
    # A provider that forgot everything is none that is away.
    with running_provider(port):
        habitus_clock.now += timedelta(minutes=5)
        assert ann.get("/activity").status_code == 401


@pytest.mark.req("OP-07")
def test_nobody_takes_the_account_of_another(provider: str, app: ASGIApp, habitus: Habitus) -> None:
    open_user_accounts(habitus).add_or_reinvite_user("boss", UserRole.ADMIN)
    assert came_to(sign_in(app, "s-owl"))[0] == "409"
    # A sign-in that began in another browser, or is tried twice.
    one, two = (TestClient(app, base_url=f"http://{HOST}", follow_redirects=False) for _ in range(2))
    address = go_through(one, "s-ann")
    assert two.get(address).status_code == 409
    two.get("/oidc/sign-in")
    assert two.get(address).status_code == 409
    assert one.get(address).status_code == 303
    assert one.get(address).status_code == 409


@pytest.mark.req("OP-07", "CL-04")
@pytest.mark.parametrize("is_owner", [True, False])
def test_nobody_comes_in_under_the_name_of_who_works_here_without_an_account(
    provider: str, app: ASGIApp, habitus: Habitus, is_owner: bool
) -> None:
    """The owner's conversations, and those of a local account that was removed, would be listed for them."""
    name = habitus.settings.user if is_owner else "zoe"
    if not is_owner:
        open_user_accounts(habitus).add_or_reinvite_user(name, UserRole.VIEWER)
        ask_three_times(habitus, name, "PRIVATE question")
        open_user_accounts(habitus).remove_and_bar_account(name)
    tell(provider, "s-ben", {"preferred_username": name, "groups": ["platform"]})
    namesake = sign_in(app, "s-ben")
    assert came_to(namesake)[0] == "409"
    assert "has worked here without an account" in bytes.fromhex(came_to(namesake)[1]).decode()
    assert namesake.get("/api/v1/sessions").status_code == 401
    assert namesake.get("/activity").status_code == 401
    # Neither does a new name at the provider lead there.
    tell(provider, "s-ben", PEOPLE["s-ben"])
    ben = sign_in(app, "s-ben")
    tell(provider, "s-ben", {"preferred_username": name, "groups": ["platform"]})
    assert role_of(sign_in(app, "s-ben")) == "admin"
    assert ben.get("/api/v1/sessions").json()["sessions"] == []


@pytest.mark.req("OP-07")
def test_signing_out_ends_the_session_here_and_at_the_provider(provider: str, app: ASGIApp) -> None:
    ann = sign_in(app, "s-ann")
    (csrf,) = re.findall(r'"X-CSRF": "(\w+)"', ann.get("/activity").text)
    answer = ann.post("/sign-out", headers={"X-CSRF": csrf, "Origin": f"http://{HOST}"})
    target = urlsplit(answer.headers["hx-redirect"])
    asked = parse_qs(target.query)
    assert f"{target.scheme}://{target.netloc}{target.path}" == f"{provider}/oauth2/end_session"
    assert asked["post_logout_redirect_uri"] == [f"http://{HOST}/"]
    assert len(asked["id_token_hint"]) == 1
    assert ann.get("/activity").status_code == 401


def test_without_refresh_tokens_the_provider_is_asked_about_the_person(
    port: int, app: ASGIApp, habitus_clock: Clock
) -> None:
    with running_provider(port, "--no-refresh-token") as provider:
        ann = sign_in(app, "s-ann")
        habitus_clock.now += timedelta(minutes=5)
        assert role_of(ann) == "reviewer"
        httpx2.post(f"{provider}/users/s-ann/revoke-tokens").raise_for_status()
        habitus_clock.now += timedelta(minutes=5)
        assert ann.get("/activity").status_code == 401


@pytest.mark.req("OP-07", "OP-02")
def test_a_server_says_at_its_start_what_keeps_people_from_signing_in(run_cli: Cli, port: int) -> None:
    secret = run_cli.home / "oidc-secret"
    secret.write_text("hush\n")
    secret.chmod(0o644)
    env = {"HABITUS_WEB_ADDRESS": f"http://{HOST}", "HABITUS_OIDC_ISSUER": f"http://127.0.0.1:{port}"}
    command = [*(run_cli.program or run_cli.command), "up", "--port", "0", "--no-jobs"]
    with (
        running_provider(port),
        subprocess.Popen(command, env=run_cli.environ(env), stderr=subprocess.PIPE, text=True) as process,
    ):
        assert process.stderr is not None
        said = [process.stderr.readline() for _ in range(2)]
        process.terminate()
        # The provider answers, so nothing is said of it.
        assert [*said, process.stderr.read()] == [
            "habitus: Nobody can sign in with OpenID Connect: set oidc.admins, oidc.reviewers or oidc.viewers to "
            "groups.\n",
            f"habitus: Every account of this machine can read {secret}: chmod 600 {secret}\n",
            "",
        ]
    secret.chmod(0o600)
    env["HABITUS_OIDC_VIEWERS"] = "*"
    with subprocess.Popen(command, env=run_cli.environ(env), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("habitus: The provider doesn't answer: ")
        assert line.endswith("an admin compares oidc.issuer (HABITUS_OIDC_ISSUER) and the other oidc settings.\n")
        # It serves nevertheless.
        assert process.poll() is None
        process.terminate()
