"""REST against its own description: whatever fits or breaks it, no answer is a failure of the server."""

from __future__ import annotations

import re
from typing import Any

import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode, Response
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import response_schema_conformance
from starlette.types import ASGIApp

from habitus.app import Habitus
from habitus.web.security import Keys
from tests.web.conftest import HOST
from tests.web.furnished import furnish_with_life


@pytest.mark.req("CL-03")
def test_the_description_is_served_and_has_every_door(api: TestClient) -> None:
    description = api.get("/api/v1/openapi.json").json()
    doors = {f"{method} {path}" for path, methods in description["paths"].items() for method in methods}
    assert {
        "get /api/v1/skills",
        "patch /api/v1/skills/{name}",
        "post /api/v1/uploads",
        "post /api/v1/review/{id}/approve",
        "post /api/v1/lessons",
        "post /api/v1/turns/{id}/outcome",
        "get /api/v1/select",
    } <= doors
    assert all(door.split(" ")[1].startswith("/api/v1/") for door in doors)


KNOWN = {
    "/skills/{name}/tool": "shout",
    "/skills/{name}/trust": "shout",
    "/skills/{name}/recipes": "look-around",
    "/skills/{name}": "close-the-month",
    "/review/{id}": "1",
    "/review/effect/{id}": "1",
    "/sessions/{id}": "s1",
    "/turns/{id}": "t1",
}
ASKED = {"q": "close the books", "request": "close the books"}


@pytest.mark.req("CL-03")
def test_what_is_answered_is_as_described(app: ASGIApp, api: TestClient, habitus: Habitus) -> None:
    """Whatever can be looked at, on a home with life in it."""
    furnish_with_life(habitus)
    broken = habitus.settings.home / "skills" / "broken"
    broken.mkdir(parents=True)
    (broken / "SKILL.md").write_text("---\nname: [")
    lesson = habitus.memory.list_lessons("all", 1)[0].id
    job = api.post("/api/v1/jobs", json={"kind": "curate"}).json()["id"]
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", app, headers={"Host": HOST})
    looked = 0
    for operation in (found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)):
        path = operation.path.removeprefix("/api/v1")
        if operation.method != "get" or path.endswith(("{path}", "/events")):
            continue
        for shape, id in {**KNOWN, "/lessons/{id}": lesson, "/jobs/{id}": job}.items():
            path = re.sub(r"\{\w+\}", id, path) if path.startswith(shape) else path
        answered = api.get(f"/api/v1{path}", params=ASKED)
        assert answered.status_code == 200, (path, answered.text)
        operation.validate_response(Response.from_any(answered))
        looked += 1
    assert looked > 20


# Of what is sent, every kind in `make test-full`, and some that fit the description in `make test`.
MODES = [GenerationMode.POSITIVE, pytest.param(GenerationMode.NEGATIVE, marks=pytest.mark.full)]


@pytest.mark.req("CL-03", "SC-01")
@pytest.mark.parametrize("mode", MODES)
def test_no_request_is_a_failure_of_the_server(
    app: ASGIApp, keys: Keys, habitus: Habitus, mode: GenerationMode
) -> None:
    furnish_with_life(habitus)
    headers = {"Authorization": f"Bearer {keys.bearer}", "Host": HOST}
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", app, headers=headers)

    @given(case=schema.as_strategy(mode))
    @settings(suppress_health_check=list(HealthCheck))
    def ask(case: schemathesis.Case[Any]) -> None:
        case.call_and_validate(headers=headers, checks=[not_a_server_error, response_schema_conformance])

    ask()
