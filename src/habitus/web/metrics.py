"""Metrics in Prometheus' text format, readable with a token; they contain no names."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from habitus import optional_packages
from habitus.agent.background import run_in_thread
from habitus.app.home import Home
from habitus.app.review.reminding import count_pending_items
from habitus.app.sharing.availability import ProcessReadiness, check_readiness
from habitus.errors import HabitusError
from habitus.jobs.queue import JobQueue

METRICS_PATH = "/metrics"
_KNOWN_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
_ROUTE_KINDS = {"api": "rest", "mcp": "mcp", "static": "static", "healthz": "health", "readyz": "health"}


class PrometheusMetrics:
    """Counts requests and turns of this process, and reads the home's numbers on each scrape."""

    def __init__(self, get_home: Callable[[], Home]) -> None:
        """Take a function that returns the home served now; raise `NotInstalled` without `prometheus_client`."""
        try:
            # Imported only if metrics are switched on.
            import prometheus_client as prometheus
        except ImportError:
            raise optional_packages.build_missing_error("web.metrics", "prometheus_client") from None
        self._prometheus: Any = prometheus
        self._served = get_home
        self._home = get_home()
        self._as_nobody = self._home.as_system()
        self._registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=self._registry)
        self._requests = prometheus.Counter(
            "habitus_requests", "Requests answered.", ["route", "method", "status"], registry=self._registry
        )
        self._seconds = prometheus.Histogram(
            "habitus_request_seconds", "Seconds until the response started.", ["route"], registry=self._registry
        )
        self._counters: dict[str, Any] = {}
        self._registry.register(self)

    def increment_counter(self, name: str, number: float, attributes: Mapping[str, str]) -> None:
        """Increase a counter that OpenTelemetry counts as well, such as turns by outcome."""
        if name not in self._counters:
            self._counters[name] = self._prometheus.Counter(
                f"habitus_{name}", f"Counted {name}.", sorted(attributes), registry=self._registry
            )
        self._counters[name].labels(**attributes).inc(number)

    def count_request(self, path: str, method: str, status: int, seconds: float) -> None:
        """Count a request by kind of route."""
        # The path itself would name skills and people, and create a time series for each.
        door = _ROUTE_KINDS.get(path.strip("/").partition("/")[0], "page")
        # Methods are free text: a scanner could create any number of time series.
        self._requests.labels(door, method if method in _KNOWN_METHODS else "other", str(status)).inc()
        self._seconds.labels(door).observe(seconds)

    def collect(self) -> Iterator[Any]:
        """Yield the home's current numbers; the Prometheus library calls this on each scrape."""
        gauge = self._prometheus.metrics_core.GaugeMetricFamily
        home = self._get_anonymous_home()
        is_ready = check_readiness(home.settings, is_offline=home.is_offline).state is ProcessReadiness.READY
        yield gauge("habitus_ready", "1 if nothing is degraded, as in /readyz.", value=int(is_ready))
        try:
            skills = len(home.skills.snapshot().listing)
            waiting = count_pending_items(home)
            states = JobQueue(home.shared).count_jobs_by_state()
        # While the database is unreachable its numbers are unknown, which is not zero.
        except HabitusError:
            return
        yield gauge("habitus_skills", "Skills in the library.", value=skills)
        yield gauge("habitus_pending_reviews", "Changes and lessons pending review.", value=waiting)
        jobs = gauge("habitus_jobs", "Jobs by state.", labels=["state"])
        for state, number in states.items():
            jobs.add_metric([state.value], number)
        yield jobs

    def _get_anonymous_home(self) -> Home:
        """Return an anonymous view of the home that is served now."""
        # The home is replaced when settings change or the database is back.
        if (home := self._served()) is not self._home:
            self._home, self._as_nobody = home, home.as_system()
        return self._as_nobody

    def render_response(self) -> Response:
        """Return all metrics as a response."""
        text = self._prometheus.generate_latest(self._registry)
        return Response(text, media_type=self._prometheus.CONTENT_TYPE_LATEST)


class MetricsMiddleware:
    """Middleware that counts responses and answers `/metrics` itself."""

    def __init__(self, app: ASGIApp, metrics: PrometheusMetrics, token: str) -> None:
        self._app = app
        self._metrics = metrics
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["path"] == METRICS_PATH:
            await (await self._authorize_and_answer_scrape(scope))(scope, receive, send)
        else:
            await self._forward_and_count_request(scope, receive, send)

    async def _authorize_and_answer_scrape(self, scope: Scope) -> Response:
        kind, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
        given = token.encode("utf-8", "replace")
        # Compared in constant time, so the token can't be guessed byte by byte.
        if kind.lower() != "bearer" or not hmac.compare_digest(given, self._token):
            said = "Send the token for metrics that 'habitus up' printed as 'Authorization: Bearer TOKEN'.\n"
            return PlainTextResponse(said, HTTPStatus.UNAUTHORIZED, {"WWW-Authenticate": "Bearer"})
        return await run_in_thread(self._metrics.render_response)

    async def _forward_and_count_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()

        async def note(message: Message) -> None:
            if message["type"] == "http.response.start":
                seconds = time.perf_counter() - began
                self._metrics.count_request(scope["path"], scope["method"], message["status"], seconds)
            await send(message)

        await self._app(scope, receive, note)
