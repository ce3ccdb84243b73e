"""Tab completion of names, read straight from the databases, and options that many commands share.

A key press can't wait for the whole application to start, so the queries are written by hand here.
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

QueryRow = tuple[str, ...]
_MAX_RESULTS = 200
_SKILLS = "SELECT DISTINCT name FROM skills WHERE archived_on IS NULL AND name LIKE ? ORDER BY name LIMIT 200"
_LESSONS = (
    "SELECT id, text FROM engrams WHERE state != 'erased' AND id LIKE ? AND (scope != 'user' OR owner = ?)"
    " ORDER BY id LIMIT 200"
)


def complete_skill_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the skill names with this prefix, from the home and from the shared database if there is one."""
    return [
        row[0] for row in _query_databases(_find_home(context), _SKILLS, incomplete.replace("_", "-").lower() + "%")
    ]


def complete_lesson_ids(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the lesson ids with this prefix that the user may see, each with the start of its text."""
    home = _find_home(context)
    user = _read_setting(home, "user") or _read_account_name()
    return [(row[0], row[1][:60]) for row in _query_databases(home, _LESSONS, incomplete.lower() + "%", user)]


def _find_home(context: typer.Context) -> Path:
    return resolve_home(context.find_root().params.get("home"))


def resolve_home(given: Path | None) -> Path:
    """Return the home directory without reading the settings, which takes too long for a key press."""
    home = Path(given or os.environ.get("HABITUS_HOME") or Path.home() / ".habitus")
    try:
        return home.expanduser()
    except RuntimeError:
        # `~name` of an unknown account; opening the home reports it.
        return home


def _read_account_name() -> str:
    """Return the name of the current account, or its number if it has no name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        # A container can run under a number without an account.
        return str(os.getuid())


def _read_setting(home: Path, name: str) -> str:
    """Return a setting from the environment or from habitus.toml, or nothing."""
    # Loading the settings class takes longer than a person waits for a Tab press.
    if told := os.environ.get(f"HABITUS_{name.upper()}"):
        return told
    try:
        return str(tomllib.loads((home / "habitus.toml").read_text("utf-8")).get(name, ""))
    except (OSError, ValueError):
        return ""


def _query_databases(home: Path, query: str, *values: str) -> list[QueryRow]:
    """Run the query on the home's and the shared database; return the merged rows, sorted and limited."""
    found = {*_query_sqlite(home / "habitus.db", query, values), *_query_shared_database(home, query, values)}
    return sorted(found)[:_MAX_RESULTS]


def _query_shared_database(home: Path, query: str, values: QueryRow) -> list[QueryRow]:
    kind, _, rest = _read_setting(home, "database").partition("://")
    if kind == "sqlite":
        return _query_sqlite(Path(rest.removeprefix("/")), query, values)
    workspace = _read_setting(home, "workspace")
    return _query_postgresql(f"postgresql://{rest}", workspace, query, values) if kind.startswith("postgresql") else []


def _query_sqlite(database: Path, query: str, values: QueryRow) -> list[QueryRow]:
    """Run the query on an SQLite file; return nothing if it is missing, locked or damaged."""
    if not database.is_file():
        return []
    try:
        # Read-only and with a short timeout: completion must never create, lock or wait for a database.
        address = f"file:{quote(str(database.absolute()))}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=0.2)) as connection:
            return list(connection.execute(query, values))
    except sqlite3.Error:
        return []


def _query_postgresql(address: str, workspace: str, query: str, values: QueryRow) -> list[QueryRow]:
    try:
        import psycopg
    except ImportError:
        return []
    try:
        # Two seconds: a key press that waits longer feels broken.
        with psycopg.connect(address, connect_timeout=2) as connection:
            if workspace:
                connection.execute("SELECT set_config('search_path', quote_ident(%s), true)", (workspace,))
            return list(connection.execute(query.replace("?", "%s"), values))
    except psycopg.Error:
        return []


# Options shared by many commands; they live here because importing this module is cheap.
AllUsersOption = Annotated[bool, typer.Option("--all-users", help="All users; for admins only.")]
# Eager, so that an option that answers instead of the command knows how.
JsonOption = Annotated[bool, typer.Option("--json", is_eager=True, help="Print JSON.")]
PathsOption = Annotated[
    list[str] | None, typer.Option("--path", help="A file that the request is about; may be repeated.")
]
ResourcesOption = Annotated[
    list[str] | None,
    typer.Option("--resource", help="An available kind of resource, such as calendar; may be repeated."),
]
FeaturesOption = Annotated[
    list[str] | None, typer.Option("--feature", help="An experimental feature to enable, skill_NAME; may be repeated.")
]
WideOption = Annotated[bool, typer.Option("--wide", help="Show all columns with full texts.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")]
SkillNameArgument = Annotated[
    str, typer.Argument(help="A skill: name, or name@layer.", autocompletion=complete_skill_names)
]
