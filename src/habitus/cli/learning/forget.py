"""`habitus forget`: erase a person for good."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from habitus.app.operating import forgetting as use_case
from habitus.app.operating.forgetting import Forgotten
from habitus.cli import output
from habitus.cli.completion import AsJson, Yes
from habitus.cli.opening import open_habitus
from habitus.errors import Refused


def forget(
    context: typer.Context,
    user: Annotated[str, typer.Option("--user", help="Whom; for others than yourself you have to be an admin.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what is kept of them.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Erase a person from sessions, lessons, evidence, proposals, history, archive and search, for good."""
    with open_habitus(context) as habitus:
        found = use_case.forget(habitus, user, dry_run=True)
        if not dry_run:
            _ask(found, yes=yes, as_json=as_json)
            found = use_case.forget(habitus, user)
    if as_json:
        output.print_json(found)
    else:
        _tell(found)
    if found.left:
        raise typer.Exit(1)


def _ask(found: Forgotten, *, yes: bool, as_json: bool) -> None:
    """There is no way back, so nobody's silence is a yes."""
    if yes:
        return
    if as_json or not sys.stdin.isatty():
        raise Refused(f"Forgetting '{found.user}' can't be undone.", mend="Look with --dry-run, then give --yes.")
    _tell(found)
    if not typer.confirm(f"Erase all of '{found.user}' for good?"):
        raise typer.Abort


def _tell(found: Forgotten) -> None:
    if not found.total:
        output.say(f"Nothing is kept of '{found.user}'.")
    for place, count in found.erased.items():
        output.say(f"{'kept' if found.is_dry_run else 'erased':<7} {count:>6} {place}")
    if found.in_use:
        names = ", ".join(found.in_use[:10]) + (" …" if len(found.in_use) > 10 else "")
        output.say(f"Skills of theirs that are in use stay, without their name: {names}.")
    for place in found.left:
        output.complain(f"habitus: still there: {place}")
    if not found.is_dry_run and not found.left:
        output.say("Looked again in every table and file: nothing of it is left. A restore is followed by the same.")
