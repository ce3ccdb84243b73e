"""`habitus identity`: the text that says who the assistant is, and the person's way to change it."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from habitus.cli import output
from habitus.cli.opening import opened

if TYPE_CHECKING:
    from habitus.app import Habitus

_ADDRESS = "identity@prompt"


def identity(
    context: typer.Context,
    edit: Annotated[bool, typer.Option("--edit", "-e", help="Change it in your editor.")] = False,
    write: Annotated[str | None, typer.Option("--set", help="Make this the text; '-' reads standard input.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Who the assistant is and how it speaks: the first lines of every prompt. Shown, or changed with a history."""
    from habitus.agent.identity import identity_skill

    if edit and write is not None:
        raise typer.BadParameter("Give --edit or --set, not both.")
    with opened(context) as habitus:
        before = identity_skill(habitus.skills)
        if edit:
            from habitus.cli.editor import edited

            with edited(habitus.settings.editor, before.body.encode(), "identity.md", instead="use --set -") as after:
                _save(habitus, after.decode())
        elif write is not None:
            _save(habitus, sys.stdin.read() if write == "-" else write)
        now = identity_skill(habitus.skills)
        if as_json:
            output.print_json({"text": now.body, "version": now.version})
            return
        output.say(now.body)
        if now.version > before.version > 0:
            output.undo(context, "skills", "rollback", _ADDRESS, "--to", str(before.version))
        elif now.version > before.version:
            output.undo(context, "skills", "remove", _ADDRESS)


def _save(habitus: Habitus, text: str) -> None:
    from habitus.agent.identity import LAYER, NAME, identity_skill
    from habitus.errors import Invalid

    if not text.strip():
        raise Invalid("The identity can't be empty.", mend="Say in a sentence who the assistant is.")
    store = habitus.skills.layer(LAYER).store
    skill = replace(identity_skill(habitus.skills), body=text.strip())
    author = habitus.person("changed who the assistant is")
    if store.load(NAME) is None:
        habitus.skills.create(skill, author, layer=LAYER)
    else:
        store.change(NAME, lambda old: replace(old, body=skill.body), author)
