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
from habitus.cli import inputs, output
from habitus.cli.use_case_commands import edit_in_editor
from habitus.skills.model import SkillState

ShowListOption = Annotated[bool, typer.Option("--list", help="Show what can be restored.")]


def print_result_of_create_skill(
    context: typer.Context, result: writing.CreateSkillResult, request: writing.CreateSkillRequest
) -> None:
    where = f": {result.directory}/SKILL.md" if result.directory else ""
    output.print_line(f"Wrote {result.name} (version {result.version}){where}")
    if request.body is None:
        output.print_line(f"Fill in the steps: {output.format_command(context, 'skills', 'edit', result.name)}")
    if request.cli:
        output.print_line(f"Try it: {output.format_command(context, 'skills', 'run', result.name)} -- greet you")


def perform_edit_skill(habitus: Habitus, request: writing.EditSkillRequest) -> writing.ChangeSkillResult:
    """Apply the options, or open the whole file in the editor if there are none; `-` reads standard input."""
    # Equal to an edit without options: nothing was asked for but the editor.
    if request == writing.EditSkillRequest(name=request.name, expect=request.expect, reason=request.reason):
        instead = "say what to change, for example --append TEXT"
        return writing.edit_skill_in_editor(
            habitus, request, partial(edit_in_editor, habitus.settings.editor, instead=instead)
        )
    texts = ("append", "prepend", "body", "find", "replacement", "delete")
    # Standard input can be read only once, so only the first `-` gets it.
    piped = next((name for name in texts if getattr(request, name) == "-"), "")
    read: dict[str, Any] = {piped: inputs.read_text_of_file_or_stdin("-")} if piped else {}
    return writing.edit_skill(habitus, replace(request, **read))


def print_result_of_edit_skill(context: typer.Context, result: writing.ChangeSkillResult) -> None:
    if not result.undo:
        output.print_line(f"{result.name} is unchanged (version {result.version}).")
    elif result.hides:
        output.print_line(f"Wrote {result.name}@{result.layer}, which now overrides {result.name}@{result.hides}.")
    else:
        output.print_line(f"{result.name} is now at version {result.version}.")


def print_result_of_enable_skills(context: typer.Context, result: writing.EnableOrDisableSkillsResult) -> None:
    for one in result.skills:
        output.print_line(f"{one.name} is enabled.")
        if one.state is not SkillState.OK:
            output.print_line(f"It is still {one.state}: {one.reason}")


def print_result_of_disable_skills(context: typer.Context, result: writing.EnableOrDisableSkillsResult) -> None:
    for one in result.skills:
        output.print_line(f"{one.name} is disabled.")


def print_result_of_remove_skills(context: typer.Context, result: writing.RemoveSkillsResult) -> None:
    for one in result.skills:
        output.print_line(f"Moved {one.name}@{one.layer} to the archive.")
        if one.uncovers:
            output.print_line(f"{one.name}@{one.uncovers} is visible again.")


def perform_restore_skill(
    habitus: Habitus, name: str | None, new_name: str | None, show_list: ShowListOption = False
) -> writing.RestoreSkillResult | skills.ArchivedSkillPage:
    """Restore a skill, or list the archive if no name is given."""
    if show_list or name is None:
        return skills.list_archived_skills(habitus)
    return writing.restore_skill(habitus, name=name, new_name=new_name)


def print_result_of_restore_skill(
    context: typer.Context, result: writing.RestoreSkillResult | skills.ArchivedSkillPage
) -> None:
    if isinstance(result, writing.RestoreSkillResult):
        output.print_line(f"{result.name}@{result.layer} was restored.")
    else:
        _print_archived_skills(result)


def _print_archived_skills(result: skills.ArchivedSkillPage) -> None:
    rows = [
        (
            f"#{a.id}",
            a.name,
            a.layer,
            f"v{a.version}",
            inputs.format_timestamp(a.archived_on),
            output.format_author_and_reason(a.author),
        )
        for a in result.archived
    ]
    columns = ("id", "name", "layer", "version", "archived", "by")
    output.print_table_or_message("The archive is empty.", columns, rows, wide="by")


def print_result_of_rollback_skill(context: typer.Context, result: writing.ChangeSkillResult, to: int) -> None:
    output.print_line(f"{result.name} was rolled back to version {to}, saved as version {result.version}.")
