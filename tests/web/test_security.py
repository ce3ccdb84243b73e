"""At the door: strangers, other sites, other names for this machine, forged forms and too large a body."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from habitus.app import Habitus
from habitus.web.security import SIGNED_IN_FOR, Keys, keys_of

SWITCH = "/api/v1/skills/brew-tea/disable"


def is_on(habitus: Habitus) -> bool:
    summary = habitus.skills.find("brew-tea").summary
    assert summary is not None
    return summary.enabled


@pytest.mark.req("CL-04")
def test_a_stranger_may_look_at_skills_and_change_nothing(stranger: TestClient, habitus: Habitus) -> None:
    assert stranger.get("/api/v1/skills").status_code == 200
    for refused in (stranger.post(SWITCH), stranger.get("/api/v1/sessions"), stranger.get("/api/v1/turns/t")):
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
    keys = Keys(b"k" * 32, clock=lambda: now)
    link = keys.new_link()
    cookie = keys.entered(link)
    assert cookie is not None
    assert keys.entered(link) is None
    assert keys.is_signed_in(cookie)
    until, rest = cookie.split(".", 1)
    forged = [f"{int(until) + 1}.{rest}", cookie[:-1], "", ".", "..", f"{until}.x.", "é", cookie + "x"]
    assert [other for other in forged if keys.is_signed_in(other)] == []
    assert not Keys(b"other" * 8).is_signed_in(cookie)
    now += SIGNED_IN_FOR
    assert not keys.is_signed_in(cookie)


@pytest.mark.req("CL-04")
def test_the_key_is_kept_for_its_owner_and_survives_a_restart(tmp_path: Path) -> None:
    first = keys_of(tmp_path)
    assert stat.S_IMODE((tmp_path / "web.key").stat().st_mode) == 0o600
    assert keys_of(tmp_path).bearer == first.bearer
    assert keys_of(tmp_path / "missing").bearer != first.bearer


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
