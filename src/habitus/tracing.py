"""Tracing: attaches turn and job ids to log lines, and sends spans and counts to OpenTelemetry if an endpoint is set.

Otherwise nothing of OpenTelemetry is imported, and a span costs one comparison.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from habitus import optional_packages

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import Counter, Meter
    from opentelemetry.trace import Tracer

log = logging.getLogger(__name__)

ENDPOINT_VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"
# How long a process waits for a silent endpoint when it ends.
_WAIT_S = 3

_log_context: ContextVar[Mapping[str, str]] = ContextVar("about", default=MappingProxyType({}))


@contextmanager
def add_log_context(**ids: str) -> Iterator[None]:
    """Attach these ids to all log lines of the block, including those of threads it starts."""
    before = _log_context.set({**_log_context.get(), **ids})
    try:
        yield
    finally:
        _log_context.reset(before)


def get_log_context() -> Mapping[str, str]:
    """Return the ids of the current turn, session or job."""
    return _log_context.get()


@dataclass(kw_only=True, slots=True)
class _TelemetryInstruments:
    tracer: Tracer
    meter: Meter
    counters: dict[str, Counter] = field(default_factory=dict)


_exporter: _TelemetryInstruments | None = None


@contextmanager
def trace_span(name: str, *, traceparent: str = "", **attributes: str) -> Iterator[None]:
    """Trace a block as a span; attributes are ids and names, never what people or models said.

    It is part of the current span, or of the one in another process or thread that `traceparent` names.
    """
    step = ManualSpan(name, traceparent=traceparent, **attributes)
    try:
        with step.activate():
            yield
    finally:
        step.end()


@contextmanager
def trace_span_if_inside_another(name: str, **attributes: str) -> Iterator[None]:
    """Trace a block as a span of the current one; without one, such as a worker that only polls, not at all."""
    if _get_telemetry_instruments() is None or not _has_current_span():
        yield
        return
    with trace_span(name, **attributes):
        yield


def get_traceparent() -> str:
    """Return the current span as a W3C `traceparent`, for work that another process does later; empty without one."""
    if _get_telemetry_instruments() is None:
        return ""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent", "")


def _parse_traceparent(traceparent: str) -> Context:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({"traceparent": traceparent})


def _has_current_span() -> bool:
    from opentelemetry.trace import get_current_span

    return get_current_span().is_recording()


class ManualSpan:
    """A span that one piece of code begins and another ends, such as a turn of a foreign loop."""

    def __init__(self, name: str, *, traceparent: str = "", **attributes: str) -> None:
        self._span = None
        if (to := _get_telemetry_instruments()) is not None:
            given = {f"habitus.{key}": value for key, value in {**_log_context.get(), **attributes}.items()}
            parent = _parse_traceparent(traceparent) if traceparent else None
            self._span = to.tracer.start_span(f"habitus.{name}", context=parent, attributes=given)

    @contextmanager
    def activate(self) -> Iterator[None]:
        """Make this the current span for the block."""
        if self._span is None:
            yield
            return
        from opentelemetry.trace import use_span

        with use_span(self._span, record_exception=False):
            yield

    def end(self) -> None:
        if self._span is not None:
            self._span.end()


_counters: list[Callable[[str, float, Mapping[str, str]], None]] = []


@contextmanager
def forward_telemetry_counts_during_block(note: Callable[[str, float, Mapping[str, str]], None]) -> Iterator[None]:
    """Also pass all counts of the block, from any thread, to this function."""
    _counters.append(note)
    try:
        yield
    finally:
        _counters.remove(note)


def add_to_telemetry_counter(name: str, number: float = 1, **attributes: str) -> None:
    """Add to a counter."""
    for note in _counters:
        note(name, number, attributes)
    to = _get_telemetry_instruments()
    if to is None:
        return
    if name not in to.counters:
        to.counters[name] = to.meter.create_counter(f"habitus.{name}")
    to.counters[name].add(number, {f"habitus.{key}": value for key, value in attributes.items()})


def _get_telemetry_instruments() -> _TelemetryInstruments | None:
    """Return our exporter, or that of a host program which has set up OpenTelemetry itself; None without either."""
    return (
        _exporter
        if _exporter is not None or "opentelemetry.sdk.trace" not in sys.modules
        else _create_host_program_instruments()
    )


@functools.cache
def _create_host_program_instruments() -> _TelemetryInstruments:
    # Already imported by the host program.
    from opentelemetry import metrics, trace

    return _TelemetryInstruments(tracer=trace.get_tracer("habitus"), meter=metrics.get_meter("habitus"))


@contextmanager
def export_telemetry_during_block(environ: Mapping[str, str]) -> Iterator[None]:
    """Send spans and counts of the block to the endpoint in the environment, by the standard variables."""
    # One process has one exporter.
    global _exporter
    if not environ.get(ENDPOINT_VARIABLE):
        yield
        return
    try:
        providers = _create_providers()
    except ModuleNotFoundError:
        log.warning(
            "%s is set, and nothing is sent there. %s",
            ENDPOINT_VARIABLE,
            optional_packages.describe_install("opentelemetry.sdk"),
        )
        yield
        return
    tracer, meter = providers
    _exporter = _TelemetryInstruments(tracer=tracer.get_tracer("habitus"), meter=meter.get_meter("habitus"))
    try:
        yield
    finally:
        _exporter = None
        for provider in providers:
            try:
                provider.shutdown()
            # An unreachable endpoint must not fail the process at its end.
            except Exception as error:
                log.info("Not everything reached %s: %s", ENDPOINT_VARIABLE, error)


def _create_providers() -> tuple[Any, Any]:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # Its complaints about an endpoint help nobody at work.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    resource = Resource.create({"service.name": "habitus"})
    tracer = TracerProvider(resource=resource)
    tracer.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=_WAIT_S)))
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(timeout=_WAIT_S))
    return tracer, MeterProvider(resource=resource, metric_readers=[reader])
