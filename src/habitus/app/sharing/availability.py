"""Check whether a database server answers in time, and whether a process is ready to serve."""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass
from enum import StrEnum

import sqlalchemy as sa

from habitus import sql
from habitus.app.home_directory import WAITING, address, can_write, why_read_only
from habitus.errors import StorageFailed
from habitus.journal.spool import Spool
from habitus.redact import Redactor
from habitus.settings import Settings
from habitus.sql.outage import ANSWERS_S

_PORT = 5432
# PostgreSQL's SSLRequest: a server answers it with one letter, before authentication.
_MAY_WE_ENCRYPT = struct.pack("!ii", 8, 80877103)
_AWAY = "The database is away ({})."
_NOT_YET = "The database was away, and is not used again yet."
_LATE = "no answer within {:.0f} ms"


def silence(engine: sa.Engine, within: float) -> str:
    """Return why a server does not answer a query within these seconds; empty if it does, or if there is none."""
    # An open port is not enough: a pooler accepts connections while its server is down.
    if (absent := absence(engine.url, within)) or engine.dialect.name != "postgresql":
        return absent
    try:
        with sql.storage_errors(engine), engine.connect() as connection:
            asked = time.monotonic()
            engine.dialect.do_ping(connection.connection.dbapi_connection)  # type: ignore[arg-type]  # it is open
            took = time.monotonic() - asked
    except StorageFailed as error:
        return error.message
    return "" if took <= within else _AWAY.format(_LATE.format(within * 1000))


def is_back(settings: Settings) -> bool:
    """Whether the database that the offline snapshot replaces answers again."""
    connections = settings.database_connections or sql.CONNECTIONS
    return not silence(sql.create_engine(address(settings), settings.workspace, connections=connections), ANSWERS_S)


def absence(url: sa.URL, within: float) -> str:
    """Return why no server is reachable within these seconds; empty if one is, or if the database is a file."""
    if url.get_backend_name() != "postgresql":
        return ""
    problem = ""
    until = time.monotonic() + within
    for host, port in _places(url):
        try:
            with _connect(host, port, until) as line:
                line.settimeout(max(until - time.monotonic(), 0.001))
                line.sendall(_MAY_WE_ENCRYPT)
                if line.recv(1):
                    return ""
                problem = "it hung up"
        except TimeoutError:
            problem = _LATE.format(within * 1000)
        except OSError as error:
            problem = error.strerror or str(error)
    return _AWAY.format(problem)


def _places(url: sa.URL) -> list[tuple[str, int]]:
    """Return host and port of each server; a URL may name several, or the directory of a Unix socket."""
    hosts, ports = url.query.get("host", url.host or "localhost"), url.query.get("port", str(url.port or _PORT))
    named = hosts.split(",") if isinstance(hosts, str) else list(hosts)
    numbers = ports.split(",") if isinstance(ports, str) else list(ports)
    numbers += numbers[-1:] * (len(named) - len(numbers))
    places = zip(named, numbers, strict=False)
    return [(host.partition(":")[0] if host.count(":") == 1 else host, int(port)) for host, port in places]


def _connect(host: str, port: int, until: float) -> socket.socket:
    seconds = max(until - time.monotonic(), 0.001)
    if not host.startswith("/"):
        return socket.create_connection((host, port), timeout=seconds)
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.settimeout(seconds)
    try:
        line.connect(f"{host}/.s.PGSQL.{port}")
    except OSError:
        line.close()
        raise
    return line


class ReadyState(StrEnum):
    """Whether a process can serve."""

    READY = "ready"
    # It serves, from the data last seen.
    DEGRADED = "degraded"
    UNUSABLE = "unusable"


@dataclass(frozen=True, kw_only=True, slots=True)
class Readiness:
    """The readiness of a process, with reasons; none of them is secret."""

    state: ReadyState
    reasons: tuple[str, ...] = ()

    @property
    def can_serve(self) -> bool:
        """Whether the process can serve requests at all."""
        return self.state is not ReadyState.UNUSABLE


def readiness(settings: Settings, *, is_stand_in: bool = False) -> Readiness:
    """Check storage, database and outbox now; `is_offline` if the process serves the offline snapshot."""
    try:
        reasons = [] if can_write(settings.home) else [f"{why_read_only(settings.home)}."]
    except StorageFailed as error:
        return Readiness(state=ReadyState.UNUSABLE, reasons=(error.message,))
    if silent := _silence_of(settings, is_stand_in):
        reasons.append(silent)
    spool = Spool(settings.home / WAITING, Redactor(()))
    if waiting := spool.waiting:
        reasons.append(f"{waiting} {'turn waits' if waiting == 1 else 'turns wait'} to be written down.")
    if dropped := spool.count_dropped:
        reasons.append(f"{dropped} {'entry was' if dropped == 1 else 'entries were'} dropped so far.")
    # Entries dropped in the past stay reported, but don't make the process degraded now.
    is_degraded = len(reasons) > bool(dropped)
    return Readiness(state=ReadyState.DEGRADED if is_degraded else ReadyState.READY, reasons=tuple(reasons))


def _silence_of(settings: Settings, is_stand_in: bool) -> str:
    if not settings.database:
        return ""
    if is_stand_in:
        return absence(sa.make_url(settings.database), ANSWERS_S) or _NOT_YET
    return silence(sql.create_engine(settings.database, settings.workspace), ANSWERS_S)
