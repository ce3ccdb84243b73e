"""`/metrics` as Prometheus reads it: with its token, with counts, and without the name of anybody or anything."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from fastapi.testclient import TestClient
from starlette.types import ASGIApp

from habitus import tracing
from habitus.app import Habitus
from habitus.app.operating.people import UserRole, open_user_accounts
from habitus.web.metrics import MetricsMiddleware, PrometheusMetrics
from habitus.web.security import SignInService
from tests.web.conftest import HOST

parser = pytest.importorskip("prometheus_client.parser")  # of the extra `telemetry`


OPERATIONS = Path(__file__).parents[2] / "examples" / "operations"


@pytest.mark.req("OP-07")
def test_every_metric_of_the_dashboard_and_the_alerts_is_served(
    app: ASGIApp, keys: SignInService, habitus: Habitus
) -> None:
    metrics = PrometheusMetrics(lambda: habitus)
    client = TestClient(MetricsMiddleware(app, metrics, keys.metrics_token), base_url=f"http://{HOST}")
    with tracing.forward_telemetry_counts_during_block(metrics.increment_counter):
        tracing.add_to_telemetry_counter("tokens", 7, direction="input")
        with habitus.turn("Brew tea.") as turn:
            turn.done("It is brewed.")
    client.get("/api/v1/skills")
    text = client.get("/metrics", headers={"Authorization": f"Bearer {keys.metrics_token}"}).text
    served = {
        sample.name: set(sample.labels)
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }
    panels = json.loads((OPERATIONS / "grafana-dashboard.json").read_text())["panels"]
    groups = yaml.safe_load((OPERATIONS / "prometheus-rules.yaml").read_text())["groups"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    asked += [rule["expr"] for group in groups for rule in group["rules"]]
    assert len(asked) > 12
    for expression in asked:
        names = re.findall(r"\b(?:habitus|process)_[a-z_]+", expression)
        assert names
        assert {name for name in names if name not in served} == set(), expression
        # Labels in braces, and those that an aggregation keeps.
        labels = {*re.findall(r"(\w+)=~?\"", expression), *re.findall(r"by \((\w+)\)", expression)}
        known = set().union(*(served[name] for name in names))
        assert labels <= known, expression


@pytest.mark.req("OP-06", "OP-02")
def test_metrics_are_for_whoever_has_their_token_and_name_nobody(
    app: ASGIApp, keys: SignInService, habitus: Habitus
) -> None:
    metrics = PrometheusMetrics(lambda: habitus)
    client = TestClient(MetricsMiddleware(app, metrics, keys.metrics_token), base_url=f"http://{HOST}")
    ben = {
        "Authorization": f"Bearer {open_user_accounts(habitus).add_or_reinvite_user('benedict', UserRole.ADMIN).token}"
    }
    reads = {"Authorization": f"Bearer {keys.metrics_token}"}
    strangers: tuple[dict[str, str], ...] = (
        {},
        ben,
        {"Authorization": f"Bearer {keys.owner_token}"},
        {"Authorization": f"Basic {keys.metrics_token}"},
    )
    assert [client.get("/metrics", headers=given).status_code for given in strangers] == [401] * len(strangers)
    assert client.get("/api/v1/skills", headers=reads).status_code == 401  # which opens nothing else
    assert client.get("/api/v1/skills/brew-tea", headers=ben).status_code == 200
    assert client.request("BREW", "/static/none", headers=ben).status_code >= 400
    with (
        tracing.forward_telemetry_counts_during_block(metrics.increment_counter),
        habitus.turn("where is the zeppelin?", user="benedict") as turn,
    ):
        turn.done("In the shed.")
    answer = client.get("/metrics", headers=reads)
    assert answer.headers["content-type"].startswith("text/plain; version=")
    found = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in parser.text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    assert found["habitus_requests_total", "200", "GET", "rest"] == 1
    assert found["habitus_requests_total", "401", "GET", "rest"] == 1
    assert sum(value for key, value in found.items() if key[0] == "habitus_turns_total") == 1
    assert found["habitus_skills",] == len(habitus.skills.snapshot().listing)
    assert (found["habitus_ready",], found["habitus_pending_reviews",], found["habitus_jobs", "pending"]) == (1, 0, 0)
    assert not [name for name in ("benedict", "ann", "brew-tea", "zeppelin", "BREW") if name in answer.text]
