"""Homes with a migrated database: made once in a process and copied, because migrating takes longer than most tests."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory


def furnish(home: Path) -> Path:
    """Make the home as it is after its first search: the bundled skills are known and indexed, and nothing else.

    An old one is left as it is.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    _put(home / "habitus.db", _searched)
    return home


def migrated(database: Path) -> Path:
    """Put an empty SQLite database that has every table at this place, unless something is there."""
    _put(database, _empty)
    return database


def _put(database: Path, template: Callable[[], bytes]) -> None:
    if not database.exists():
        database.write_bytes(template())
        database.chmod(0o600)


@functools.cache
def _empty() -> bytes:
    from habitus import sql  # tests that run as another user have no database at all

    with TemporaryDirectory(prefix="habitus-template-") as folder:
        file = Path(folder) / "habitus.db"
        sql.open_engine_with_current_schema(sql.build_sqlite_url(file)).dispose()
        assert list(Path(folder).iterdir()) == [file], "SQLite keeps a part of it elsewhere"
        return file.read_bytes()


@functools.cache
def _searched() -> bytes:
    from habitus.app import Habitus, read_settings

    with TemporaryDirectory(prefix="habitus-template-") as folder:
        file = migrated(Path(folder) / "habitus.db")
        with Habitus.open(read_settings(file.parent, {"HOME": folder, "USER": "ann"})) as habitus:
            habitus.finder.search("anything")
        assert not file.with_name("habitus.db-wal").exists(), "SQLite keeps a part of it elsewhere"
        return file.read_bytes()
