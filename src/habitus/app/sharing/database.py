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
from habitus.app.sharing.copying import Copied, Place, copy
from habitus.errors import Invalid, Refused
from habitus.jobs.queue import JobQueue
from habitus.settings import Settings
from habitus.skills.layers.layer import USER
from habitus.skills.stores.files import DirectoryShelf
from habitus.skills.stores.sql import SqlShelf
from habitus.skills.stores.versioned import SkillStore

# The name people use for their own home's database and folders.
HOME = "home"


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
class Migrated:
    """The schema before and after a migration."""

    address: str
    before: str | None
    after: str
    # The oldest schema whose Habitus can still use the database.
    oldest: str


def status(settings: Settings) -> DatabaseStatus:
    """Return the state of the database, whether or not this Habitus can use it; nothing is changed."""
    with _engine(settings) as engine:
        schema = sql.revision(engine)
        with sql.reading(engine) as connection:
            began = time.perf_counter()
            connection.execute(sa.text("SELECT 1"))
            latency = (time.perf_counter() - began) * 1000
            is_server = engine.dialect.name == "postgresql"
            names = sorted(sa.inspect(connection).get_table_names())
            rows = {name: int(connection.execute(_count(name)).scalar_one()) for name in names}
            return DatabaseStatus(
                address=sql.place(engine),
                server=f"{'PostgreSQL' if is_server else 'SQLite'} {_version(connection)}",
                schema=schema,
                needs=sql.HEAD,
                is_usable=(problem := sql.unusable(engine, schema)) is None,
                note="" if problem is None else str(problem),
                latency_ms=round(latency, 2),
                pgvector=_pgvector(connection) if is_server else "",
                search=_search(connection, rows.get("search_skills", 0)),
                rows=rows,
            )


def _version(connection: sa.Connection) -> str:
    return ".".join(map(str, connection.dialect.server_version_info or ()))


def _pgvector(connection: sa.Connection) -> str:
    query = sa.text("SELECT extversion FROM pg_extension WHERE extname = 'vector'")
    return connection.execute(query).scalar() or ""


def _search(connection: sa.Connection, in_server: int) -> str:
    if not in_server:
        return "in the memory of each host"
    kept_as = connection.execute(sa.text(_VECTORS_ARE)).scalar()
    return f"in the server, by full text{' and pgvector' if kept_as == 'vector' else ''}"


_VECTORS_ARE = (
    "SELECT t.typname FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
    "WHERE a.attrelid = to_regclass('search_skill_vectors') AND a.attname = 'vector'"
)


def _count(name: str) -> sa.Select[int]:
    return sa.select(sa.func.count()).select_from(sa.table(name))


def migrate(settings: Settings, *, even_so: bool = False) -> Migrated:
    """Migrate the database to the schema this Habitus needs; shared databases are only migrated here.

    `force` proceeds even if older processes are running that can't use the database afterwards.
    """
    _refuse_unless_admin(settings, "migrate the database")
    with _engine(settings) as engine:
        before = sql.revision(engine)
        sql.migrate(engine, even_so=even_so)
        after = sql.revision(engine) or sql.HEAD
        return Migrated(
            address=sql.place(engine), before=before, after=after, oldest=sql.oldest_reader(engine) or after
        )


def copy_between(
    settings: Settings,
    source: str,
    target: str,
    *,
    progress: Callable[[int], None] = lambda done: None,
) -> Copied:
    """Copy everything from one database into an empty one; each is a URL, or `home` for this home's own."""
    _refuse_unless_admin(settings, "copy a database")
    with ExitStack() as opened:
        here = opened.enter_context(_open_place(settings, source))
        there = opened.enter_context(_open_place(settings, target))
        _take_down(here)
        done = copy(here, there, progress=progress)
        if source == HOME and (waiting := _waiting_jobs(here.engine)):
            done = replace(done, stays={**done.stays, "jobs that wait ('habitus worker --until-idle')": waiting})
        if HOME in (source, target):
            reminding.tell_no_more((here if source == HOME else there).engine, _now())
        return done


def _waiting_jobs(engine: sa.Engine) -> int:
    """Count the pending jobs, which are not copied."""
    # A worker of this home would run a copied job a second time.
    return JobQueue(engine).count_left()


@contextmanager
def _engine(settings: Settings) -> Iterator[sa.Engine]:
    engine = sql.create_engine(home_directory.address(settings), settings.workspace)
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def _open_place(settings: Settings, which: str) -> Iterator[Place]:
    address, workspace = which, settings.workspace
    if which == HOME:
        if not home_directory.can_write(settings.home):
            home_directory.refuse_to_write(settings.home)
        address, workspace = sql.sqlite_url(settings.home / home_directory.DATABASE), ""
    elif not which:
        raise Invalid(
            "No database to copy to was given.", hint="Set HABITUS_DATABASE, or name two: 'habitus db copy home …'."
        )
    engine = sql.open_engine(address, workspace)
    try:
        if which == HOME:
            home_directory.keep_private(settings.home)
            shelf = DirectoryShelf(settings.home / "skills", settings.home / "archive", is_private=True)
            yield Place(engine=engine, shelf=shelf)
        else:
            yield Place(engine=engine, shelf=SqlShelf(engine, settings.home / "cache" / "skills"))
    finally:
        engine.dispose()


def _now() -> datetime:
    return datetime.now(UTC)


def _take_down(source: Place) -> None:
    """Record edits on disk and unfinished writes before they are copied."""
    SkillStore(source.shelf, source.engine, layer=USER, clock=_now).contents()


def _refuse_unless_admin(settings: Settings, what: str) -> None:
    if not settings.is_admin:
        raise Refused(f"Only an admin may {what}.", hint="Ask one.")
