"""Names for the shell's Tab key, read straight from the database: a key press can't wait for the whole app."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote


def skill_names(incomplete: str) -> list[str]:
    query = "SELECT DISTINCT name FROM skills WHERE archived_on IS NULL AND name LIKE ? ORDER BY name LIMIT 200"
    return [row[0] for row in _rows(query, incomplete.replace("_", "-").lower() + "%")]


def lesson_ids(incomplete: str) -> list[tuple[str, str]]:
    """Ids with their texts, which tell a person which is which."""
    query = "SELECT id, text FROM engrams WHERE state != 'erased' AND id LIKE ? ORDER BY id LIMIT 200"
    return [(row[0], row[1][:60]) for row in _rows(query, incomplete.lower() + "%")]


def _rows(query: str, like: str) -> list[tuple[str, ...]]:
    home = Path(os.environ.get("HABITUS_HOME") or Path.home() / ".habitus")
    database = home / "habitus.db"
    if not database.exists():
        return []
    try:
        with closing(sqlite3.connect(f"file:{quote(str(database))}?mode=ro", uri=True, timeout=0.2)) as connection:
            return list(connection.execute(query, (like,)))
    except sqlite3.Error:
        return []
