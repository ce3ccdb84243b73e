"""The database of a home, or the shared one: its status, migration, and copies to another database."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import sqlalchemy as sa

from habitus import sql
from habitus.app import home_directory
from habitus.app.review import reminding
from habitus.app.sharing.copying import CopyDatabaseResult, DatabaseCopyEndpoint, copy_shared_data_to_database
from habitus.errors import Invalid, Refused
from habitus.jobs.queue import JobQueue
from habitus.settings import Settings
from habitus.skills.layers.layer import USER_LAYER
from habitus.skills.stores.files import DirectoryBackend
from habitus.skills.stores.sql import SqlBackend
from habitus.skills.stores.versioned import SkillStore

# The name people use for their own home's database and folders.
HOME_DATABASE = "home"


@dataclass(frozen=True, kw_only=True, slots=True)
class DatabaseStatus:
    """The state of a database and its row counts."""

    address: str
    server: str
    # None if there are no tables yet.
    schema: str | None
    needs: str
    is_usable: bool
    note: str
    latency_ms: float
    # Its version; empty if it is not installed.
    pgvector: str
    # Where skills are searched.
    search: str
    rows: Mapping[str, int]

    @property
    def is_failed(self) -> bool:
        """Whether this Habitus can't use the database."""
        return not self.is_usable


@dataclass(frozen=True, kw_only=True, slots=True)
class MigrateDatabaseResult:
    """The schema before and after a migration."""

    address: str
    before: str | None
    after: str
    # The oldest schema whose Habitus can still use the database.
    oldest: str


def read_database_status(settings: Settings) -> DatabaseStatus:
    """Return the state of the database, whether or not this Habitus can use it; nothing is changed."""
    with _open_engine(settings) as engine:
        schema = sql.get_schema_revision(engine)
        with sql.read_transaction(engine) as conn:
            began = time.perf_counter()
            conn.execute(sa.text("SELECT 1"))
            latency = (time.perf_counter() - began) * 1000
            is_server = engine.dialect.name == "postgresql"
            names = sorted(sa.inspect(conn).get_table_names())
            rows = {name: int(conn.execute(_build_count_query(name)).scalar_one()) for name in names}
            return DatabaseStatus(
                address=sql.describe_database(engine),
                server=f"{'PostgreSQL' if is_server else 'SQLite'} {_format_server_version(conn)}",
                schema=schema,
                needs=sql.HEAD,
                is_usable=(problem := sql.find_schema_problem(engine, schema)) is None,
                note="" if problem is None else str(problem),
                latency_ms=round(latency, 2),
                pgvector=_read_pgvector_version(conn) if is_server else "",
                search=_describe_where_search_runs(conn, rows.get("search_skills", 0)),
                rows=rows,
            )


def _format_server_version(conn: sa.Connection) -> str:
    return ".".join(map(str, conn.dialect.server_version_info or ()))


def _read_pgvector_version(conn: sa.Connection) -> str:
    query = sa.text("SELECT extversion FROM pg_extension WHERE extname = 'vector'")
    return conn.execute(query).scalar() or ""


def _describe_where_search_runs(conn: sa.Connection, in_server: int) -> str:
    if not in_server:
        return "in the memory of each host"
    kept_as = conn.execute(sa.text(_VECTOR_TYPE_QUERY)).scalar()
    return f"in the server, by full text{' and pgvector' if kept_as == 'vector' else ''}"


_VECTOR_TYPE_QUERY = (
    "SELECT t.typname FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
    "WHERE a.attrelid = to_regclass('search_skill_vectors') AND a.attname = 'vector'"
)


def _build_count_query(name: str) -> sa.Select[int]:
    return sa.select(sa.func.count()).select_from(sa.table(name))


def migrate_database(settings: Settings, *, force: bool = False) -> MigrateDatabaseResult:
    """Migrate the database to the schema this Habitus needs; shared databases are only migrated here.

    `force` proceeds even if older processes are running that can't use the database afterwards.
    """
    _refuse_unless_admin(settings, "migrate the database")
    with _open_engine(settings) as engine:
        before = sql.get_schema_revision(engine)
        sql.migrate_database(engine, force=force)
        after = sql.get_schema_revision(engine) or sql.HEAD
        return MigrateDatabaseResult(
            address=sql.describe_database(engine),
            before=before,
            after=after,
            oldest=sql.get_oldest_schema_able_to_use_database(engine) or after,
        )


def copy_database_by_address(
    settings: Settings, source: str, target: str, *, progress: Callable[[int], None] = lambda done: None
) -> CopyDatabaseResult:
    """Copy everything from one database into an empty one; each is a URL, or `home` for this home's own."""
    _refuse_unless_admin(settings, "copy a database")
    with ExitStack() as opened:
        here = opened.enter_context(_open_copy_endpoint(settings, source))
        there = opened.enter_context(_open_copy_endpoint(settings, target))
        _record_disk_edits_before_copy(here)
        done = copy_shared_data_to_database(here, there, progress=progress)
        if source == HOME_DATABASE and (waiting := _count_pending_jobs(here.engine)):
            done = replace(
                done, not_copied={**done.not_copied, "pending jobs ('habitus jobs work --until-idle')": waiting}
            )
        if HOME_DATABASE in (source, target):
            reminding.dismiss_unshared_notice((here if source == HOME_DATABASE else there).engine, _utc_now())
        return done


def _count_pending_jobs(engine: sa.Engine) -> int:
    """Count the pending jobs, which are not copied."""
    # A worker of this home would run a copied job a second time.
    return JobQueue(engine).count_unfinished_jobs()


@contextmanager
def _open_engine(settings: Settings) -> Iterator[sa.Engine]:
    engine = sql.create_engine(home_directory.get_database_url(settings), settings.workspace)
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def _open_copy_endpoint(settings: Settings, which: str) -> Iterator[DatabaseCopyEndpoint]:
    address, workspace = which, settings.workspace
    if which == HOME_DATABASE:
        if not home_directory.create_home_and_check_writable(settings.home):
            home_directory.raise_home_not_writable(settings.home)
        address, workspace = sql.build_sqlite_url(settings.home / home_directory.DATABASE), ""
    elif not which:
        raise Invalid(
            "No database to copy to was given.", hint="Set HABITUS_DATABASE, or name two: 'habitus db copy home …'."
        )
    engine = sql.open_engine_with_current_schema(address, workspace)
    try:
        if which == HOME_DATABASE:
            home_directory.restrict_home_permissions_to_owner(settings.home)
            shelf = DirectoryBackend(settings.home / "skills", settings.home / "archive", is_private=True)
            yield DatabaseCopyEndpoint(engine=engine, shelf=shelf)
        else:
            yield DatabaseCopyEndpoint(engine=engine, shelf=SqlBackend(engine, settings.home / "cache" / "skills"))
    finally:
        engine.dispose()


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _record_disk_edits_before_copy(source: DatabaseCopyEndpoint) -> None:
    """Record edits on disk and unfinished writes before they are copied."""
    SkillStore(source.shelf, source.engine, layer=USER_LAYER, clock=_utc_now).read_contents()


def _refuse_unless_admin(settings: Settings, what: str) -> None:
    if not settings.is_admin:
        raise Refused(f"Only an admin may {what}.", hint="Ask one.")
