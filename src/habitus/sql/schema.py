"""The schema version of a database: check whether this code can use it, and migrate it."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from typing import Any

import sqlalchemy as sa

from habitus.errors import StorageFailed
from habitus.sql.addresses import describe_database, get_workspace_of_engine, refuse_if_older_processes_connected
from habitus.sql.errors import translate_storage_errors
from habitus.sql.transactions import write_transaction

# The newest migration this code knows; a test compares it with the migrations folder.
HEAD = "0041"

# The first migration of a release; older schemas can't be upgraded in place.
BASELINE = "0028"

COMPATIBILITY_TABLE = "schema_compatibility"

OLDEST_READER_QUERY = f"SELECT MAX(oldest_reader) FROM {COMPATIBILITY_TABLE}"

# The advisory lock that writers share and a migration takes alone.
MIGRATION_LOCK_ID = 4242001


def refuse_newer_schema(conn: sa.Connection, oldest_reader: str | None) -> None:
    """Raise StorageFailed if the schema was migrated beyond this code while the process ran."""
    if (oldest_reader or HEAD) > HEAD:
        raise _build_newer_schema_error(conn.engine, oldest_reader)


def migrate_database(engine: sa.Engine, *, force: bool = False) -> None:
    """Migrate the database to HEAD, completely or not at all; raise if the schema can't be used.

    A newer schema is accepted if its authors declared it compatible. Refuses while older processes are connected that
    could not continue afterwards, unless `force`.
    """
    found = get_schema_revision(engine)
    if found is None or BASELINE <= found < HEAD:
        with translate_storage_errors(engine):
            _run_migrations(engine, force=force or found is None)
            if found is not None and engine.dialect.name == "sqlite":
                _enable_incremental_vacuum(engine)
    elif (problem := find_schema_problem(engine, found)) is not None:
        raise problem


def find_schema_problem(engine: sa.Engine, revision: str | None) -> StorageFailed | None:
    """Return why this code can't work with the schema it found; None if it can."""
    if revision is None:
        return StorageFailed(f"{describe_database(engine)} has no tables yet.", hint="The first command makes them.")
    if revision < BASELINE:
        where = f"{describe_database(engine)} has schema {revision}, from before the first release"
        what = f"{where}, and this Habitus begins at {BASELINE}."
        hint = (
            "Migrate it once with older sources, as docs/guides/operations.md says, or set HABITUS_HOME elsewhere and "
        )
        return StorageFailed(
            what, hint=f"{hint}take its skills over with 'habitus skills import'. Nothing was changed."
        )
    if revision < HEAD:
        what = f"{describe_database(engine)} has schema {revision}, and this Habitus needs {HEAD}."
        return StorageFailed(what, hint="Run 'habitus db migrate' once.")
    if revision > HEAD and (get_oldest_schema_able_to_use_database(engine) or revision) > HEAD:
        return _build_newer_schema_error(engine, revision)
    return None


def _build_newer_schema_error(engine: sa.Engine, schema: str | None) -> StorageFailed:
    return StorageFailed(
        f"{describe_database(engine)} was written by a newer Habitus (schema {schema}, this one knows {HEAD}).",
        hint="Upgrade Habitus, or point HABITUS_HOME elsewhere. Nothing was changed.",
    )


def get_schema_revision(engine: sa.Engine) -> str | None:
    """Return the newest migration of a database; None if it has no tables."""
    with translate_storage_errors(engine), engine.connect() as conn:
        if not sa.inspect(conn).has_table("alembic_version"):
            return None
        found: str | None = conn.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
        return found


def get_oldest_schema_able_to_use_database(engine: sa.Engine) -> str | None:
    """Return the oldest schema whose code may still use this database, if recorded."""
    with translate_storage_errors(engine), engine.connect() as conn:
        found: str | None = conn.execute(sa.text(OLDEST_READER_QUERY)).scalar()
        return found


def _run_migrations(engine: sa.Engine, *, force: bool) -> None:
    # Alembic takes half a second to import and is needed once in a database's life.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "habitus:migrations")
    with write_transaction(engine, durable=True) as conn:
        before = ""
        if engine.dialect.name == "postgresql":
            conn.execute(sa.text(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK_ID})"))
            _create_workspace_schema(conn, get_workspace_of_engine(engine))
            before = "" if force else conn.execute(sa.text(OLDEST_READER_QUERY)).scalar_one()
        config.attributes["connection"] = conn
        command.upgrade(config, "head")
        # Checked inside the transaction: a refusal rolls the migration back.
        if before and (oldest := conn.execute(sa.text(OLDEST_READER_QUERY)).scalar_one()) > before:
            refuse_if_older_processes_connected(
                conn, oldest, get_workspace_of_engine(engine), describe_database(engine)
            )


def _enable_incremental_vacuum(engine: sa.Engine) -> None:
    """Rewrite an old SQLite file once, so that it can give free pages back."""
    with closing(engine.raw_connection()) as pooled:
        raw: Any = pooled.driver_connection
        if raw.execute("PRAGMA auto_vacuum").fetchone()[0] == 0:
            raw.execute("PRAGMA auto_vacuum = INCREMENTAL")
            # A busy file stays as it is and keeps its free pages for later rows.
            with suppress(sqlite3.OperationalError):
                raw.execute("VACUUM")


def _create_workspace_schema(conn: sa.Connection, name: str) -> None:
    """Create the schema of a new workspace."""
    # Asked first, because a role that may use the schema need not be allowed to create one.
    is_there = sa.text("SELECT true FROM pg_namespace WHERE nspname = :name")
    if not name or conn.execute(is_there, {"name": name}).scalar():
        return
    try:
        conn.execute(sa.schema.CreateSchema(name))
    except sa.exc.ProgrammingError as error:
        role = conn.engine.url.username or "this role"
        what = f"{describe_database(conn.engine)} is not there, and {role} may not make it."
        hint = f'Have the owner of the database run: CREATE SCHEMA "{name}" AUTHORIZATION {role}.'
        raise StorageFailed(what, hint=hint) from error
