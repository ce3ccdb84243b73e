"""`habitus identity`: the text that says who the assistant is, and the person's way to change it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from habitus.app.declaring import Nothing
from habitus.app.use_cases.identity import IdentityText, NewIdentity, change, show
from habitus.cli import output
from habitus.cli.declared import finish
from habitus.cli.editor import edit_in_editor
from habitus.cli.opening import open_habitus
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
    with open_habitus(context) as habitus:
        now = show(habitus, Nothing())
        if edit:
            with edit_in_editor(
                habitus.settings.editor, now.text.encode(), "identity.md", instead="use --set -"
            ) as after:
                now = change(habitus, NewIdentity(text=after.decode()))
        elif write is not None:
            now = change(habitus, NewIdentity(text=sys.stdin.read() if write == "-" else write))
        finish(context, None, now, _say_text, as_json=as_json)


def _say_text(context: typer.Context, wanted: object, done: IdentityText) -> None:
    output.say(done.text)
