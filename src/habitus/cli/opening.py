"""Opening Habitus for a command, with what is odd about the settings said on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from habitus.cli import output

if TYPE_CHECKING:
    from habitus.app import Habitus


@contextmanager
def opened(context: typer.Context) -> Iterator[Habitus]:
    from habitus.app import Habitus, read_settings

    home: Path | None = context.find_root().obj
    settings = read_settings(home)
    for warning in settings.warnings:
        output.complain(f"habitus: {warning}")
    with Habitus.open(settings) as habitus:
        if habitus.is_read_only:
            output.complain(f"habitus: {settings.home} is read-only; nothing can be changed.")
        yield habitus
        _say_what_waits(habitus)


def _say_what_waits(habitus: Habitus) -> None:
    """Every command's last line, on standard error so that a program reading the output is not disturbed."""
    count = habitus.waiting_count()
    if count:
        output.complain(f"{count} {'change waits' if count == 1 else 'changes wait'} for you: habitus review list")
