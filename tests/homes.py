"""Homes with a migrated database: made once in a process and copied, because migrating takes longer than most tests."""

from __future__ import annotations

import functools
from pathlib import Path
from tempfile import TemporaryDirectory


def furnish(home: Path) -> Path:
    """Make the home, with an empty database that has every table; an old one is left as it is."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    migrated(home / "habitus.db")
    return home


def migrated(database: Path) -> Path:
    """Put an empty SQLite database that has every table at this place, unless something is there."""
    if not database.exists():
        database.write_bytes(_template())
        database.chmod(0o600)
    return database


@functools.cache
def _template() -> bytes:
    from habitus import sql  # tests that run as another user have no database at all

    with TemporaryDirectory(prefix="habitus-template-") as folder:
        file = Path(folder) / "habitus.db"
        sql.open_engine(sql.sqlite_url(file)).dispose()
        assert list(Path(folder).iterdir()) == [file], "SQLite keeps a part of it elsewhere"
        return file.read_bytes()
