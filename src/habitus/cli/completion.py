"""Skill names for the shell's Tab key, read straight from the database: a key press can't wait for the whole app."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote


def skill_names(incomplete: str) -> list[str]:
    home = Path(os.environ.get("HABITUS_HOME") or Path.home() / ".habitus")
    database = home / "habitus.db"
    if not database.exists():
        return []
    try:
        with closing(sqlite3.connect(f"file:{quote(str(database))}?mode=ro", uri=True, timeout=0.2)) as connection:
            query = "SELECT DISTINCT name FROM skills WHERE archived_on IS NULL AND name LIKE ? ORDER BY name LIMIT 200"
            return [row[0] for row in connection.execute(query, (incomplete.replace("_", "-").lower() + "%",))]
    except sqlite3.Error:
        return []
