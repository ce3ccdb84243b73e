"""`habitus db …`, `habitus backup …` and `habitus forget`: renders results and shows the progress of a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from habitus.app import Habitus, read_settings
from habitus.app.operating import backing_up
from habitus.app.operating.backing_up import Backup, Restored
from habitus.app.operating.forgetting import Forgotten
from habitus.app.sharing import database
from habitus.app.sharing.database import DatabaseStatus, Migrated
from habitus.app.use_cases import storage
from habitus.app.use_cases.declaration import Nothing
from habitus.app.use_cases.storage import BackupFile, Backups, Erasure, Migration, OneBackup
from habitus.cli import inputs, output
from habitus.cli.completion import AsJson
from habitus.settings import Settings


def status(context: typer.Context, wanted: Nothing, done: DatabaseStatus) -> None:
    output.say(f"{done.address} ({done.server}), answers in {done.latency_ms} ms")
    output.say(f"Schema: {done.schema or 'no tables yet'}; this Habitus needs {done.needs}.")
    if done.server.startswith("PostgreSQL"):
        output.say(f"Search: {done.search}; pgvector: {done.pgvector or 'not there'}.")
    if done.note:
        output.say(done.note)
    if rows := [(name, count) for name, count in done.rows.items() if count]:
        output.table(("table", "rows"), rows)


def migrate(context: typer.Context, wanted: Migration, done: Migrated) -> None:
    before = ", as it was." if done.before == done.after else f"; it was at {done.before or 'none'}."
    output.say(f"{done.address} is at schema {done.after}{before}")
    output.say(f"A Habitus that knows schema {done.oldest} or later can use it.")


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


def create(context: typer.Context, wanted: BackupFile, done: Backup) -> None:
    output.say(f"{done.file}: {done.files} files, {done.size / 1e6:.1f} MB.")
    if done.note:
        output.say(done.note)


def list_backups(context: typer.Context, wanted: Nothing, done: Backups) -> None:
    rows = [
        (one.file.name, inputs.format_timestamp(one.made_on), one.files, f"{one.size / 1e6:.1f} MB")
        for one in done.backups
    ]
    output.rows_or("None yet. Make one: habitus backup create", ("file", "made", "files", "size"), rows)


def confirm_restore(settings: Settings, wanted: OneBackup, say: Callable[..., None]) -> str:
    made_on = backing_up.look(wanted.path(settings)).made_on
    return f"Replace {settings.home} by what it was at {inputs.format_timestamp(made_on)}?"


def restore(context: typer.Context, wanted: OneBackup, done: Restored) -> None:
    output.say(f"The home is as it was at {inputs.format_timestamp(done.backup.made_on)}. {done.note}".strip())


def confirm_forget(habitus: Habitus, wanted: Erasure, say: Callable[..., None]) -> str:
    """Preview the erasure and return the question; it can't be undone, so it is always asked."""
    if wanted.dry_run:
        return ""
    # The preview runs the same code as the erasure, so it can't promise less than will happen.
    kept = storage.forget(habitus, Erasure(user=wanted.user, dry_run=True))
    return "\n".join([*_describe_erasure(kept), f"Erase all of '{wanted.user}' for good? It can't be undone."])


def forget(context: typer.Context, wanted: Erasure, done: Forgotten) -> None:
    for line in _describe_erasure(done):
        output.say(line)
    for place in done.left:
        output.complain(f"habitus: still there: {place}")
    if not done.is_dry_run and not done.left:
        output.say("Looked again in every table and file: nothing of it is left. A restore is followed by the same.")


def _describe_erasure(done: Forgotten) -> list[str]:
    """Return lines on what is stored about a person, or was erased."""
    lines = [f"{'kept' if done.is_dry_run else 'erased':<7} {count:>6} {place}" for place, count in done.erased.items()]
    if done.in_use:
        names = ", ".join(done.in_use[:10]) + (" …" if len(done.in_use) > 10 else "")
        lines.append(f"Skills of theirs that are in use stay, without their name: {names}.")
    return lines if done.total else [f"Nothing is kept of '{done.user}'.", *lines]
