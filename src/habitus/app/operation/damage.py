"""Damage to a database: found by its own check, and told with the way back."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa

from habitus.app.home_directory import DATABASE
from habitus.errors import StorageFailed
from habitus.settings import Settings
from habitus.sql.refusals import way_back

_MOST_TOLD = 5


def damaged(settings: Settings) -> StorageFailed | None:
    """What is wrong with the databases of this home, as one error; nothing when they are sound, or not files."""
    for path in _files(settings):
        found = _problems(path)
        if found:
            return StorageFailed(f"{path} is damaged ({found[0]}).", mend=way_back(str(path)))
    return None


def _files(settings: Settings) -> list[Path]:
    files = [settings.home / DATABASE]
    try:
        url = sa.make_url(settings.database) if settings.database else None
    except sa.exc.ArgumentError:
        url = None
    if url is not None and url.get_backend_name() == "sqlite" and url.database:
        files.append(Path(url.database))
    return [path for path in files if path.is_file()]


def _problems(path: Path) -> list[str]:
    try:
        with closing(sqlite3.connect(f"file:{path.resolve().as_posix()}?mode=ro", uri=True, timeout=5)) as connection:
            rows = connection.execute(f"PRAGMA integrity_check({_MOST_TOLD})").fetchall()
    except sqlite3.OperationalError:
        return []  # busy, or not ours to read; whoever opens it says so
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return [str(error)]
    return [" ".join(str(text).split()) for (text,) in rows if text != "ok"]
