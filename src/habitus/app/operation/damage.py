"""Damage to a database: found by its own check, and told with the way back."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa

from habitus.app.home_directory import DATABASE, STAND_IN
from habitus.errors import StorageFailed
from habitus.settings import Settings
from habitus.sql.transactions import way_back

_MOST_TOLD = 5


def find_damage(settings: Settings) -> StorageFailed | None:
    """The damage to the databases of this home, as one error; nothing when they are sound, or not files."""
    for path in _files(settings):
        try:
            found = _problems(path)
        except sqlite3.OperationalError as error:  # busy, or not ours to read
            mend = "Look for a stuck habitus process and at the permissions of the file, then run 'habitus doctor'."
            return StorageFailed(f"{path} could not be checked ({error}).", mend=mend)
        if found:
            return StorageFailed(f"{path} is damaged ({found[0]}).", mend=_mend(settings, path))
    return None


def _mend(settings: Settings, path: Path) -> str:
    is_copy = path == settings.home / STAND_IN
    return "Remove it: it is a copy, and is made anew." if is_copy else way_back(str(path))


def _files(settings: Settings) -> list[Path]:
    files = [settings.home / DATABASE, settings.home / STAND_IN]
    try:
        url = sa.make_url(settings.database) if settings.database else None
    except sa.exc.ArgumentError:
        url = None
    if url is not None and url.get_backend_name() == "sqlite" and url.database:
        files.append(Path(url.database))
    return [path for path in files if path.is_file()]


def _problems(path: Path) -> list[str]:
    try:
        with closing(sqlite3.connect(f"file:{path.resolve().as_posix()}?mode=ro", uri=True, timeout=1)) as connection:
            rows = connection.execute(f"PRAGMA integrity_check({_MOST_TOLD})").fetchall()
    except sqlite3.OperationalError:
        raise
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return [str(error)]
    return [" ".join(str(text).split()) for (text,) in rows if text != "ok"]
