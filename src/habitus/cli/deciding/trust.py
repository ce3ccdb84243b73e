"""`habitus trust`: let a project's skills, or an imported one, act as they are now."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from habitus.app.library import trusting
from habitus.app.library.trusting import Dangers
from habitus.cli import completion, inputs, output
from habitus.cli.completion import AsJson, Yes
from habitus.cli.opening import open_habitus

_SHOWN = 4  # names of a root in a list


def trust(
    context: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            help="A project directory (this one by default), a skill (imported, or with code), or a package.",
            autocompletion=completion.skill_names,
        ),
    ] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Show what is trusted.")] = False,
    revoke: Annotated[bool, typer.Option("--revoke", help="Trust it no longer.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Trust what skills from outside say and can do now. Later changes follow only when they are harmless."""
    with open_habitus(context) as habitus:
        if show_list:
            known = trusting.list_trusted(habitus)
            rows = [(t.root, _join_names(t.names), inputs.show_moment(t.trusted_on), t.trusted_by) for t in known]
            columns, empty = ("root", "what", "since", "by"), "Nothing is trusted yet."
            output.say_list(as_json, {"trusted": known}, columns, rows, wide="root", empty=empty)
            return
        found = trusting.trustable(habitus, target)
        if revoke:
            was_all = trusting.is_trusted(habitus.trust, habitus.approvals, found)
            revoked = trusting.revoke(habitus.trust, habitus.approvals, found)
            said = f"No longer trusted: {', '.join(revoked)}." if revoked else "It was not trusted."
            undo = ("trust", *filter(None, [target])) if was_all and revoked else ()
            output.say_done(context, as_json, {"revoked": revoked}, said, undo=undo)
            return
        if not as_json:
            _print_dangers(trusting.dangers(habitus, found))
        if not yes:
            _ask(found.count, as_json)
        trusting.trust(habitus, found)
        data = {"trusted": {root: sorted(skills) for root, skills in found.roots.items()}}
        said, undo = f"Trusted {output.count_of(found.count, 'skill')}.", ("trust", "--revoke", *filter(None, [target]))
        output.say_done(context, as_json, data, said, undo=undo)


def _join_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


def _ask(count: int, as_json: bool) -> None:
    if as_json or not sys.stdin.isatty():
        raise typer.BadParameter("There is nobody to ask; say --yes once you have read them.")
    if not typer.confirm(f"Trust {output.count_of(count, 'skill')} as they are?"):
        raise typer.Abort


def _print_dangers(found: tuple[Dangers, ...]) -> None:
    """Everything a person should know before they say yes."""
    for root, skills in itertools.groupby(found, lambda skill: skill.root):
        output.say(root, style="bold")
        for skill in skills:
            output.say(f"  {skill.name}")
            for power in skill.powers:
                output.say(f"    {power}", style="yellow")
            for finding in skill.findings:
                output.say(f"    {finding}", style="red")
