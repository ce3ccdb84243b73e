"""The engine's database: one pool of connections for all that a process does with jobs, and the tables we look into.

The engine keeps what jobs have come to. Where they wait, and who may take them, is decided here and in `room.py`,
because the engine's own queues can't tell one worker's room from another's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import sqlalchemy as sa
from dbos import DBOS
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry

from habitus import sql
from habitus.jobs.engine import WAITING
from habitus.locks import lock
from habitus.sql.presence import connecting

_BUSY_S = 30
_metadata = sa.MetaData(schema="engine")  # which schema that is, each store says

jobs = sa.Table(
    "workflow_status",
    _metadata,
    sa.Column("workflow_uuid", sa.Text, primary_key=True),
    sa.Column("name", sa.Text),
    sa.Column("status", sa.Text),
    sa.Column("queue_name", sa.Text),
    sa.Column("executor_id", sa.Text),
    sa.Column("owner_xid", sa.Text),  # whoever does not have it writes in vain
    sa.Column("priority", sa.Integer),
    sa.Column("created_at", sa.BigInteger),
    sa.Column("started_at_epoch_ms", sa.BigInteger),
    sa.Column("delay_until_epoch_ms", sa.BigInteger),
    sa.Column("application_version", sa.Text),
    sa.Column("attributes", sa.JSON),
)
parts = sa.Table(
    "operation_outputs",
    _metadata,
    sa.Column("workflow_uuid", sa.Text, primary_key=True),
    sa.Column("function_id", sa.Integer, primary_key=True),
    sa.Column("function_name", sa.Text),
    sa.Column("output", sa.Text),
    sa.Column("error", sa.Text),
)
queues = sa.Table(
    "queues", _metadata, sa.Column("name", sa.Text, primary_key=True), sa.Column("updated_at", sa.BigInteger)
)


def is_for(host: str) -> sa.ColumnElement[bool]:
    """A job that any host can do, or this one."""
    return sa.func.coalesce(jobs.c.attributes["host"].as_string(), "").in_(("", host))


class JobStore:
    def __init__(self, url: str, *, connections: int = 1, workspace: str = "") -> None:
        self.url = url
        engine = _sqlite(url) if sa.make_url(url).get_backend_name() == "sqlite" else _postgresql(url, connections)
        with sql.storage_errors(engine), _alone(engine):
            self.schema = _schema(engine, workspace)
            DBOS.migrate(url, schema=self.schema or "")
        self.engine = engine.execution_options(schema_translate_map={"engine": self.schema})

    def close(self) -> None:
        self.engine.dispose()

    @property
    def is_shared(self) -> bool:
        """Whether other hosts work on it."""
        return self.schema is not None

    def now_ms(self) -> sa.ColumnElement[int]:
        """By the clock of whoever keeps the jobs: those of the hosts differ."""
        if not self.is_shared:
            return sa.literal(int(time.time() * 1000))
        return sa.cast(sa.extract("epoch", sa.func.clock_timestamp()) * 1000, sa.BigInteger)

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        with sql.storage_errors(self.engine), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        with sql.storage_errors(self.engine), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def changing(self) -> Iterator[sa.Connection]:
        """A transaction in which nobody else decides who takes what."""
        with self.writing() as connection:
            if self.is_shared:
                name = {"name": f"{self.schema}.{WAITING}"}
                connection.execute(sa.text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"), name)
            else:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection


def is_there(engine: sa.Engine, workspace: str = "") -> bool:
    """Whether anybody has ever left a job on this server."""
    with sql.storage_errors(engine):
        schema = _schema(engine, workspace)
        return schema is None or sa.inspect(engine).has_schema(schema)


def _alone(engine: sa.Engine) -> AbstractContextManager[object]:
    """Nobody else makes tables meanwhile: in a file the engine does not see to it, and two that find none begin."""
    is_file = engine.dialect.name == "sqlite"
    return lock(Path(engine.url.database or "").parent) if is_file else nullcontext()


def _sqlite(url: str) -> sa.Engine:
    engine = sa.create_engine(url, connect_args={"timeout": _BUSY_S})
    sa.event.listen(engine, "connect", _prepare)
    return engine


def _prepare(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    raw: Any = connection
    raw.isolation_level = "IMMEDIATE"  # as the engine has it: who reads in order to write would else be refused
    raw.execute("PRAGMA foreign_keys = ON")
    raw.execute("PRAGMA secure_delete = ON")  # what is forgotten leaves nothing in the file


# By address: all that a process does with jobs there shares the connections of its worker.
_servers: WeakValueDictionary[str, sa.Engine] = WeakValueDictionary()


def _postgresql(url: str, connections: int) -> sa.Engine:
    known = _servers.get(url)
    if known is None or known.pool.size() < connections:  # type: ignore[attr-defined]  # of the pool that it is made with
        known = _servers[url] = _connecting(url, connections)
    return known


def _connecting(url: str, connections: int) -> sa.Engine:
    address = sa.make_url(url).set(drivername="postgresql+psycopg")
    return sa.create_engine(
        address,
        pool_size=connections,
        max_overflow=0,
        pool_pre_ping=True,
        connect_args=connecting(address, "habitus jobs"),
    )


def _schema(engine: sa.Engine, workspace: str) -> str | None:
    """Beside the one of our own tables, which no workspace can be called like; None for SQLite."""
    if engine.dialect.name == "sqlite":
        return None
    with engine.connect() as connection:
        ours = workspace or connection.execute(sa.text("SELECT current_schema()")).scalar_one()
    return f"{ours}_jobs"
