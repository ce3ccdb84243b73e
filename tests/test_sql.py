"""The one database: its schema, its guards against other versions, and what it says when it can't work."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from hypothesis import given
from hypothesis import strategies as st

import habitus.migrations.versions
from habitus import app, locks, sql
from habitus.app.sharing.availability import explain_unreachable_database
from habitus.errors import StorageFailed
from habitus.llm.model import CompletionRequest, fetch_answer
from habitus.llm.scripted import ScriptedModel, says
from habitus.sandbox.machine import probe_machine


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database that this code has just made."""
    path = tmp_path / app.DATABASE
    sql.open_engine_with_current_schema(sql.build_sqlite_url(path)).dispose()
    return path


def _execute(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


def test_the_migrations_make_exactly_the_declared_tables(database: Path) -> None:
    for module in pkgutil.walk_packages(habitus.__path__, "habitus."):
        if not module.name.startswith(("habitus.migrations", "habitus.__main__", "habitus.integrations")):
            importlib.import_module(module.name)
    engine = sql.create_engine(sql.build_sqlite_url(database))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_server_default": _is_another_default})
        # The table with what older code may read belongs to the migrations alone.
        differences = [d for d in compare_metadata(context, sql.metadata) if "schema_compatibility" not in str(d)]
    engine.dispose()
    assert differences == []


def _is_another_default(
    _context: object, _there: object, _wanted: object, there: str | None, *more: Any
) -> bool | None:
    """SQLite writes an empty text as `('')`, which is the same default; the rest is left to alembic."""
    return False if there == "('')" and more[1] == "" else None


def test_head_is_the_newest_migration() -> None:
    folder = Path(habitus.migrations.versions.__path__[0])
    files = sorted(path for path in folder.glob("*.py") if re.match(r"\d{4}_", path.name))
    numbers = [path.name[:4] for path in files]
    assert numbers[-1] == sql.HEAD
    follows = [re.findall(r'^down_revision = "(\d{4})"', path.read_text(), re.MULTILINE) for path in files]
    assert follows == [[], *([number] for number in numbers[:-1])]


@pytest.mark.req("SC-01", "OP-03")
def test_a_database_from_before_the_baseline_says_what_to_do(database: Path) -> None:
    url = sql.build_sqlite_url(database)
    engine = sql.create_engine(url)
    with sql.write_transaction(engine) as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '0027'"))
    for attempt in (lambda: sql.open_engine_with_current_schema(url), lambda: sql.migrate_database(engine)):
        with pytest.raises(
            StorageFailed, match=r"has schema 0027, from before the first release.*docs/guides/operatio"
        ):
            attempt()
    assert sql.get_schema_revision(engine) == "0027"
    engine.dispose()


def test_opening_twice_changes_nothing(database: Path) -> None:
    before = database.read_bytes()
    sql.open_engine_with_current_schema(sql.build_sqlite_url(database)).dispose()
    assert database.read_bytes() == before


@pytest.mark.req("SC-01")
@pytest.mark.parametrize("compatibility", ["", "DELETE FROM schema_compatibility"])
def test_a_newer_database_is_refused_and_left_untouched(database: Path, compatibility: str) -> None:
    _execute(database, "UPDATE alembic_version SET version_num = '9999'")
    _execute(database, compatibility or "INSERT INTO schema_compatibility VALUES ('9999', '9998')")
    before = database.read_bytes()
    with pytest.raises(StorageFailed) as caught:
        sql.open_engine_with_current_schema(sql.build_sqlite_url(database))
    assert str(caught.value) == (
        f"{database} was written by a newer Habitus (schema 9999, this one knows {sql.HEAD}). "
        "Upgrade Habitus, or point HABITUS_HOME elsewhere. Nothing was changed."
    )
    assert database.read_bytes() == before


@pytest.mark.full
def test_a_newer_database_that_allows_older_readers_is_used_as_it_is(database: Path) -> None:
    _execute(database, "UPDATE alembic_version SET version_num = '9999'")
    _execute(database, f"INSERT INTO schema_compatibility VALUES ('9999', '{sql.HEAD}')")
    engine = sql.open_engine_with_current_schema(sql.build_sqlite_url(database))
    with sql.read_transaction(engine) as connection:
        assert connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar_one() == "9999"
        assert connection.execute(sa.text("SELECT count(*) FROM skills")).scalar_one() == 0
    engine.dispose()


@pytest.mark.req("SC-01")
@pytest.mark.parametrize(
    "content", [b"this is no database, it is a text " * 100, b"SQLite format 3\x00" + b"\xff" * 4000]
)
def test_a_damaged_file_is_said_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / app.DATABASE
    path.write_bytes(content)
    with pytest.raises(StorageFailed, match=r"is damaged .* Skills on disk .* \.recover"):
        sql.open_engine_with_current_schema(sql.build_sqlite_url(path))
    assert path.read_bytes() == content


@pytest.mark.req("SC-01")
def test_a_directory_in_its_place_is_said(tmp_path: Path) -> None:
    path = tmp_path / app.DATABASE
    path.mkdir()
    with pytest.raises(StorageFailed, match=r"can't be opened\. Check that its directory"):
        sql.open_engine_with_current_schema(sql.build_sqlite_url(path))


@pytest.mark.req("SC-01")
def test_a_full_disk_is_said_and_loses_nothing(database: Path) -> None:
    engine = sql.open_engine_with_current_schema(sql.build_sqlite_url(database))
    with engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    with (
        pytest.raises(StorageFailed, match=r"No space left for .*; nothing was changed"),
        sql.write_transaction(engine) as writer,
    ):
        writer.execute(sa.text("INSERT INTO blobs VALUES ('a', zeroblob(100000))"))
    with sql.read_transaction(engine) as reader:
        assert reader.execute(sa.text("SELECT count(*) FROM blobs")).scalar_one() == 0
    engine.dispose()


@pytest.mark.parametrize("url", ["nonsense", "mysql://host/db", "", "://"])
def test_an_address_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(StorageFailed) as caught:
        sql.create_engine(url)
    assert "postgresql://…" in caught.value.hint


def test_a_missing_driver_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StorageFailed, match=r"pip install 'habitus\[postgres\] @ \S+'"):
        sql.create_engine("postgresql://127.0.0.1/habitus")


