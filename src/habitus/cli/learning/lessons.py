"""`habitus lessons …`, `identity` and `curate`: renders results and opens the editor.

`app/use_cases/lessons.py` does most of the work.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from habitus.app import Habitus
from habitus.app.home import get_user_or_all_memory, refuse_if_read_only
from habitus.app.learning.curating import CurationReport
from habitus.app.library.undoing import build_lesson_undo_targets
from habitus.app.use_cases import identity as use_case
from habitus.app.use_cases import lessons
from habitus.cli import completion, inputs, output
from habitus.cli.opening import open_habitus
from habitus.cli.use_case_commands import edit_in_editor, print_use_case_result
from habitus.journal.usage import RequestCounts
from habitus.memory.cortex import PageSyncResult
from habitus.memory.model import Engram, LessonKind, LessonScope, compute_lesson_utility
from habitus.memory.page_files import PagesWithEdits


def print_result_of_list_lessons(
    context: typer.Context, result: lessons.LessonPage, since: str, wide: completion.WideOption = False
) -> None:
    when = {"today": " today", "week": " this week", "self-play": " in self-play"}.get(since, " yet")
    empty = f"No lessons{when}. Add one: habitus lessons add 'Dates are day-first.'"
    rows = [(e.id, e.kind.value, _format_lesson_scope(e), e.trust.value, e.text) for e in result.lessons]
    columns = ("id", "kind", "for", "trust", "text")
    output.print_table_or_message(empty, columns, rows, wide="text", is_cut=not wide)
    output.print_paging_hint(len(rows), result.total, result.next)


def print_result_of_list_archived_lessons(context: typer.Context, result: lessons.LessonPage) -> None:
    rows = [(e.id, e.kind.value, e.reason, e.text) for e in result.lessons]
    output.print_table_or_message("The archive is empty.", ("id", "kind", "why", "text"), rows, wide="text")
    output.print_paging_hint(len(rows), result.total, result.next)


def _format_lesson_scope(engram: Engram) -> str:
    """Return who a lesson applies to."""
    return f"{engram.scope.value} {engram.owner}".strip()


def print_result_of_show_lesson(context: typer.Context, result: lessons.LessonDetails) -> None:
    output.print_line(result.lesson.text)
    output.print_line()
    for name, value in _list_labelled_lesson_properties(result.lesson, result.shown):
        output.print_line(f"{name:<11} {value}")
    output.print_line()
    for version in result.history:
        cause = version.cause
        output.print_line(
            f"version {version.number}  {inputs.format_timestamp(cause.at)}  {cause.by}: {cause.reason}", style="dim"
        )


def _list_labelled_lesson_properties(engram: Engram, shown: RequestCounts) -> list[tuple[str, str]]:
    """Return the labelled properties of a lesson that have a value."""
    body, evidence = engram.body, engram.evidence
    went = f"{shown.succeeded} succeeded, {shown.failed} failed, {shown.no_feedback} without feedback"
    facts = [
        ("kind", engram.kind.value),
        ("for", _format_lesson_scope(engram)),
        ("trust", engram.trust.value + (", verified" if engram.verified else "")),
        ("confidence", f"{engram.confidence:.2f}"),
        ("topic", engram.topic),
        ("source", engram.source),
        ("state", f"{engram.state.value}: {engram.reason}" if engram.reason else engram.state.value),
        ("shown for", f"{output.format_quantity(shown.total, 'request')}: {went}" if shown.total else ""),
        ("utility", f"{compute_lesson_utility(engram):.4f}"),
        ("trigger", body.trigger if body else ""),
        ("do", body.correct_pattern if body else ""),
        ("don't", body.anti_pattern if body else ""),
        ("domains", ", ".join(body.domains) if body else ""),
        ("evidence", "; ".join(filter(None, (evidence.error_signature, evidence.trace, evidence.detector)))),
        ("source says", evidence.told),
    ]
    return [(name, value) for name, value in facts if value]


def print_result_of_add_lesson(context: typer.Context, result: lessons.AddLessonResult) -> None:
    output.print_line(f"{result.status.value.capitalize()}: {result.lesson.id}  {result.lesson.text}")
    if result.redacted:
        output.print_line(f"{output.format_quantity(sum(result.redacted.values()), 'secret')} removed.")
    for gone in result.archived:
        output.print_line(f"Archived because of the limit: {gone.id}  {gone.text}")


def edit_lessons(
    context: typer.Context,
    id: Annotated[
        str | None,
        typer.Argument(help="A lesson; without one, all pages.", autocompletion=completion.complete_lesson_ids),
    ] = None,
    text: Annotated[str | None, typer.Option("--text", "-t", help="The new text.")] = None,
    kind: Annotated[LessonKind | None, typer.Option("--kind", "-k", help=f"{', '.join(LessonKind)}.")] = None,
    scope: Annotated[LessonScope | None, typer.Option("--for", help="Whom it applies to.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Its topic, in one word.")] = None,
    expect: Annotated[str | None, typer.Option("--expect", help="Fail unless this is its current version.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask before the pages are applied.")] = False,
    all_users: completion.AllUsersOption = False,
    as_json: completion.JsonOption = False,
) -> None:
    """Change one lesson, or without an id all of them in your editor; the recognised edits are shown first."""
    with open_habitus(context) as habitus:
        is_given = any(inputs is not None for inputs in (text, kind, scope, topic))
        if id is None:
            if is_given:
                raise typer.BadParameter("Name the lesson: habitus lessons edit ID --text …")
            _edit_and_apply_memory_pages(context, habitus, is_sure=yes, as_json=as_json)
            return
        if not is_given:
            text = _edit_lesson_text_in_editor(habitus, get_user_or_all_memory(habitus, all_users).get(id))
        done = lessons.edit_lesson(
            habitus, id=id, text=text, kind=kind, scope=scope, topic=topic, expect=expect, all_users=all_users
        )
        print_use_case_result(context, done, _print_changed_lesson, as_json=as_json)


def _print_changed_lesson(context: typer.Context, result: lessons.EditLessonResult) -> None:
    output.print_line(f"Changed: {result.lesson.id}  {result.lesson.text}" if result.undo else "Nothing was changed.")


def _edit_lesson_text_in_editor(habitus: Habitus, engram: Engram) -> str:
    """Return a lesson's text as the person edited it."""
    before = f"{engram.text}\n".encode()
    with edit_in_editor(
        habitus.settings.editor, before, f"{engram.id}.txt", instead="give the text with --text"
    ) as content:
        return content.decode("utf-8", "replace")


