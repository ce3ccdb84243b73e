"""Opens Habitus for a command and prints warnings about the settings on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import typer

from habitus.app import Habitus, read_settings
from habitus.app.home_directory import explain_why_home_is_unwritable
from habitus.app.operating.damage import find_database_damage
from habitus.app.review import reminding
from habitus.cli import output
from habitus.errors import HabitusError

_open: ContextVar[Habitus | None] = ContextVar("_open", default=None)


@contextmanager
def share_open_habitus_with_commands(habitus: Habitus) -> Iterator[None]:
    """Let commands inside the block use this Habitus instead of opening the home again."""
    before = _open.set(habitus)
    try:
        yield
    finally:
        _open.reset(before)


@contextmanager
def open_habitus(context: typer.Context, *, model: str = "", is_server: bool = False) -> Iterator[Habitus]:
    """Open the home of this command line; `model` overrides the settings, a server gets more connections."""
    # A slash command in the chat runs on the home that the chat has open.
    if (already := _open.get()) is not None:
        yield already
        return
    home: Path | None = context.find_root().obj
    settings = read_settings(home)
    if model:
        settings = settings.model_copy(update={"model": model})
    if is_server:
        settings = settings.for_server()
    for warning in settings.warnings:
        output.print_line_to_stderr(f"habitus: {warning}")
    try:
        with Habitus.open(settings) as habitus:
            _warn_about_data_not_in_shared_database(context, habitus)
            yield habitus
            # Printed after the command, whose own refusals come first.
            if habitus.is_read_only:
                output.print_line_to_stderr(
                    f"habitus: {explain_why_home_is_unwritable(settings.home)}; changes are not possible."
                )
            _remind_of_pending_review(context, habitus)
    except (HabitusError, typer.Exit, typer.Abort, typer.TyperException, BrokenPipeError):
        raise
    # A damaged database can fail in any way, so the damage is reported instead of the symptom.
    except Exception as error:
        if (damage := find_database_damage(settings)) is not None:
            raise damage from error
        raise


def _warn_about_data_not_in_shared_database(context: typer.Context, habitus: Habitus) -> None:
    """Warn once if the home uses a shared database but still has local data that is not in it."""
    if (left := reminding.count_unshared_content_once(habitus)) is not None:
        found = f"{output.format_quantity(left.skills, 'skill')} and {output.format_quantity(left.lessons, 'lesson')}"
        takes = output.format_command(context, "db", "copy", "home")
        skills = output.format_command(context, "skills", "import", str(habitus.settings.home / "skills"))
        output.print_line_to_stderr(
            f"habitus: {found} of this home are not in the shared database. Copy them into an empty database "
            f"with '{takes}', or add the skills to one in use with '{skills}'."
        )


def _remind_of_pending_review(context: typer.Context, habitus: Habitus) -> None:
    """Print once a day, on standard error, how many changes are pending review."""
    if count := reminding.count_pending_items_once_a_day(habitus):
        waits = "change" if count == 1 else "changes"
        output.print_line_to_stderr(
            f"{count} {waits} pending review: {output.format_command(context, 'review', 'list')}"
        )
