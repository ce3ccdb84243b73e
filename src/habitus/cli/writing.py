"""`habitus skills new | edit | enable | disable | remove`: changing skills."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from habitus.app.library import writing as use_case
from habitus.app.library.writing import Edited
from habitus.cli import given as given_text
from habitus.cli import output
from habitus.cli.editor import edited
from habitus.cli.opening import opened
from habitus.cli.options import AsJson, Reason, SkillName, SkillNames, with_fields
from habitus.skills import names as skill_names
from habitus.skills.edits import Edit, Operation
from habitus.skills.fields import NO_FIELDS, Fields
from habitus.skills.model import State


@with_fields
def new(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The name: lower-case letters, digits and hyphens.")],
    fields: Fields = NO_FIELDS,
    file: Annotated[
        str | None, typer.Option("--file", "-f", help="Markdown with the steps ('-' reads standard input).")
    ] = None,
    layer: Annotated[str | None, typer.Option(help="Write it to this layer instead of your own.")] = None,
    cli: Annotated[bool, typer.Option("--cli", help="With a command line, scripts/cli.py, that already runs.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a new skill; without --file, a skeleton to fill in."""
    name = skill_names.checked(name)
    with opened(context) as habitus:
        content = None if file is None else given_text.read_bytes(file)
        made = use_case.new(habitus, name, fields, layer, content=content, file=file or "", cli=cli)
        data = {"name": made.name, "version": made.version, "layer": made.layer}
        where = f": {made.directory}/SKILL.md" if made.directory else ""
        lines = [f"Wrote {made.name} (version {made.version}){where}"]
        if file is None:
            lines.append(f"Fill in the steps: {output.command(context, 'skills', 'edit', made.name)}")
        if cli:
            lines.append(f"Try it: {output.command(context, 'skill', 'run', made.name)} -- greet you")
        output.done(context, as_json, data, *lines, undo=made.undo)


@with_fields
def edit(
    context: typer.Context,
    name: SkillName,
    append: Annotated[str | None, typer.Option(help="Put this text after the steps.")] = None,
    prepend: Annotated[str | None, typer.Option(help="Put this text before the steps.")] = None,
    replace_body: Annotated[str | None, typer.Option("--replace", help="Make this text the steps.")] = None,
    find: Annotated[str | None, typer.Option(help="Exact text to find; needs --with.")] = None,
    with_text: Annotated[str | None, typer.Option("--with", help="What to put in its place.")] = None,
    everywhere: Annotated[bool, typer.Option("--all", help="With --find: every occurrence.")] = False,
    delete: Annotated[str | None, typer.Option(help="Exact text to take out once.")] = None,
    fields: Fields = NO_FIELDS,
    expect: Annotated[int | None, typer.Option(help="Refuse unless the skill is at this version.")] = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Edit a skill: one operation by option, or the whole file in your editor. '-' as a text reads standard input."""
    change = _operation(append, prepend, replace_body, find, with_text, everywhere, delete)
    with opened(context) as habitus:
        if change.operation is None and fields == NO_FIELDS:
            instead = "say what to change, for example --append TEXT"
            by_hand = partial(edited, habitus.settings.editor, instead=instead)
            done = use_case.edit_by_hand(habitus, name, by_hand, expect, reason)
        else:
            done = use_case.edit(habitus, name, change, fields, expect, reason)
        _print_edited(context, done, as_json)


def _print_edited(context: typer.Context, done: Edited, as_json: bool) -> None:
    said = f"{done.name} is now at version {done.version}."
    if done.is_unchanged:
        said = f"{done.name} is unchanged (version {done.version})."
    elif done.is_override:
        said = f"Wrote {done.name}@{done.layer}, which now stands in front of {done.name}@{done.before.layer}."
    data = {"name": done.name, "layer": done.layer, "version": done.version}
    output.done(context, as_json, data, said, undo=done.undo)


def _operation(
    append: str | None,
    prepend: str | None,
    replace_body: str | None,
    find: str | None,
    with_text: str | None,
    everywhere: bool,
    delete: str | None,
) -> Edit:
    texts = {
        Operation.APPEND: append,
        Operation.PREPEND: prepend,
        Operation.REPLACE: replace_body,
        Operation.FIND_REPLACE: find,
        Operation.DELETE: delete,
    }
    given = {operation: text for operation, text in texts.items() if text is not None}
    if len(given) > 1:
        names = " and ".join(f"--{str(name).split('_', maxsplit=1)[0]}" for name in given)
        raise typer.BadParameter(f"{names} can't be done in one go; give one, then the other.")
    if with_text is not None and find is None:
        raise typer.BadParameter("--with needs --find with the text to look for.")
    if find is not None and with_text is None:
        raise typer.BadParameter("--find needs --with and the text to put in its place.")
    if everywhere and find is None:
        raise typer.BadParameter("--all needs --find with the text to look for.")
    if not given:
        return Edit()
    operation, text = next(iter(given.items()))
    text = given_text.read_text("-") if text == "-" else text
    if with_text == "-" and find != "-":
        with_text = given_text.read_text("-")
    if operation is Operation.FIND_REPLACE:
        return Edit(operation=operation, find=text, replace=with_text, replace_all=everywhere)
    return Edit(operation=operation, content=text)


def enable(context: typer.Context, names: SkillNames, as_json: AsJson = False) -> None:
    """Switch skills on."""
    _switch(context, names, True, as_json)


def disable(context: typer.Context, names: SkillNames, as_json: AsJson = False) -> None:
    """Switch skills off: they stay, and no prompt sees them."""
    _switch(context, names, False, as_json)


def _switch(context: typer.Context, names: list[str], enabled: bool, as_json: bool) -> None:
    with opened(context) as habitus:
        switching = use_case.switch(habitus, names, on=enabled)
        lines: list[str] = []
        for item in switching.after:
            lines.append(f"{item.name} is switched {'on' if enabled else 'off'}.")
            if enabled and item.state is not State.OK:
                lines.append(f"It is still {item.state}: {item.reason}")
        data = {"skills": [{"name": item.name, "enabled": enabled} for item in switching.after]}
        output.done(context, as_json, data, *lines, undo=switching.undo)


def remove(context: typer.Context, names: SkillNames, reason: Reason = "", as_json: AsJson = False) -> None:
    """Move skills to the archive, from which 'restore' brings them back."""
    with opened(context) as habitus:
        removed = use_case.remove(habitus, names, reason)
        if as_json:
            output.print_json({"removed": [{"name": one.item.name, "layer": one.item.layer} for one in removed.skills]})
            return
        for one in removed.skills:
            item = one.item
            output.say(f"Moved {item.name}@{item.layer} to the archive.")
            if item.hidden:
                output.say(f"{item.name}@{item.hidden[-1]} is in view again.")
            output.say_undo(context, *one.undo)
