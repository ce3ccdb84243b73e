"""Metrics: numbers in the text form that Prometheus reads, for whoever has the token; no name is in them."""

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
from habitus.agent.background import in_thread
from habitus.app.home import Home
from habitus.app.sharing.availability import ReadyState, readiness
from habitus.errors import HabitusError
from habitus.jobs.queue import JobQueue

PATH = "/metrics"
_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
_DOORS = {"api": "rest", "mcp": "mcp", "static": "static", "healthz": "health", "readyz": "health"}


class Metrics:
    """Counted here are requests and turns of this process; what the home holds is looked up when somebody asks."""

    def __init__(self, served: Callable[[], Home]) -> None:
        """`served` gives the home that is served now."""
        try:
            import prometheus_client as prometheus  # for those who have switched it on
        except ImportError:
            raise optional_packages.absent("web.metrics", "prometheus_client") from None
        self._prometheus: Any = prometheus
        self._served = served
        self._home = served()
        self._as_nobody = self._home.as_nobody()
        self._registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=self._registry)
        self._requests = prometheus.Counter(
            "habitus_requests", "Requests answered.", ["door", "method", "status"], registry=self._registry
        )
        self._seconds = prometheus.Histogram(
            "habitus_request_seconds", "Seconds until an answer began.", ["door"], registry=self._registry
        )
        self._counters: dict[str, Any] = {}
        self._registry.register(self)

    def count(self, name: str, number: float, attributes: Mapping[str, str]) -> None:
        """Take down what is counted for OpenTelemetry too, such as turns by outcome."""
        if name not in self._counters:
            self._counters[name] = self._prometheus.Counter(
                f"habitus_{name}", f"Counted {name}.", sorted(attributes), registry=self._registry
            )
        self._counters[name].labels(**attributes).inc(number)

    def count_request(self, path: str, method: str, status: int, seconds: float) -> None:
        """No more than the kind of door is told of an address, which names skills and people."""
        door = _DOORS.get(path.strip("/").partition("/")[0], "page")
        self._requests.labels(door, method if method in _METHODS else "other", str(status)).inc()
        self._seconds.labels(door).observe(seconds)

    def collect(self) -> Iterator[Any]:
        """As the library asks for it, each time that somebody reads."""
        gauge = self._prometheus.metrics_core.GaugeMetricFamily
        home = self._look()
        is_ready = readiness(home.settings, is_stand_in=home.is_stand_in).state is ReadyState.READY
        yield gauge("habitus_ready", "1 where nothing is made do without, as /readyz says.", value=int(is_ready))
        try:
            skills = len(home.skills.snapshot().listing)
            waiting = home.waiting_count()
            states = JobQueue(home.shared).states()
        except HabitusError:  # while the database is away, what it holds is not known
            return
        yield gauge("habitus_skills", "Skills in the library.", value=skills)
        yield gauge("habitus_waiting", "Changes and lessons that wait for a person.", value=waiting)
        jobs = gauge("habitus_jobs", "Jobs by state.", labels=["state"])
        for state, number in states.items():
            jobs.add_metric([state.value], number)
        yield jobs

    def _look(self) -> Home:
        """At all of the home that is served now, which is another one once a database is back."""
        if (home := self._served()) is not self._home:
            self._home, self._as_nobody = home, home.as_nobody()
        return self._as_nobody

    def answer(self) -> Response:
        text = self._prometheus.generate_latest(self._registry)
        return Response(text, media_type=self._prometheus.CONTENT_TYPE_LATEST)


class Measured:
    """Stands before an application: counts what it answers, and answers `/metrics` itself."""

    def __init__(self, app: ASGIApp, metrics: Metrics, token: str) -> None:
        self._app = app
        self._metrics = metrics
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["path"] == PATH:
            await (await self._answer(scope))(scope, receive, send)
        else:
            await self._count(scope, receive, send)

    async def _answer(self, scope: Scope) -> Response:
        kind, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
        given = token.encode("utf-8", "replace")
        if kind.lower() != "bearer" or not hmac.compare_digest(given, self._token):
            said = "Send the token for metrics that 'habitus up' printed as 'Authorization: Bearer TOKEN'.\n"
            return PlainTextResponse(said, HTTPStatus.UNAUTHORIZED, {"WWW-Authenticate": "Bearer"})
        return await in_thread(self._metrics.answer)

    async def _count(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()

        async def note(message: Message) -> None:
            if message["type"] == "http.response.start":
                seconds = time.perf_counter() - began
                self._metrics.count_request(scope["path"], scope["method"], message["status"], seconds)
            await send(message)

        await self._app(scope, receive, note)
