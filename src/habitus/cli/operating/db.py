"""`habitus db …` and `habitus backup …`: the database as it stands, brought up to date or copied to another one; and a
home as one file, while it is in use, and back."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from habitus.app import read_settings
from habitus.app.home_directory import BACKUPS
from habitus.app.operating import backing_up
from habitus.app.sharing import database
from habitus.cli import inputs, output
from habitus.cli.completion import AsJson, Yes
from habitus.errors import Refused


def status(context: typer.Context, as_json: AsJson = False) -> None:
    """Which database is used, how it stands and what it holds; nothing is changed."""
    found = database.status(read_settings(context.find_root().obj))
    if as_json:
        output.print_json(found)
    else:
        output.say(f"{found.address} ({found.server}), answers in {found.latency_ms} ms")
        output.say(f"Schema: {found.schema or 'no tables yet'}; this Habitus needs {found.needs}.")
        if found.server.startswith("PostgreSQL"):
            output.say(f"Search: {found.search}; pgvector: {found.pgvector or 'not there'}.")
        if found.note:
            output.say(found.note)
        rows = [(name, count) for name, count in found.rows.items() if count]
        if rows:
            output.table(("table", "rows"), rows)
    if not found.is_usable:
        raise typer.Exit(1)


def migrate(
    context: typer.Context,
    even_so: Annotated[
        bool, typer.Option("--even-so", help="Also while older processes run that can't use it afterwards.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Bring the database up to what this Habitus needs. A shared one is never migrated otherwise."""
    done = database.migrate(read_settings(context.find_root().obj), even_so=even_so)
    said = f"{done.address} is at schema {done.after}" + (
        ", as it was." if done.before == done.after else f"; it was at {done.before or 'none'}."
    )
    output.say_done(context, as_json, done, said, f"A Habitus that knows schema {done.oldest} or later can use it.")


def copy(
    context: typer.Context,
    source: Annotated[str, typer.Argument(help="'home', or the address of a database.")] = database.HOME,
    target: Annotated[str, typer.Argument(help="The same; without it, the one of the settings.")] = "",
    as_json: AsJson = False,
) -> None:
    """Copy everything into an empty database: skills, history, lessons, turns, proposals."""
    settings = read_settings(context.find_root().obj)
    with output.counting(is_quiet=as_json, doing="Copying", what="rows") as progress:
        done = database.copy_between(settings, source, target or settings.database or "", progress=progress)
    if as_json:
        output.print_json(done)
        return
    rows = [(t.table, t.rows, t.checksum) for t in done.tables if t.rows]
    output.say_list(False, done, ("table", "rows", "checksum"), rows, empty="There was nothing.")
    for left in done.left:
        output.say(f"Not copied, because it can't be read: {left}")
    for what, count in done.stays.items():
        output.say(f"Stays where it is: {count} {what}.")
    output.say(f"{done.target} has everything of {done.source}.")


def create(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="Where to; without it, in the home.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write databases, skills, lessons and settings of the home into one file; it may be in use."""
    made = backing_up.create(read_settings(context.find_root().obj), file, now=datetime.now(UTC))
    said = f"{made.file}: {made.files} files, {made.size / 1e6:.1f} MB."
    output.say_done(context, as_json, made, said, *([made.note] if made.note else []))


def list_backups(context: typer.Context, as_json: AsJson = False) -> None:
    """The backups that lie in the home."""
    found = backing_up.list_backups(read_settings(context.find_root().obj))
    rows = [(one.file.name, inputs.show_moment(one.made_on), one.files, f"{one.size / 1e6:.1f} MB") for one in found]
    columns = ("file", "made", "files", "size")
    output.say_list(as_json, {"backups": found}, columns, rows, empty="None yet. Make one: habitus backup create")


def restore(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A backup: a path, or a name that 'list' shows.")],
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Put a backup in place of the home, which is backed up first. Refused while somebody is in it."""
    settings = read_settings(context.find_root().obj)
    inside = settings.home / BACKUPS / file.name
    file = inside if not file.exists() and inside.exists() else file
    found = backing_up.look(file)
    if not yes:
        if as_json or not sys.stdin.isatty():
            raise Refused(f"{settings.home} would be replaced.", mend="Give --yes.")
        if not typer.confirm(f"Replace {settings.home} by what it was at {inputs.show_moment(found.made_on)}?"):
            raise typer.Abort
    done = backing_up.restore(settings, file, now=datetime.now(UTC))
    said = f"The home is as it was at {inputs.show_moment(found.made_on)}."
    said = f"{said} {done.note}".strip()
    output.say_done(context, as_json, done, said, undo=("backup", "restore", str(done.before.file), "--yes"))