def _edit_and_apply_memory_pages(context: typer.Context, habitus: Habitus, *, is_sure: bool, as_json: bool) -> None:
    """Open all memory pages in the editor and apply the edits after confirmation."""
    refuse_if_read_only(habitus)
    pages = habitus.memory.get_page_texts()
    where = ", ".join(str(habitus.settings.home / "memory" / name) for name in pages)
    with edit_in_editor(
        habitus.settings.editor, _join_memory_pages(pages), "memory.md", instead=f"edit {where}"
    ) as content:
        found = habitus.memory.preview_page_texts(_split_memory_pages(content.decode("utf-8", "replace")))
        assert found is not None
        if not found.edits:
            output.print_command_result(
                context, as_json, _convert_page_edits_to_json(PageSyncResult()), "Nothing was changed.", undo=()
            )
            return
        if not as_json:
            _print_recognised_edits(found)
        if not is_sure and not as_json and not typer.confirm("Apply this?", default=True):
            raise typer.Abort
        # The recorded lessons make the undo command precise.
        with habitus.memory.collect_changes() as made:
            looked = habitus.memory.apply_page_texts(_split_memory_pages(content.decode("utf-8", "replace")))
    counts = f"{len(looked.added)} added, {len(looked.changed)} changed, {len(looked.removed)} removed."
    undo = ("undo", *build_lesson_undo_targets(made)) if made else ()
    output.print_command_result(context, as_json, _convert_page_edits_to_json(looked), *looked.notes, counts, undo=undo)


# An HTML comment: invisible when rendered, and unlikely in a lesson.
_PAGE_DIVIDER = "<!-- page: {} -->"


