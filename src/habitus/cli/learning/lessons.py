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
from habitus.app.home import memory_of
from habitus.app.learning.curating import Curation
from habitus.app.library.undoing import of_lessons
from habitus.app.use_cases import identity as use_case
from habitus.app.use_cases import lessons
from habitus.app.use_cases.declaration import Nothing
from habitus.app.use_cases.identity import IdentityText, NewIdentity
from habitus.app.use_cases.lessons import (
    ChangedLesson,
    CurationRequest,
    KeptLesson,
    LessonArchive,
    LessonEdit,
    LessonList,
    LessonPage,
    ManyLessons,
    MovedLessons,
    NewLesson,
    OneLesson,
    Retraction,
    ShownLesson,
)
from habitus.cli import completion, inputs, output
from habitus.cli.completion import AllUsers, AsJson, Wide
from habitus.cli.opening import open_habitus
from habitus.cli.use_case_commands import edit_in_editor, finish
from habitus.memory.memory import Looked
from habitus.memory.model import Engram, Kind, Scope, utility
from habitus.memory.views import FoundPages


def list_lessons(context: typer.Context, wanted: LessonList, done: LessonPage, wide: Wide = False) -> None:
    when = {"today": " today", "week": " this week", "self-play": " in self-play"}.get(wanted.since, " yet")
    empty = f"Nothing was learned{when}. Add something: habitus lessons add 'Dates are day-first.'"
    rows = [(e.id, e.kind.value, _whom(e), e.trust.value, _count_uses(e), e.text) for e in done.lessons]
    columns = ("id", "kind", "for", "trust", "helped", "text")
    output.rows_or(empty, columns, rows, wide="text", is_cut=not wide)
    output.say_more(len(rows), done.total, done.next)


def list_archive(context: typer.Context, wanted: LessonArchive, done: LessonPage) -> None:
    rows = [(e.id, e.kind.value, e.reason, e.text) for e in done.lessons]
    output.rows_or("The archive is empty.", ("id", "kind", "why", "text"), rows, wide="text")
    output.say_more(len(rows), done.total, done.next)


def _whom(engram: Engram) -> str:
    """Return who a lesson applies to."""
    return f"{engram.scope.value} {engram.owner}".strip()


def _count_uses(engram: Engram) -> str:
    """Return how often a lesson helped of the times it was shown."""
    counters = engram.counters
    return f"{counters.helpful} of {counters.retrievals}" if counters.retrievals else "–"


def show(context: typer.Context, wanted: OneLesson, done: ShownLesson) -> None:
    output.say(done.lesson.text)
    output.say()
    for name, value in _facts(done.lesson):
        output.say(f"{name:<11} {value}")
    output.say()
    for version in done.history:
        cause = version.cause
        output.say(
            f"version {version.number}  {inputs.format_timestamp(cause.at)}  {cause.by}: {cause.reason}", style="dim"
        )


def _facts(engram: Engram) -> list[tuple[str, str]]:
    """Return the labelled properties of a lesson that have a value."""
    counters, body, evidence = engram.counters, engram.body, engram.evidence
    facts = [
        ("kind", engram.kind.value),
        ("for", _whom(engram)),
        ("trust", engram.trust.value + (", verified" if engram.verified else "")),
        ("confidence", f"{engram.confidence:.2f}"),
        ("topic", engram.topic),
        ("source", engram.source),
        ("state", f"{engram.state.value}: {engram.reason}" if engram.reason else engram.state.value),
        ("seen", f"{output.count_of(counters.frequency, 'time')}"),
        ("shown", f"{output.count_of(counters.retrievals, 'time')}, helped {counters.helpful}"),
        ("utility", f"{utility(engram):.4f}"),
        ("trigger", body.trigger if body else ""),
        ("do", body.correct_pattern if body else ""),
        ("don't", body.anti_pattern if body else ""),
        ("domains", ", ".join(body.domains) if body else ""),
        ("rests on", "; ".join(filter(None, (evidence.error_signature, evidence.trace, evidence.detector)))),
        ("told", evidence.told),
    ]
    return [(name, value) for name, value in facts if value]


