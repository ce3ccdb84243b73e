"""`habitus identity`: the text that says who the assistant is, and the person's way to change it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from habitus.app.library import writing
from habitus.cli import output
from habitus.cli.editor import edited
from habitus.cli.opening import opened
from habitus.cli.options import AsJson


def identity(
    context: typer.Context,
    edit: Annotated[bool, typer.Option("--edit", "-e", help="Change it in your editor.")] = False,
    write: Annotated[str | None, typer.Option("--set", help="Make this the text; '-' reads standard input.")] = None,
    as_json: AsJson = False,
) -> None:
    """Who the assistant is and how it speaks: the first lines of every prompt. Shown, or changed with a history."""
    if edit and write is not None:
        raise typer.BadParameter("Give --edit or --set, not both.")
    with opened(context) as habitus:
        now = writing.identity(habitus.skills)
        if edit:
            with edited(habitus.settings.editor, now.text.encode(), "identity.md", instead="use --set -") as after:
                now = writing.set_identity(habitus, after.decode())
        elif write is not None:
            now = writing.set_identity(habitus, sys.stdin.read() if write == "-" else write)
        output.done(context, as_json, {"text": now.text, "version": now.version}, now.text, undo=now.undo)
