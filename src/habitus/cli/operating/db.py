"""`habitus db …` and `habitus users forget`: renders results and shows the progress of a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from habitus.app import Habitus, read_settings
from habitus.app.operating import backing_up
from habitus.app.operating.erasure import ErasureResult
from habitus.app.sharing import database
from habitus.app.use_cases import storage
from habitus.cli import inputs, output
from habitus.cli.completion import JsonOption
from habitus.settings import Settings


def print_result_of_show_database_status(context: typer.Context, result: database.DatabaseStatus) -> None:
    output.print_line(f"{result.address} ({result.server}), answers in {result.latency_ms} ms")
    output.print_line(f"Schema: {result.schema or 'no tables yet'}; this Habitus needs {result.needs}.")
    if result.server.startswith("PostgreSQL"):
        output.print_line(f"Search: {result.search}; pgvector: {result.pgvector or 'not installed'}.")
    if result.note:
        output.print_line(result.note)
    if rows := [(name, count) for name, count in result.rows.items() if count]:
        output.print_table(("table", "rows"), rows)


def print_result_of_migrate_database(context: typer.Context, result: database.MigrateDatabaseResult) -> None:
    before = ", unchanged." if result.before == result.after else f"; it was at {result.before or 'none'}."
    output.print_line(f"{result.address} is at schema {result.after}{before}")
    output.print_line(f"A Habitus that knows schema {result.oldest} or later can use it.")


def copy_database(
    context: typer.Context,
    source: Annotated[str, typer.Argument(help="'home', or the address of a database.")] = database.HOME_DATABASE,
    target: Annotated[str, typer.Argument(help="The same; the database of the settings by default.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Copy everything into an empty database: skills, history, lessons, turns, proposals."""
    settings = read_settings(context.find_root().obj)
    with output.show_progress_counter(is_quiet=as_json, label="Copying", unit="rows") as progress:
        done = database.copy_database_by_address(settings, source, target or settings.database or "", progress=progress)
    if as_json:
        output.print_json(done)
        return
    rows = [(t.table, t.rows, t.checksum) for t in done.tables if t.rows]
    output.print_json_or_table(False, done, ("table", "rows", "checksum"), rows, empty="Nothing to copy.")
    for left in done.unreadable_skills:
        output.print_line(f"Not copied, because it can't be read: {left}")
    for what, count in done.not_copied.items():
        output.print_line(f"Not copied: {count} {what}.")
    output.print_line(f"{done.target} now contains everything from {done.source}.")


def print_result_of_create_backup(context: typer.Context, result: backing_up.BackupDetails) -> None:
    output.print_line(f"{result.file}: {result.files} files, {result.size / 1e6:.1f} MB.")
    if result.note:
        output.print_line(result.note)


def print_result_of_list_backups(context: typer.Context, result: storage.ListBackupsResult) -> None:
    rows = [
        (one.file.name, inputs.format_timestamp(one.made_on), one.files, f"{one.size / 1e6:.1f} MB")
        for one in result.backups
    ]
    output.print_table_or_message(
        "No backups yet. Create one: habitus db backup", ("file", "made", "files", "size"), rows
    )


def get_question_before_restore_backup(settings: Settings, file: str, print_line: Callable[..., None]) -> str:
    made_on = backing_up.read_manifest(storage.resolve_backup_path(settings, file)).made_on
    return f"Replace {settings.home} with its state of {inputs.format_timestamp(made_on)}?"


def print_result_of_restore_backup(context: typer.Context, result: backing_up.RestoreResult) -> None:
    output.print_line(
        f"The home was restored to {inputs.format_timestamp(result.backup.made_on)}. {result.note}".strip()
    )


def get_question_before_erase_user(habitus: Habitus, user: str, dry_run: bool, print_line: Callable[..., None]) -> str:
    """Preview the erasure and return the question; it can't be undone, so it is always asked."""
    if dry_run:
        return ""
    # The preview runs the same code as the erasure, so it can't promise less than will happen.
    kept = storage.erase_user(habitus, user=user, dry_run=True)
    return "\n".join(
        [*_describe_stored_or_erased_counts(kept), f"Permanently erase all data of '{user}'? This can't be undone."]
    )


def print_result_of_erase_user(context: typer.Context, result: ErasureResult) -> None:
    for line in _describe_stored_or_erased_counts(result):
        output.print_line(line)
    for place in result.left:
        output.print_line_to_stderr(f"habitus: still there: {place}")
    if not result.is_dry_run and not result.left:
        output.print_line("Verified: no table or file contains it any more. Restored backups are erased likewise.")


def _describe_stored_or_erased_counts(result: ErasureResult) -> list[str]:
    """Return lines on what is stored about a person, or was erased."""
    lines = [
        f"{'stored' if result.is_dry_run else 'erased':<7} {count:>6} {place}" for place, count in result.erased.items()
    ]
    if result.in_use:
        names = ", ".join(result.in_use[:10]) + (" …" if len(result.in_use) > 10 else "")
        lines.append(f"Their skills that are in use stay, without their name: {names}.")
    return lines if result.total else [f"Nothing is stored about '{result.user}'.", *lines]
