"""REST against its own description: whatever fits or breaks it, no answer is a failure of the server."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
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


@pytest.mark.full
@pytest.mark.req("CL-03", "SC-01")
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_no_request_is_a_failure_of_the_server(
    app: ASGIApp, keys: Keys, habitus: Habitus, mode: GenerationMode
) -> None:
    furnish_with_life(habitus)
    headers = {"Authorization": f"Bearer {keys.bearer}", "Host": HOST}
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", app, headers=headers)

    @given(case=schema.as_strategy(mode))
    @settings(suppress_health_check=list(HealthCheck))
    def ask(case: schemathesis.Case[Any]) -> None:
        case.call_and_validate(headers=headers, checks=[not_a_server_error])

    ask()