def test_a_password_is_never_said() -> None:
    engine = sql.create_engine("postgresql://ann:secret@127.0.0.1:1/habitus")
    with pytest.raises(StorageFailed) as caught, sql.read_transaction(engine):
        pass
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_error_in_a_transaction_takes_all_of_it_back(database: Path) -> None:
    engine = sql.open_engine_with_current_schema(sql.build_sqlite_url(database))
    insert = sa.text("INSERT INTO sequences VALUES ('a', 1)")
    with pytest.raises(StorageFailed, match="UNIQUE"), sql.write_transaction(engine, durable=True) as connection:
        _ = [connection.execute(insert) for _ in range(2)]
    with sql.read_transaction(engine) as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM sequences")).scalar_one() == 0
    engine.dispose()


def test_rows_that_are_there_stay_when_missing_ones_are_inserted() -> None:
    engine = sql.create_in_memory_engine()
    sequences = sql.metadata.tables["sequences"]
    with sql.write_transaction(engine) as connection:
        sql.insert_missing_rows(connection, sequences, [{"name": "a", "value": 1}])
        sql.insert_missing_rows(connection, sequences, [{"name": "a", "value": 2}, {"name": "b", "value": 3}])
        sql.insert_missing_rows(connection, sequences, [])
        rows = connection.execute(sa.select(sequences).order_by(sequences.c.name)).all()
    engine.dispose()
    assert [tuple(row) for row in rows] == [("a", 1), ("b", 3)]


MOMENTS = st.datetimes(min_value=datetime(1900, 1, 2), max_value=datetime(2999, 12, 30)).map(
    lambda timestamp: timestamp.replace(tzinfo=timezone(timedelta(hours=timestamp.hour - 12)))
)


@given(MOMENTS, MOMENTS)
def test_timestamps_come_back_and_sort_by_time(a: datetime, b: datetime) -> None:
    kind, dialect = sql.UtcDateTime(), sa.create_engine("sqlite://").dialect
    stored_a, stored_b = kind.process_bind_param(a, dialect), kind.process_bind_param(b, dialect)
    assert kind.process_result_value(stored_a, dialect) == a.astimezone(UTC)
    assert stored_a is not None
    assert stored_b is not None
    assert (stored_a < stored_b) == (a < b)


@pytest.mark.req("SC-02")
def test_processes_that_open_a_new_home_at_once_all_get_it(tmp_path: Path, python: str) -> None:
    home = tmp_path / "home"
    code = (
        "import sys; from pathlib import Path; from habitus.app import Habitus, read_settings\n"
        "sys.stdin.read(1)\n"
        "settings = read_settings(Path(sys.argv[1]), {'HOME': sys.argv[2]})\n"
        "with Habitus.open(settings) as habitus: print(len(habitus.skills.list_skills()) >= 0, habitus.is_read_only)\n"
    )
    started = [
        subprocess.Popen(
            [python, "-c", code, str(home), str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    done = [process.communicate("\n") for process in started]
    assert done == [("True False\n", "")] * 3


@pytest.mark.req("OP-05")
def test_who_holds_a_connection_asks_for_no_other(home: Path, tmp_path: Path) -> None:
    """The guard of all tests (`tests/one_connection.py`) is on."""
    one, other = (sql.create_engine(sql.build_sqlite_url(tmp_path / name)) for name in ("one.db", "other.db"))
    with (
        sql.read_transaction(one),
        pytest.raises(AssertionError, match="asks for another"),
        sql.read_transaction(other),
    ):
        pass
    with sql.read_transaction(one), pytest.raises(AssertionError, match="asks a model while a transaction is open"):
        asyncio.run(fetch_answer(ScriptedModel([says("Done.")]), CompletionRequest(system="", messages=())))
    with sql.read_transaction(one), pytest.raises(AssertionError, match="connects to"):
        explain_unreachable_database(sa.make_url("postgresql://127.0.0.1:9/x"), 1.0)
    with (
        sql.read_transaction(one),
        pytest.raises(AssertionError, match="waits for the lock"),
        locks.hold_lock(tmp_path / "a.lock"),
    ):
        pass
    with sql.read_transaction(one), pytest.raises(AssertionError, match="starts a program"):
        probe_machine(search_path=str(tmp_path))  # another than was tried before
    with (
        sql.write_transaction(one, lock="trust"),
        pytest.raises(ResourceWarning, match="is held"),
        sql.write_transaction(one, lock="x"),
    ):
        pass
