"""Find damage to the databases of a home, by SQLite's own check and in their contents."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

import sqlalchemy as sa

from habitus.app.home_directory import DATABASE, OFFLINE_SNAPSHOT_FILE
from habitus.errors import StorageFailed
from habitus.files import compute_tree_hash
from habitus.settings import Settings
from habitus.skills.stores import records
from habitus.sql.errors import build_damaged_file_recovery_hint

_MAX_PROBLEMS = 5
# Columns that hold JSON. Rows of `agent_skills` are not among them: others write those, and lint reports them.
_JSON_COLUMNS = {
    ("skills", "summary"): "object",
    ("skills", "diagnostics"): "array",
    ("skill_versions", "tree"): "object",
    ("skill_versions", "author"): "array",
    ("skill_switches", "author"): "array",
    ("skill_intents", "plan"): "object",
    ("skill_proposals", "reasons"): "array",
    ("skill_proposals", "details"): "object",
    ("trusted_skills", "powers"): "array",
    ("engrams", "definition"): "object",
    ("engram_versions", "definition"): "object",
}


def find_database_damage(settings: Settings) -> StorageFailed | None:
    """Return the damage as one error with its fix; None if all databases are sound or not files."""
    for path in _list_database_files(settings):
        try:
            found = _find_database_problems(path)
        # Busy, or unreadable for this user.
        except sqlite3.OperationalError as error:
            hint = "Look for a stuck habitus process and at the permissions of the file, then run 'habitus doctor'."
            return StorageFailed(f"{path} could not be checked ({error}).", hint=hint)
        if found:
            return StorageFailed(f"{path} is damaged ({found[0]}).", hint=_suggest_repair(settings, path))
    return None


def _suggest_repair(settings: Settings, path: Path) -> str:
    is_copy = path == settings.home / OFFLINE_SNAPSHOT_FILE
    return "Delete it: it is a cache and will be rebuilt." if is_copy else build_damaged_file_recovery_hint(str(path))


def _list_database_files(settings: Settings) -> list[Path]:
    files = [settings.home / DATABASE, settings.home / OFFLINE_SNAPSHOT_FILE]
    try:
        url = sa.make_url(settings.database) if settings.database else None
    except sa.exc.ArgumentError:
        url = None
    if url is not None and url.get_backend_name() == "sqlite" and url.database:
        files.append(Path(url.database))
    return [path for path in files if path.is_file()]


def _find_database_problems(path: Path) -> list[str]:
    try:
        # Read-only, so the check can't make damage worse.
        with closing(sqlite3.connect(f"file:{path.resolve().as_posix()}?mode=ro", uri=True, timeout=1)) as connection:
            rows = connection.execute(f"PRAGMA integrity_check({_MAX_PROBLEMS})").fetchall()
            found = [" ".join(str(text).split()) for (text,) in rows if text != "ok"]
            return found or list(islice(_find_damaged_contents(connection), _MAX_PROBLEMS))
    except sqlite3.OperationalError:
        raise
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return [str(error)]


def _find_damaged_contents(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield contents on sound pages that do not match their type or hash."""
    there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    for (table, column), kind in _JSON_COLUMNS.items():
        if table in there:
            is_wrong = f"CASE WHEN json_valid({column}) THEN json_type({column}) <> '{kind}' ELSE 1 END"
            query = f"SELECT rowid FROM {table} WHERE {column} IS NOT NULL AND {is_wrong} LIMIT {_MAX_PROBLEMS}"
            yield from (
                f"row {row} of {table}: '{column}' is not a JSON {kind}" for (row,) in connection.execute(query)
            )
    if "skill_versions" in there:
        query = "SELECT skill, number, tree, tree_hash FROM skill_versions WHERE json_valid(tree)"
        for skill, number, tree, digest in connection.execute(query):
            if compute_tree_hash(records.unpack_tree(tree)) != digest:
                yield f"version {number} of skill {skill} in skill_versions: its files are not those of its hash"
    for sha256, packed in connection.execute("SELECT sha256, packed FROM blobs") if "blobs" in there else ():
        if records.decompress_content(packed, sha256) is None:
            yield f"{sha256[:12]} in blobs: the content is not that of its hash"