def _join_memory_pages(pages: Mapping[str, str]) -> bytes:
    """Join the pages into one text with a divider before each."""
    return "\n".join(f"{_PAGE_DIVIDER.format(name)}\n{text}" for name, text in pages.items()).encode()


def _split_memory_pages(text: str) -> dict[str, str]:
    """Split an edited text into pages by the dividers."""
    parts = re.split(r"^<!-- page: (\w+\.md) -->[ \t]*\r?\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _print_recognised_edits(found: PagesWithEdits) -> None:
    """Print the edits that were recognised and the lines that were not."""
    for line in found.edits.new:
        output.print_line(f"new      {line.kind.value:<8} {line.text}", style="green")
    for line in found.edits.changed:
        output.print_line(f"changed  {line.kind.value:<8} {line.text}")
    for line in found.edits.removed:
        output.print_line(f"removed  {line.kind.value:<8} {line.text}", style="red")
    for name, page in found.pages.items():
        for bad in page.bad:
            output.print_line(f"{name}: {bad.reason}: {bad.raw.strip()}", style="yellow")


def _convert_page_edits_to_json(looked: PageSyncResult) -> dict[str, Any]:
    """Return the applied page edits as JSON."""
    changes = {"added": looked.added, "changed": looked.changed, "removed": looked.removed}
    return {name: [engram.as_json() for engram in engrams] for name, engrams in changes.items()} | {
        "notes": looked.notes
    }


def print_result_of_remove_lessons(context: typer.Context, result: lessons.ArchiveOrRestoreLessonsResult) -> None:
    _print_removed_or_restored_lessons("Removed", result)


def print_result_of_restore_lessons(context: typer.Context, result: lessons.ArchiveOrRestoreLessonsResult) -> None:
    _print_removed_or_restored_lessons("Restored", result)


def print_result_of_retract_lessons(context: typer.Context, result: lessons.ArchiveOrRestoreLessonsResult) -> None:
    _print_removed_or_restored_lessons("Retracted", result)


def _print_removed_or_restored_lessons(what: str, result: lessons.ArchiveOrRestoreLessonsResult) -> None:
    """Print one line per moved lesson."""
    for engram in result.lessons:
        output.print_line(f"{what}: {engram.id}  {engram.text}")


def show_or_edit_identity(
    context: typer.Context,
    edit: Annotated[bool, typer.Option("--edit", "-e", help="Change it in your editor.")] = False,
    write: Annotated[str | None, typer.Option("--set", help="The new text; '-' reads standard input.")] = None,
    as_json: completion.JsonOption = False,
) -> None:
    """Show or change who the assistant is and how it speaks: the first lines of every prompt. Keeps a history."""
    if edit and write is not None:
        raise typer.BadParameter("Give --edit or --set, not both.")
    with open_habitus(context) as habitus:
        now = use_case.show_identity(habitus)
        if edit:
            with edit_in_editor(
                habitus.settings.editor, now.text.encode(), "identity.md", instead="use --set -"
            ) as after:
                now = use_case.change_identity(habitus, text=after.decode())
        elif write is not None:
            now = use_case.change_identity(habitus, text=sys.stdin.read() if write == "-" else write)
        print_use_case_result(context, now, _print_identity_text, as_json=as_json)


def _print_identity_text(context: typer.Context, result: use_case.AssistantIdentityDetails) -> None:
    output.print_line(result.text)


def print_result_of_curate(context: typer.Context, result: CurationReport) -> None:
    rows = [(step.action.value, step.item, step.reason, step.text) for step in result.steps]
    output.print_table_or_message("Nothing to curate.", ("what", "item", "why", "text"), rows, wide="text")
    if result.spent:
        output.print_line(f"{result.spent}.")
    if result.steps and not result.is_done:
        output.print_line("Nothing was changed; add --apply to do it.")
    elif lessons := [step.item for step in result.steps if step.undo[:1] == ("lessons",)]:
        output.print_and_register_undo_command(context, "lessons", "restore", *lessons)
    for step in result.steps if result.is_done else ():
        if step.undo[:1] == ("tools",):
            output.print_and_register_undo_command(context, *step.undo)
