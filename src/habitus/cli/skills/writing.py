"""`habitus skills new`, `edit`, `enable`, `disable`, `remove`, `restore` and `rollback`: renders results, opens the
editor.

`app/use_cases/writing.py` does the work.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import typer

from habitus.app import Habitus
from habitus.app.use_cases import skills, writing
from habitus.app.use_cases.skills import ArchivePage, SkillArchive
from habitus.app.use_cases.writing import (
    ArchivedName,
    ChangedSkill,
    EarlierVersion,
    ManySkills,
    NewSkill,
    RemovedSkills,
    RestoredSkill,
    SkillDraft,
    SkillEdit,
    SkillRemoval,
    SwitchedSkills,
)
from habitus.cli import inputs, output
from habitus.cli.use_case_commands import edit_in_editor
from habitus.skills.model import State

ShowList = Annotated[bool, typer.Option("--list", help="Show what can be brought back.")]


def new(context: typer.Context, wanted: SkillDraft, done: NewSkill) -> None:
    where = f": {done.directory}/SKILL.md" if done.directory else ""
    output.say(f"Wrote {done.name} (version {done.version}){where}")
    if wanted.body is None:
        output.say(f"Fill in the steps: {output.command(context, 'skills', 'edit', done.name)}")
    if wanted.cli:
        output.say(f"Try it: {output.command(context, 'skill', 'run', done.name)} -- greet you")


def perform_edit(habitus: Habitus, wanted: SkillEdit) -> ChangedSkill:
    """Apply the options, or open the whole file in the editor if there are none; `-` reads standard input."""
    # Equal to an edit without options: nothing was asked for but the editor.
    if wanted == SkillEdit(name=wanted.name, expect=wanted.expect, reason=wanted.reason):
        instead = "say what to change, for example --append TEXT"
        return writing.edit_by_hand(habitus, wanted, partial(edit_in_editor, habitus.settings.editor, instead=instead))
    texts = ("append", "prepend", "body", "find", "replacement", "delete")
    # Standard input can be read only once, so only the first `-` gets it.
    piped = next((name for name in texts if getattr(wanted, name) == "-"), "")
    read: dict[str, Any] = {piped: inputs.read_text("-")} if piped else {}
    return writing.edit(habitus, replace(wanted, **read))


def edit(context: typer.Context, wanted: SkillEdit, done: ChangedSkill) -> None:
    if not done.undo:
        output.say(f"{done.name} is unchanged (version {done.version}).")
    elif done.hides:
        output.say(f"Wrote {done.name}@{done.layer}, which now stands in front of {done.name}@{done.hides}.")
    else:
        output.say(f"{done.name} is now at version {done.version}.")


def enable(context: typer.Context, wanted: ManySkills, done: SwitchedSkills) -> None:
    for one in done.skills:
        output.say(f"{one.name} is switched on.")
        if one.state is not State.OK:
            output.say(f"It is still {one.state}: {one.reason}")


def disable(context: typer.Context, wanted: ManySkills, done: SwitchedSkills) -> None:
    for one in done.skills:
        output.say(f"{one.name} is switched off.")


def remove(context: typer.Context, wanted: SkillRemoval, done: RemovedSkills) -> None:
    for one in done.skills:
        output.say(f"Moved {one.name}@{one.layer} to the archive.")
        if one.uncovers:
            output.say(f"{one.name}@{one.uncovers} is in view again.")


def perform_restore(habitus: Habitus, wanted: ArchivedName, show_list: ShowList = False) -> RestoredSkill | ArchivePage:
    """Restore a skill, or list the archive if no name is given."""
    if show_list or wanted.name is None:
        return skills.list_archive(habitus, SkillArchive())
    return writing.restore(habitus, wanted)


def restore(context: typer.Context, wanted: ArchivedName, done: RestoredSkill | ArchivePage) -> None:
    if isinstance(done, RestoredSkill):
        output.say(f"{done.name}@{done.layer} is back.")
    else:
        _print_archive(done)


def _print_archive(done: ArchivePage) -> None:
    rows = [
        (f"#{a.id}", a.name, a.layer, f"v{a.version}", inputs.format_timestamp(a.archived_on), output.who(a.author))
        for a in done.archived
    ]
    columns = ("id", "name", "layer", "version", "archived", "by")
    output.rows_or("The archive is empty.", columns, rows, wide="by")


def rollback(context: typer.Context, wanted: EarlierVersion, done: ChangedSkill) -> None:
    output.say(f"{done.name} is back to version {wanted.to}, as version {done.version}.")
