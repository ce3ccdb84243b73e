"""Check whether a database server answers in time, and whether a process is ready to serve."""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass
from enum import StrEnum

import sqlalchemy as sa

from habitus import operating_system, sql
from habitus.app.home_directory import (
    OUTBOX_DIR,
    create_home_and_check_writable,
    explain_why_home_is_unwritable,
    get_database_url,
)
from habitus.errors import StorageFailed
from habitus.journal.outbox import JournalOutbox
from habitus.redact import Redactor
from habitus.settings import Settings
from habitus.sql.outage import PROBE_TIMEOUT_S

_DEFAULT_PORT = 5432
# PostgreSQL's SSLRequest: a server answers it with one letter, before authentication.
_SSL_REQUEST = struct.pack("!ii", 8, 80877103)
_UNREACHABLE = "The database is unreachable ({})."
_NOT_YET = "The database was unreachable and is not in use again yet."
_TIMED_OUT = "no answer within {:.0f} ms"


def explain_missing_database_answer(engine: sa.Engine, timeout_s: float) -> str:
    """Return why a server does not answer a query within these seconds; empty if it does, or if there is none."""
    # An open port is not enough: a pooler accepts connections while its server is down.
    if (absent := explain_unreachable_database(engine.url, timeout_s)) or engine.dialect.name != "postgresql":
        return absent
    try:
        with sql.translate_storage_errors(engine), engine.connect() as conn:
            asked = time.monotonic()
            engine.dialect.do_ping(conn.connection.dbapi_connection)  # type: ignore[arg-type]  # it is open
            took = time.monotonic() - asked
    except StorageFailed as error:
        return error.message
    return "" if took <= timeout_s else _UNREACHABLE.format(_TIMED_OUT.format(timeout_s * 1000))


def is_shared_database_back(settings: Settings) -> bool:
    """Whether the database that the offline snapshot replaces answers again."""
    connections = settings.database_connections or sql.DEFAULT_POOL_SIZE
    return not explain_missing_database_answer(
        sql.create_engine(get_database_url(settings), settings.workspace, connections=connections), PROBE_TIMEOUT_S
    )


def explain_unreachable_database(url: sa.URL, timeout_s: float) -> str:
    """Return why no server is reachable within these seconds; empty if one is, or if the database is a file."""
    if url.get_backend_name() != "postgresql":
        return ""
    problem = ""
    until = time.monotonic() + timeout_s
    for host, port in _list_database_server_addresses(url):
        try:
            with _open_socket(host, port, until) as line:
                line.settimeout(max(until - time.monotonic(), 0.001))
                line.sendall(_SSL_REQUEST)
                if line.recv(1):
                    return ""
                problem = "it hung up"
        except TimeoutError:
            problem = _TIMED_OUT.format(timeout_s * 1000)
        except OSError as error:
            problem = error.strerror or str(error)
    return _UNREACHABLE.format(problem)


def _list_database_server_addresses(url: sa.URL) -> list[tuple[str, int]]:
    """Return host and port of each server; a URL may name several, or the directory of a Unix socket."""
    hosts, ports = url.query.get("host", url.host or "localhost"), url.query.get("port", str(url.port or _DEFAULT_PORT))
    named = hosts.split(",") if isinstance(hosts, str) else list(hosts)
    numbers = ports.split(",") if isinstance(ports, str) else list(ports)
    numbers += numbers[-1:] * (len(named) - len(numbers))
    places = zip(named, numbers, strict=False)
    return [(host.partition(":")[0] if host.count(":") == 1 else host, int(port)) for host, port in places]


def _open_socket(host: str, port: int, until: float) -> socket.socket:
    seconds = max(until - time.monotonic(), 0.001)
    if not host.startswith("/"):
        return socket.create_connection((host, port), timeout=seconds)
    return operating_system.connect_unix_socket(f"{host}/.s.PGSQL.{port}", seconds)


class ProcessReadiness(StrEnum):
    """Whether a process can serve."""

    READY = "ready"
    # It serves, from the data last seen.
    DEGRADED = "degraded"
    UNUSABLE = "unusable"


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadinessReport:
    """The readiness of a process, with reasons; none of them is secret."""

    state: ProcessReadiness
    reasons: tuple[str, ...] = ()

    @property
    def can_serve(self) -> bool:
        """Whether the process can serve requests at all."""
        return self.state is not ProcessReadiness.UNUSABLE


def check_readiness(settings: Settings, *, is_offline: bool = False) -> ReadinessReport:
    """Check storage, database and outbox now; `is_offline` if the process serves the offline snapshot."""
    try:
        reasons = (
            []
            if create_home_and_check_writable(settings.home)
            else [f"{explain_why_home_is_unwritable(settings.home)}."]
        )
    except StorageFailed as error:
        return ReadinessReport(state=ProcessReadiness.UNUSABLE, reasons=(error.message,))
    if silent := _explain_outage(settings, is_offline):
        reasons.append(silent)
    spool = JournalOutbox(settings.home / OUTBOX_DIR, Redactor(()))
    if waiting := spool.pending_count:
        reasons.append(f"{waiting} {'turn is' if waiting == 1 else 'turns are'} waiting to be stored.")
    if dropped := spool.dropped_count:
        reasons.append(f"{dropped} {'entry was' if dropped == 1 else 'entries were'} dropped so far.")
    # Entries dropped in the past stay reported, but don't make the process degraded now.
    is_degraded = len(reasons) > bool(dropped)
    return ReadinessReport(
        state=ProcessReadiness.DEGRADED if is_degraded else ProcessReadiness.READY, reasons=tuple(reasons)
    )


def _explain_outage(settings: Settings, is_offline: bool) -> str:
    if not settings.database:
        return ""
    if is_offline:
        return explain_unreachable_database(sa.make_url(settings.database), PROBE_TIMEOUT_S) or _NOT_YET
    return explain_missing_database_answer(sql.create_engine(settings.database, settings.workspace), PROBE_TIMEOUT_S)
