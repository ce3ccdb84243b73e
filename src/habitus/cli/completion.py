"""Names for the shell's Tab key, read straight from the databases: a key press can't wait for the whole app."""

from __future__ import annotations

import os
import sqlite3
import tomllib
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import typer

Row = tuple[str, ...]
_MOST = 200
_SKILLS = "SELECT DISTINCT name FROM skills WHERE archived_on IS NULL AND name LIKE {} ORDER BY name LIMIT 200"
_LESSONS = "SELECT id, text FROM engrams WHERE state != 'erased' AND id LIKE {} ORDER BY id LIMIT 200"


def skill_names(context: typer.Context, incomplete: str) -> list[str]:
    """The names that begin so, of this machine's layers and of the shared database where there is one."""
    return [row[0] for row in _rows(context, _SKILLS, incomplete.replace("_", "-").lower() + "%")]


def lesson_ids(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids with their texts, which tell a person which is which."""
    return [(row[0], row[1][:60]) for row in _rows(context, _LESSONS, incomplete.lower() + "%")]


def _rows(context: typer.Context, query: str, beginning: str) -> list[Row]:
    given = context.find_root().params.get("home")
    home = Path(given or os.environ.get("HABITUS_HOME") or Path.home() / ".habitus").expanduser()
    found = {*_in_file(home / "habitus.db", query, beginning), *_in_shared(_shared(home), query, beginning)}
    return sorted(found)[:_MOST]


def _shared(home: Path) -> str:
    """The address of the shared database; the settings themselves take too long to load."""
    if address := os.environ.get("HABITUS_DATABASE_URL"):
        return address
    try:
        return str(tomllib.loads((home / "habitus.toml").read_text("utf-8")).get("database_url", ""))
    except (OSError, ValueError):
        return ""


def _in_shared(address: str, query: str, beginning: str) -> list[Row]:
    kind, _, rest = address.partition("://")
    if kind == "sqlite":
        return _in_file(Path(rest.removeprefix("/")), query, beginning)
    return _in_postgresql(f"postgresql://{rest}", query, beginning) if kind.startswith("postgresql") else []


def _in_file(database: Path, query: str, beginning: str) -> list[Row]:
    if not database.is_file():
        return []
    try:
        address = f"file:{quote(str(database.absolute()))}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=0.2)) as connection:
            return list(connection.execute(query.format("?"), (beginning,)))
    except sqlite3.Error:
        return []


def _in_postgresql(address: str, query: str, beginning: str) -> list[Row]:
    try:
        import psycopg
    except ImportError:
        return []
    try:
        with psycopg.connect(address, connect_timeout=2) as connection:
            return list(connection.execute(query.format("%s"), (beginning,)))
    except psycopg.Error:
        return []
