"""The workers that run jobs: host, version, last sign of life, and whether their process is still alive."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from typing import Any

import sqlalchemy as sa

from habitus import sql
from habitus.operating_system import get_process_start_id

workers = sa.Table(
    "job_workers",
    sql.metadata,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("host", sa.String, nullable=False),
    sa.Column("pid", sa.BigInteger, nullable=False),
    # When its process started, which tells it from a later one with the same id.
    *sql.build_required_columns(sa.String, "started", "version"),
    # The last sign of life, by the database's clock.
    sa.Column("seen_on", sa.BigInteger, nullable=False),
)


@dataclass(frozen=True, kw_only=True)
class WorkerDetails:
    """A worker, its last sign of life, and the ids of the jobs that it holds."""

    name: str
    host: str
    version: str
    seen_on: datetime
    jobs: Sequence[str]


# The workers of this process that run now.
_own_workers: set[str] = set()


def build_new_worker_row() -> dict[str, Any]:
    """Return the row of a new worker of this process, without its sign of life."""
    pid, host = os.getpid(), socket.gethostname()
    name = f"{host}-{pid}-{uuid.uuid4().hex[:8]}"
    _own_workers.add(name)
    return {"name": name, "host": host, "pid": pid, "started": get_process_start_id(pid), "version": version("habitus")}


def mark_own_worker_ended(name: str) -> None:
    """Note that a worker of this process has ended."""
    _own_workers.discard(name)


def is_worker_on_this_host(worker: sa.Row[Any]) -> bool:
    """Return whether the worker runs where its process can be looked up."""
    return bool(worker.host == socket.gethostname())


def is_worker_process_alive(worker: sa.Row[Any]) -> bool:
    """Return whether a worker of this host still runs."""
    is_running = bool(worker.started) and worker.started == get_process_start_id(worker.pid)
    return is_running and (worker.pid != os.getpid() or worker.name in _own_workers)
