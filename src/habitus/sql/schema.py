"""The schema version of a database: check whether this code can use it, and migrate it."""

from __future__ import annotations

import sqlalchemy as sa

from habitus.errors import StorageFailed
from habitus.sql.addresses import place, refuse_to_strand, workspace_of
from habitus.sql.errors import storage_errors
from habitus.sql.transactions import writing

# The newest migration this code knows; a test compares it with the migrations folder.
HEAD = "0028"

# The first migration of a release; older schemas can't be upgraded in place.
BASELINE = "0028"

COMPATIBILITY = "schema_compatibility"

OLDEST = f"SELECT MAX(oldest_reader) FROM {COMPATIBILITY}"

# The advisory lock that writers share and a migration takes alone.
MIGRATING = 4242001


def refuse_if_newer(connection: sa.Connection, oldest: str | None) -> None:
    """Raise StorageFailed if the schema was migrated beyond this code while the process ran."""
    if (oldest or HEAD) > HEAD:
        raise _newer(connection.engine, oldest)


def migrate(engine: sa.Engine, *, even_so: bool = False) -> None:
    """Migrate the database to HEAD, completely or not at all; raise if the schema can't be used.

    A newer schema is accepted if its authors declared it compatible. Refuses while older processes are connected that
    could not continue afterwards, unless `force`.
    """
    found = revision(engine)
    if found is None or BASELINE <= found < HEAD:
        with storage_errors(engine):
            _upgrade(engine, even_so=even_so or found is None)
    elif (problem := unusable(engine, found)) is not None:
        raise problem


def unusable(engine: sa.Engine, found: str | None) -> StorageFailed | None:
    """Return why this code can't work with the schema it found; None if it can."""
    if found is None:
        return StorageFailed(f"{place(engine)} has no tables yet.", hint="The first command makes them.")
    if found < BASELINE:
        what = (
            f"{place(engine)} has schema {found}, from before the first release, and this Habitus begins at {BASELINE}."
        )
        hint = (
            "Migrate it once with older sources, as docs/guides/operations.md says, or set HABITUS_HOME elsewhere and "
        )
        return StorageFailed(
            what, hint=f"{hint}take its skills over with 'habitus skills import'. Nothing was changed."
        )
    if found < HEAD:
        what = f"{place(engine)} has schema {found}, and this Habitus needs {HEAD}."
        return StorageFailed(what, hint="Run 'habitus db migrate' once.")
    if found > HEAD and (oldest_reader(engine) or found) > HEAD:
        return _newer(engine, found)
    return None


def _newer(engine: sa.Engine, schema: str | None) -> StorageFailed:
    return StorageFailed(
        f"{place(engine)} was written by a newer Habitus (schema {schema}, this one knows {HEAD}).",
        hint="Upgrade Habitus, or point HABITUS_HOME elsewhere. Nothing was changed.",
    )


def revision(engine: sa.Engine) -> str | None:
    """Return the newest migration of a database; None if it has no tables."""
    with storage_errors(engine), engine.connect() as connection:
        if not sa.inspect(connection).has_table("alembic_version"):
            return None
        found: str | None = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
        return found


def oldest_reader(engine: sa.Engine) -> str | None:
    """Return the oldest schema whose code may still use this database, if recorded."""
    with storage_errors(engine), engine.connect() as connection:
        found: str | None = connection.execute(sa.text(OLDEST)).scalar()
        return found


def _upgrade(engine: sa.Engine, *, even_so: bool) -> None:
    # Alembic takes half a second to import and is needed once in a database's life.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "habitus:migrations")
    with writing(engine, durable=True) as connection:
        before = ""
        if engine.dialect.name == "postgresql":
            connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({MIGRATING})"))
            _make_schema(connection, workspace_of(engine))
            before = "" if even_so else connection.execute(sa.text(OLDEST)).scalar_one()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        # Checked inside the transaction: a refusal rolls the migration back.
        if before and (oldest := connection.execute(sa.text(OLDEST)).scalar_one()) > before:
            refuse_to_strand(connection, oldest, workspace_of(engine), place(engine))


def _make_schema(connection: sa.Connection, name: str) -> None:
    """Create the schema of a new workspace."""
    # Asked first, because a role that may use the schema need not be allowed to create one.
    is_there = sa.text("SELECT true FROM pg_namespace WHERE nspname = :name")
    if not name or connection.execute(is_there, {"name": name}).scalar():
        return
    try:
        connection.execute(sa.schema.CreateSchema(name))
    except sa.exc.ProgrammingError as error:
        role = connection.engine.url.username or "this role"
        what = f"{place(connection.engine)} is not there, and {role} may not make it."
        hint = f'Have the owner of the database run: CREATE SCHEMA "{name}" AUTHORIZATION {role}.'
        raise StorageFailed(what, hint=hint) from error
