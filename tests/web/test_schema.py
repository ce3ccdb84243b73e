"""REST against its own description: whatever fits or breaks it, no answer is a failure of the server."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from inspect import iscoroutinefunction, unwrap
from itertools import cycle, product
from typing import Any

import pytest
import schemathesis
import sqlalchemy as sa
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode, Response
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.types import ASGIApp

from habitus.app import Habitus
from habitus.app.operating.people import UserRole, open_user_accounts
from habitus.web.api import events, skills
from habitus.web.app import build_application_without_home
from habitus.web.pages import chat, shared_routes
from habitus.web.security import SignInService
from tests.web.conftest import HOST
from tests.web.furnished import furnish_with_life


@pytest.mark.full
@pytest.mark.req("CL-03")
def test_the_description_is_served_and_has_every_door(api: TestClient) -> None:
    description = api.get("/api/v1/openapi.json").json()
    doors = {f"{method} {path}" for path, methods in description["paths"].items() for method in methods}
    assert {
        "get /api/v1/skills",
        "patch /api/v1/skills/{name}",
        "post /api/v1/uploads",
        "post /api/v1/review/{ids}/approve",
        "post /api/v1/lessons",
        "post /api/v1/turns/{id}/outcome",
        "get /api/v1/select",
    } <= doors
    assert all(door.split(" ")[1].startswith("/api/v1/") for door in doors)


@pytest.fixture
def off_the_loop(habitus: Habitus) -> Iterator[None]:
    """Nothing that is asked for waits for the database on the event loop, where everybody else would wait too."""
    waited: list[str] = []

    def watch(_: object, __: object, statement: str, *more: object) -> None:
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            waited.append(statement)

    engines = {habitus.shared, habitus.local}
    for engine in engines:
        sa.event.listen(engine, "before_cursor_execute", watch)
    yield
    for engine in engines:
        sa.event.remove(engine, "before_cursor_execute", watch)
    assert waited == []


@pytest.mark.req("CL-03")
def test_what_works_in_a_handler_works_in_a_thread() -> None:
    """A handler is a plain function, which runs in a thread; those that wait on the event loop are known."""
    described = build_application_without_home(is_description=True)
    handlers = [route.endpoint for route in described.routes if isinstance(route, APIRoute)]
    ours = {unwrap(one) for one in handlers if one.__module__.startswith("habitus.")}
    assert len(ours) > 100
    assert {one for one in ours if iscoroutinefunction(one)} == {
        events.stream_turn_events,
        events.stream_job_events,
        skills.replace_skill_file,
        chat.stream_chat_events,
        shared_routes.stream_changes,
    }


KNOWN = {
    "/skills/{name}/tool": "shout",
    "/skills/{name}/trust": "shout",
    "/skills/{name}/recipes": "look-around",
    "/skills/{name}": "close-the-month",
    "/review/{id}": "1",
    "/review/effect/{id}": "1",
    "/sessions/{id}": "s1",
    "/turns/{id}": "t1",
    "/agents/{agent}/changes": "claude-code",
}
ASKED = {"q": "close the books", "request": "close the books"}


@pytest.mark.req("CL-03")
def test_what_is_answered_is_as_described(app: ASGIApp, api: TestClient, habitus: Habitus, off_the_loop: None) -> None:
    """Whatever can be looked at, on a home with life in it."""
    furnish_with_life(habitus)
    broken = habitus.settings.home / "skills" / "broken"
    broken.mkdir(parents=True)
    (broken / "SKILL.md").write_text("---\nname: [")
    lesson = habitus.memory.list_lessons("all", 1)[0].id
    job = api.post("/api/v1/jobs", json={"kind": "curate"}).json()["id"]
    schema = schemathesis.openapi.from_asgi(
        "/api/v1/openapi.json", app, headers={"Host": HOST, "Authorization": api.headers["Authorization"]}
    )
    looked = 0
    for operation in (found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)):
        path = operation.path.removeprefix("/api/v1")
        if operation.method != "get" or path.endswith(("{path}", "/events")):
            continue
        for shape, id in {**KNOWN, "/lessons/{id}": lesson, "/jobs/{id}": job}.items():
            path = re.sub(r"\{\w+\}", id, path) if path.startswith(shape) else path
        named = {"name": "close-the-month"} if path == "/evidence/rows" else {}
        answered = api.get(f"/api/v1{path}", params=ASKED | named)
        assert answered.status_code == 200, (path, answered.text)
        operation.validate_response(Response.from_any(answered))
        looked += 1
    assert looked > 20


CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


@pytest.mark.full
@pytest.mark.req("CL-03", "SC-01")
def test_no_request_that_fits_is_a_failure_of_the_server(
    app: ASGIApp, keys: SignInService, habitus: Habitus, off_the_loop: None
) -> None:
    """Some of what the description allows."""
    furnish_with_life(habitus)
    headers = {"Authorization": f"Bearer {keys.owner_token}", "Host": HOST}
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", app, headers=headers)
    _ask(schema.as_strategy(GenerationMode.POSITIVE), headers)


@pytest.mark.full
@pytest.mark.req("CL-03", "CL-04", "SC-01")
@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize("role", ["owner", *UserRole, "stranger"])
def test_no_request_of_anybody_is_a_failure_of_the_server(
    app: ASGIApp, keys: SignInService, habitus: Habitus, mode: GenerationMode, role: str
) -> None:
    """Every door with what fits its description and with what breaks it, from each who may come."""
    furnish_with_life(habitus)
    headers = {"Host": HOST}
    if role != "stranger":
        people = open_user_accounts(habitus)
        token = keys.owner_token if role == "owner" else people.add_or_reinvite_user(role, UserRole(role)).token
        headers["Authorization"] = f"Bearer {token}"
    told = {"Host": HOST, "Authorization": f"Bearer {keys.owner_token}"}  # a stranger is not told what there is
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", app, headers=told)
    asked = 0
    for operation in (found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)):
        if mode is GenerationMode.POSITIVE or _can_be_broken(operation.definition.raw):
            _ask(operation.as_strategy(mode), headers, examples=20 if role == "owner" else 4)
            asked += 1
    assert asked > 30


def _can_be_broken(definition: dict[str, Any]) -> bool:
    """Nothing can be wrong about a door that takes only a name, which any text may be; looking for it takes long."""
    return "requestBody" in definition or any(one["in"] != "path" for one in definition.get("parameters", ()))


def _ask(cases: Any, headers: dict[str, str], *, examples: int = 12) -> None:
    @given(case=cases)
    @settings(suppress_health_check=list(HealthCheck), max_examples=examples, derandomize=True)
    def ask(case: schemathesis.Case[Any]) -> None:
        case.call_and_validate(headers=headers, checks=CHECKS)

    ask()


ODD = (b"[" * 100_000, b'{"payload":' + b"[" * 50_000 + b"]" * 50_000 + b"}", b"\xff\xfe", b"NaN", b"null", b"", b'"x"')
STRINGS = ("\ud800", "a\0b", "\u202e", "\r\nX-Evil: 1", "../..", "x" * 3000)


@pytest.mark.full
@pytest.mark.req("CL-03", "SC-01")
def test_no_body_however_odd_is_a_failure_of_the_server(api: TestClient, is_thorough: bool) -> None:
    doors = ("skills", "lessons", "jobs", "undo", "sessions", "review/1/choose", "turns/t1/outcome")
    kinds = ("application/json", "text/plain", "multipart/form-data; boundary=", "application/json; charset=x")
    names = ("name", "text", "kind", "arguments", "undo", "others", "reason", "by", "description", "body")
    shapes = [{key: [text] if key in ("arguments", "undo", "others") else text for key in names} for text in STRINGS]
    numbers = json.dumps({"ok": 10**400, "tokens": 10**400, "to": 1e308}).encode()
    for body in (*ODD, numbers, *(json.dumps(shape).encode() for shape in shapes)):
        for door, kind in product(doors, kinds) if is_thorough else zip(doors, cycle(kinds), strict=False):
            answer = api.post(f"/api/v1/{door}", content=body, headers={"Content-Type": kind})
            assert 400 <= answer.status_code < 500, (body[:40], door, kind, answer.text)
            assert answer.headers["content-type"] == "application/problem+json"
