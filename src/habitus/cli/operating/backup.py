"""`habitus backup …`: a home as one file, while it is in use, and back."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from habitus.app import read_settings
from habitus.app.home_directory import BACKUPS
from habitus.app.operation import backing_up
from habitus.cli import inputs, output
from habitus.cli.completion import AsJson, Yes
from habitus.errors import Refused


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
