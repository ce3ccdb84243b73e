"""Names for the shell's Tab key, read straight from the databases, because a key press can't wait for the whole app;
and the options and arguments that many commands share.
"""

from __future__ import annotations

import os
import pwd
import sqlite3
import tomllib
from contextlib import closing
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

Row = tuple[str, ...]
_MOST = 200
_SKILLS = "SELECT DISTINCT name FROM skills WHERE archived_on IS NULL AND name LIKE ? ORDER BY name LIMIT 200"
_LESSONS = (
    "SELECT id, text FROM engrams WHERE state != 'erased' AND id LIKE ? AND (scope != 'user' OR owner = ?)"
    " ORDER BY id LIMIT 200"
)


def skill_names(context: typer.Context, incomplete: str) -> list[str]:
    """The names that begin so, of this machine's layers and of the shared database where there is one."""
    return [row[0] for row in _rows(_home(context), _SKILLS, incomplete.replace("_", "-").lower() + "%")]


def lesson_ids(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The ids that this user sees, with their texts, which tell a person which is which."""
    home = _home(context)
    user = _setting(home, "user") or _account()
    return [(row[0], row[1][:60]) for row in _rows(home, _LESSONS, incomplete.lower() + "%", user)]


def _home(context: typer.Context) -> Path:
    return home_of(context.find_root().params.get("home"))


def home_of(given: Path | None) -> Path:
    """The home, without the settings, which take too long to read."""
    home = Path(given or os.environ.get("HABITUS_HOME") or Path.home() / ".habitus")
    try:
        return home.expanduser()
    except RuntimeError:
        return home  # of nobody; whoever opens it says so


def _account() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _setting(home: Path, name: str) -> str:
    """A setting from the environment or the file; the settings themselves take too long to load."""
    if told := os.environ.get(f"HABITUS_{name.upper()}"):
        return told
    try:
        return str(tomllib.loads((home / "habitus.toml").read_text("utf-8")).get(name, ""))
    except (OSError, ValueError):
        return ""


def _rows(home: Path, query: str, *values: str) -> list[Row]:
    found = {*_in_file(home / "habitus.db", query, values), *_in_shared(home, query, values)}
    return sorted(found)[:_MOST]


def _in_shared(home: Path, query: str, values: Row) -> list[Row]:
    kind, _, rest = _setting(home, "database").partition("://")
    if kind == "sqlite":
        return _in_file(Path(rest.removeprefix("/")), query, values)
    workspace = _setting(home, "workspace")
    return _in_postgresql(f"postgresql://{rest}", workspace, query, values) if kind.startswith("postgresql") else []


def _in_file(database: Path, query: str, values: Row) -> list[Row]:
    if not database.is_file():
        return []
    try:
        address = f"file:{quote(str(database.absolute()))}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=0.2)) as connection:
            return list(connection.execute(query, values))
    except sqlite3.Error:
        return []


def _in_postgresql(address: str, workspace: str, query: str, values: Row) -> list[Row]:
    try:
        import psycopg
    except ImportError:
        return []
    try:
        with psycopg.connect(address, connect_timeout=2) as connection:
            if workspace:
                connection.execute("SELECT set_config('search_path', quote_ident(%s), true)", (workspace,))
            return list(connection.execute(query.replace("?", "%s"), values))
    except psycopg.Error:
        return []


AllUsers = Annotated[bool, typer.Option("--all-users", help="Of everybody; for admins.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Paths = Annotated[list[str] | None, typer.Option("--path", help="A file the work is about; may be repeated.")]
Resources = Annotated[
    list[str] | None, typer.Option("--resource", help="A kind of resource you have, such as calendar; may be repeated.")
]
Features = Annotated[
    list[str] | None, typer.Option("--feature", help="An experiment to switch on, skill_NAME; may be repeated.")
]
Wide = Annotated[bool, typer.Option("--wide", help="All columns, and their texts whole.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]
SkillName = Annotated[str, typer.Argument(help="A skill: name, or name@layer.", autocompletion=skill_names)]
