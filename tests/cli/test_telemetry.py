"""Logs as objects, and OpenTelemetry as a collector receives it; nothing of it where nobody asked."""

from __future__ import annotations

import gzip
import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from habitus import tracing
from habitus.app import Habitus, read_settings
from habitus.app.operating import jobs
from habitus.web.app import make_web_app
from habitus.web.home_pool import HomePool
from habitus.web.security import load_sign_in_service
from tests.cli.conftest import Direct
from tests.jobs.counting import until
from tests.planted import KEYS


@pytest.fixture
def ask(direct: Direct) -> tuple[str, ...]:
    path = direct.cli.cwd / "script.json"
    path.write_text(
        json.dumps([{"call": "search_skills", "arguments": {"query": "how is tea brewed"}}, {"say": "Good."}])
    )
    return ("chat", "Good day, my unmistakable zeppelin?", "--model", f"script:{path}")


@dataclass(kw_only=True)
class Collector:
    """What arrived: spans by name with their parent's and their attributes, traces, counts by name and attribute."""

    address: str = ""
    raw: bytes = b""
    spans: dict[str, tuple[bytes, bytes, dict[str, str]]] = field(default_factory=dict)
    # The names of the spans of each trace.
    traces: dict[bytes, set[str]] = field(default_factory=dict)
    counts: dict[tuple[str, str], float] = field(default_factory=dict)

    def take(self, path: str, body: bytes) -> None:
        self.raw += body
        if path.endswith("/traces"):
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for span in (span for scope in resource.scope_spans for span in scope.spans):
                    told = {one.key: one.value.string_value for one in span.attributes}
                    self.spans[span.name] = (span.span_id, span.parent_span_id, told)
                    self.traces.setdefault(span.trace_id, set()).add(span.name.removeprefix("habitus."))
            return
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                for point in metric.sum.data_points:
                    key = (metric.name, ",".join(one.value.string_value for one in point.attributes))
                    self.counts[key] = point.as_double or point.as_int


@contextmanager
def collecting() -> Iterator[Collector]:
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            found.take(self.path, gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found.address = f"http://127.0.0.1:{server.server_port}"
        yield found
        server.shutdown()


@pytest.mark.req("OP-02")
def test_a_collector_is_told_of_turns_and_their_steps_and_of_nothing_that_was_said(
    direct: Direct, ask: tuple[str, ...]
) -> None:
    with collecting() as found:
        ran = direct(*ask, env={"OTEL_EXPORTER_OTLP_ENDPOINT": found.address})
    assert (ran.code, ran.out, "OTEL" in ran.err) == (0, "Good.\n", False)
    spans = found.spans
    names = ("turn", "select", "model", "tool", "search", "database")
    assert set(spans) == {f"habitus.{name}" for name in names}
    assert spans["habitus.database"][1] != b""
    turn, parent, told = spans["habitus.turn"]
    assert (parent, set(told)) == (b"", {"habitus.turn", "habitus.session"})
    assert {spans[f"habitus.{name}"][1] for name in ("select", "model", "tool")} == {turn}
    assert spans["habitus.tool"][2]["habitus.tool"] == "search_skills"
    assert found.counts["habitus.turns", "ok"] == 1
    assert ("habitus.tokens", "input") in found.counts
    assert b"zeppelin" not in found.raw


@pytest.mark.req("OP-02")
def test_a_turn_of_another_loop_is_traced_as_one_of_ours(direct: Direct, monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting() as found:
        monkeypatch.setenv(tracing.ENDPOINT_VARIABLE, found.address)
        settings = read_settings(direct.home, {"HOME": str(direct.home)})
        with (
            tracing.export_telemetry_during_block(os.environ),
            Habitus.open(settings) as habitus,
            habitus.turn("How is my unmistakable zeppelin?") as turn,
        ):
            turn.run("search_skills", {"query": "zeppelin"})
            turn.done("Good.")
    turn_span, parent, told = found.spans["habitus.turn"]
    assert (parent, told["habitus.turn"], set(told)) == (b"", turn.id, {"habitus.turn", "habitus.session"})
    assert {found.spans[f"habitus.{name}"][1] for name in ("select", "tool")} == {turn_span}
    assert found.counts["habitus.turns", "ok"] == 1
    assert b"zeppelin" not in found.raw


@pytest.mark.req("OP-02", "OP-07")
def test_requests_and_jobs_are_traced_without_the_names_in_their_addresses(
    direct: Direct, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collecting() as found:
        monkeypatch.setenv(tracing.ENDPOINT_VARIABLE, found.address)
        settings = read_settings(direct.home, {"HOME": str(direct.home)})
        with (
            tracing.export_telemetry_during_block(os.environ),
            Habitus.open(settings) as habitus,
            closing(HomePool(habitus)) as homes,
        ):
            keys = load_sign_in_service(habitus)
            headers = {"Authorization": f"Bearer {keys.owner_token}"}
            client = TestClient(make_web_app(homes, keys, {"here:1"}), base_url="http://here:1", headers=headers)
            assert client.get("/api/v1/skills/zeppelin").status_code == 404
            assert client.get("/api/v1/find?q=zeppelin").status_code == 200
            id = client.post("/api/v1/jobs", json={"kind": "index"}).json()["id"]
            queue = jobs.open_job_queue(habitus, for_worker=True)
            with jobs.run_home_worker(habitus, queue, starts_due=False):
                until(lambda: queue.get(id).state.is_over)
    assert found.spans["habitus.request"][2]["habitus.method"] in ("GET", "POST")
    # A request through search to the database; what a worker polls is no span.
    inner = {found.spans[f"habitus.{name}"][1] for name in ("search", "database")}
    assert b"" not in inner
    assert found.spans["habitus.job"][2] == {"habitus.kind": "index", "habitus.job": id}
    # The job is part of the trace of the request that added it, in whatever process it runs.
    (whole,) = [names for names in found.traces.values() if "job" in names]
    assert whole >= {"request", "database", "job"}
    assert any(names >= {"request", "search"} for names in found.traces.values())
    assert b"zeppelin" not in found.raw


@pytest.mark.full
@pytest.mark.req("OP-02", "OP-03")
def test_a_collector_that_is_away_takes_nothing_down_and_none_imports_nothing(
    direct: Direct, ask: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ran = direct(*ask, env={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"})
    assert (ran.code, ran.out, "OTEL" in ran.err) == (0, "Good.\n", False)
    for name in [name for name in sys.modules if name.startswith("opentelemetry.sdk")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    assert direct("skills", "list").err == ""
    ran = direct("skills", "list", env={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"})
    assert ran.code == 0
    assert ["[telemetry]" in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.req("OP-02", "SC-02")
def test_a_line_is_an_object_with_its_turn_and_without_secrets(direct: Direct, ask: tuple[str, ...]) -> None:
    file = Path(direct.cli.cwd) / "log.jsonl"
    direct(*ask[:1], f"{ask[1]} {KEYS['github']}", *ask[2:], env={"HABITUS_LOG": f"json:{file}"})
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    (selected,) = [line for line in lines if line["message"].startswith("selection count=")]
    assert {"at", "level", "logger", "message", "turn", "session"} == set(selected)
    assert (selected["level"], len(selected["turn"])) == ("info", 12)
    assert KEYS["github"] not in file.read_text()
    shown = direct("skills", "list", env={"HABITUS_LOG": "json"})
    assert all(json.loads(line)["level"] for line in shown.err.splitlines())