def add(context: typer.Context, wanted: NewLesson, done: KeptLesson) -> None:
    output.say(f"{done.status.value.capitalize()}: {done.lesson.id}  {done.lesson.text}")
    if done.redacted:
        output.say(f"{output.count_of(sum(done.redacted.values()), 'secret')} taken out.")
    for gone in done.archived:
        output.say(f"Archived to make room: {gone.id}  {gone.text}")


def edit(
    context: typer.Context,
    id: Annotated[
        str | None, typer.Argument(help="A lesson; without one, all pages.", autocompletion=completion.lesson_ids)
    ] = None,
    text: Annotated[str | None, typer.Option("--text", "-t", help="The new text.")] = None,
    kind: Annotated[Kind | None, typer.Option("--kind", "-k", help=f"{', '.join(Kind)}.")] = None,
    scope: Annotated[Scope | None, typer.Option("--for", help="Who it applies to.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="What it is about, in a word.")] = None,
    expect: Annotated[str | None, typer.Option("--expect", help="Refuse unless it is at this version.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask before the pages are applied.")] = False,
    all_users: AllUsers = False,
    as_json: AsJson = False,
) -> None:
    """Change one lesson, or without an id all of them in your editor; the recognised edits are shown first."""
    with open_habitus(context) as habitus:
        is_given = any(inputs is not None for inputs in (text, kind, scope, topic))
        if id is None:
            if is_given:
                raise typer.BadParameter("Say which lesson: habitus lessons edit ID --text …")
            _edit_pages(context, habitus, is_sure=yes, as_json=as_json)
            return
        if not is_given:
            text = _edited_text(habitus, memory_of(habitus, all_users).get(id))
        wanted = LessonEdit(id=id, text=text, kind=kind, scope=scope, topic=topic, expect=expect, all_users=all_users)
        finish(context, wanted, lessons.edit(habitus, wanted), _say_changed, as_json=as_json)


def _say_changed(context: typer.Context, wanted: LessonEdit, done: ChangedLesson) -> None:
    output.say(f"Changed: {done.lesson.id}  {done.lesson.text}" if done.undo else "Nothing was changed.")


def _edited_text(habitus: Habitus, engram: Engram) -> str:
    """Return a lesson's text as the person edited it."""
    before = f"{engram.text}\n".encode()
    with edit_in_editor(
        habitus.settings.editor, before, f"{engram.id}.txt", instead="give the text with --text"
    ) as content:
        return content.decode("utf-8", "replace")


def _edit_pages(context: typer.Context, habitus: Habitus, *, is_sure: bool, as_json: bool) -> None:
    """Open all memory pages in the editor and apply the edits after confirmation."""
    habitus.refuse_if_read_only()
    pages = habitus.memory.page_texts()
    where = ", ".join(str(habitus.settings.home / "memory" / name) for name in pages)
    with edit_in_editor(habitus.settings.editor, _bundle(pages), "memory.md", instead=f"edit {where}") as content:
        found = habitus.memory.understood(_unbundle(content.decode("utf-8", "replace")))
        assert found is not None
        if not found.edits:
            output.say_done(context, as_json, _look_as_json(Looked()), "Nothing was changed.", undo=())
            return
        if not as_json:
            _print_understood(found)
        if not is_sure and not as_json and not typer.confirm("Apply this?", default=True):
            raise typer.Abort
        # The recorded lessons make the undo command precise.
        with habitus.memory.noting() as made:
            looked = habitus.memory.apply_texts(_unbundle(content.decode("utf-8", "replace")))
    counts = f"{len(looked.added)} added, {len(looked.changed)} changed, {len(looked.removed)} removed."
    undo = ("undo", *of_lessons(made)) if made else ()
    output.say_done(context, as_json, _look_as_json(looked), *looked.notes, counts, undo=undo)


# An HTML comment: invisible when rendered, and unlikely in a lesson.
_DIVIDER = "<!-- page: {} -->"


def _bundle(pages: Mapping[str, str]) -> bytes:
    """Join the pages into one text with a divider before each."""
    return "\n".join(f"{_DIVIDER.format(name)}\n{text}" for name, text in pages.items()).encode()


def _unbundle(text: str) -> dict[str, str]:
    """Split an edited text into pages by the dividers."""
    parts = re.split(r"^<!-- page: (\w+\.md) -->[ \t]*\r?\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _print_understood(found: FoundPages) -> None:
    """Print the edits that were recognised and the lines that were not."""
    for line in found.edits.new:
        output.say(f"new      {line.kind.value:<8} {line.text}", style="green")
    for line in found.edits.changed:
        output.say(f"changed  {line.kind.value:<8} {line.text}")
    for line in found.edits.removed:
        output.say(f"removed  {line.kind.value:<8} {line.text}", style="red")
    for name, page in found.pages.items():
        for bad in page.bad:
            output.say(f"{name}: {bad.why}: {bad.raw.strip()}", style="yellow")


def _look_as_json(looked: Looked) -> dict[str, Any]:
    """Return the applied page edits as JSON."""
    changes = {"added": looked.added, "changed": looked.changed, "removed": looked.removed}
    return {name: [engram.as_json() for engram in engrams] for name, engrams in changes.items()} | {
        "notes": looked.notes
    }


def remove(context: typer.Context, wanted: ManyLessons, done: MovedLessons) -> None:
    _say_each("Removed", done)


def restore(context: typer.Context, wanted: ManyLessons, done: MovedLessons) -> None:
    _say_each("Restored", done)


def retract(context: typer.Context, wanted: Retraction, done: MovedLessons) -> None:
    _say_each("Withdrawn", done)


def _say_each(what: str, done: MovedLessons) -> None:
    """Print one line per moved lesson."""
    for engram in done.lessons:
        output.say(f"{what}: {engram.id}  {engram.text}")


def identity(
    context: typer.Context,
    edit: Annotated[bool, typer.Option("--edit", "-e", help="Change it in your editor.")] = False,
    write: Annotated[str | None, typer.Option("--set", help="Make this the text; '-' reads standard input.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show or change who the assistant is and how it speaks: the first lines of every prompt. Keeps a history."""
    if edit and write is not None:
        raise typer.BadParameter("Give --edit or --set, not both.")
    with open_habitus(context) as habitus:
        now = use_case.show(habitus, Nothing())
        if edit:
            with edit_in_editor(
                habitus.settings.editor, now.text.encode(), "identity.md", instead="use --set -"
            ) as after:
                now = use_case.change(habitus, NewIdentity(text=after.decode()))
        elif write is not None:
            now = use_case.change(habitus, NewIdentity(text=sys.stdin.read() if write == "-" else write))
        finish(context, None, now, _say_text, as_json=as_json)


def _say_text(context: typer.Context, wanted: object, done: IdentityText) -> None:
    output.say(done.text)


def curate(context: typer.Context, wanted: CurationRequest, done: Curation) -> None:
    rows = [(step.action.value, step.item, step.reason, step.text) for step in done.steps]
    output.rows_or("Nothing has aged.", ("what", "item", "why", "text"), rows, wide="text")
    if done.spent:
        output.say(f"{done.spent}.")
    if done.steps and not done.is_done:
        output.say("Nothing was changed; --apply does it.")
    elif lessons := [step.item for step in done.steps if step.undo[:1] == ("lessons",)]:
        output.say_undo(context, "lessons", "restore", *lessons)
    for step in done.steps if done.is_done else ():
        if step.undo[:1] == ("tools",):
            output.say_undo(context, *step.undo)
