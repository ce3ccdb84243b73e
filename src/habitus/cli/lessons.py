"""`habitus lessons …`: what is remembered: list it, add to it, correct it, take it back."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from habitus.app import Habitus, json_of
from habitus.app.growth import retracting
from habitus.app.library.undoing import of_lessons
from habitus.app.whose import memory_of
from habitus.cli import completion, moments, output
from habitus.cli.editor import edited
from habitus.cli.opening import opened
from habitus.cli.options import AllUsers, AsJson, Wide
from habitus.memory.cortex import Looked
from habitus.memory.model import Encoded, Engram, Kind
from habitus.memory.retention import utility
from habitus.memory.view_files import FoundPages

Id = Annotated[str, typer.Argument(help="The id of a lesson.", autocompletion=completion.lesson_ids)]
_KINDS = f"{', '.join(Kind)}."
KindOption = Annotated[str | None, typer.Option("--kind", "-k", help=_KINDS)]
ScopeOption = Annotated[str | None, typer.Option("--for", help="Whom it holds for: user, project, workspace, global.")]
Topic = Annotated[str | None, typer.Option("--topic", help="What it is about, in a word.")]

_OLDEST_SHOWN = 200


def list_lessons(
    context: typer.Context,
    kind: KindOption = None,
    scope: Annotated[str, typer.Option("--scope", help="today, week, all or self-play.")] = "all",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = _OLDEST_SHOWN,
    wide: Wide = False,
    all_users: AllUsers = False,
    as_json: AsJson = False,
) -> None:
    """What is remembered, the newest first."""
    with opened(context) as habitus:
        found = memory_of(habitus, all_users).list_lessons(scope, limit, kind=kind)
        data = {"lessons": [json_of.lesson(engram) for engram in found]}
        when = {"today": " today", "week": " this week", "self-play": " in self-play"}.get(scope, " yet")
        empty = f"Nothing was learned{when}. Add something: habitus lessons add 'Dates are day-first.'"
        rows = [(e.id, e.kind.value, _whom(e), e.trust.value, _counted(e), e.text) for e in found]
        columns = ("id", "kind", "for", "trust", "helped", "text")
        output.listed(as_json, data, columns, rows, wide="text", is_cut=not wide, empty=empty)


def _whom(engram: Engram) -> str:
    return f"{engram.scope.value} {engram.owner}".strip()


def _counted(engram: Engram) -> str:
    counters = engram.counters
    return f"{counters.helpful} of {counters.retrievals}" if counters.retrievals else "–"


def show(context: typer.Context, id: Id, all_users: AllUsers = False, as_json: AsJson = False) -> None:
    """One lesson: where it comes from, what it rests on, how it did, and how it came to be as it is."""
    with opened(context) as habitus:
        memory = memory_of(habitus, all_users)
        engram, history = memory.get(id), memory.history(id)
        if as_json:
            versions = [
                {"number": v.number, "text": v.engram.text, "state": v.engram.state, "at": v.cause.at, "by": v.cause.by}
                | {"reason": v.cause.reason}
                for v in history
            ]
            output.print_json(json_of.lesson(engram) | {"history": versions})
            return
        output.say(engram.text)
        output.say()
        for name, value in _facts(engram):
            output.say(f"{name:<11} {value}")
        output.say()
        for version in history:
            cause = version.cause
            output.say(f"version {version.number}  {moments.shown(cause.at)}  {cause.by}: {cause.reason}", style="dim")


def _facts(engram: Engram) -> list[tuple[str, str]]:
    counters, body, evidence = engram.counters, engram.body, engram.evidence
    facts = [
        ("kind", engram.kind.value),
        ("for", _whom(engram)),
        ("trust", engram.trust.value + (", verified" if engram.verified else "")),
        ("confidence", f"{engram.confidence:.2f}"),
        ("topic", engram.topic),
        ("source", engram.source),
        ("state", f"{engram.state.value}: {engram.reason}" if engram.reason else engram.state.value),
        ("seen", f"{output.counted(counters.frequency, 'time')}"),
        ("shown", f"{output.counted(counters.retrievals, 'time')}, helped {counters.helpful}"),
        ("utility", f"{utility(engram):.4f}"),
        ("trigger", body.trigger if body else ""),
        ("do", body.correct_pattern if body else ""),
        ("don't", body.anti_pattern if body else ""),
        ("domains", ", ".join(body.domains) if body else ""),
        ("rests on", "; ".join(filter(None, (evidence.error_signature, evidence.trace, evidence.detector)))),
        ("told", evidence.told),
    ]
    return [(name, value) for name, value in facts if value]


def add(
    context: typer.Context,
    text: Annotated[str, typer.Argument(help="One sentence.")],
    kind: Annotated[str, typer.Option("--kind", "-k", help=_KINDS)] = Kind.LESSON.value,
    scope: Annotated[str, typer.Option("--for", help="Whom it holds for: user, project, workspace, global.")] = "user",
    topic: Annotated[str, typer.Option("--topic", help="What it is about, in a word.")] = "",
    as_json: AsJson = False,
) -> None:
    """Remember something; what is known already is made stronger."""
    with opened(context) as habitus:
        with habitus.memory.noting() as made:
            encoded = habitus.memory.add(text, kind=kind, scope=scope, topic=topic, project=habitus.project)
        assert encoded.engram is not None
        lines = [f"{encoded.status.value.capitalize()}: {encoded.engram.id}  {encoded.engram.text}"]
        if encoded.redacted:
            lines.append(f"{output.counted(sum(encoded.redacted.values()), 'secret')} taken out.")
        lines += [f"Archived to make room: {gone.id}  {gone.text}" for gone in encoded.archived]
        output.done(context, as_json, _encoded(encoded), *lines, undo=_undo(made))


def _encoded(encoded: Encoded) -> dict[str, Any]:
    lesson = json_of.lesson(encoded.engram) if encoded.engram else None
    archived = [engram.id for engram in encoded.archived]
    return {"status": encoded.status, "lesson": lesson, "archived": archived, "redacted": encoded.redacted}


def edit(
    context: typer.Context,
    id: Annotated[
        str | None, typer.Argument(help="A lesson; without one, all pages.", autocompletion=completion.lesson_ids)
    ] = None,
    text: Annotated[str | None, typer.Option("--text", "-t", help="The new text.")] = None,
    kind: KindOption = None,
    scope: ScopeOption = None,
    topic: Topic = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask before the pages are applied.")] = False,
    all_users: AllUsers = False,
    as_json: AsJson = False,
) -> None:
    """Change one lesson, or without an id all of them in your editor; what was understood is shown first."""
    with opened(context) as habitus:
        if id is None:
            if any(given is not None for given in (text, kind, scope, topic)):
                raise typer.BadParameter("Say which lesson: habitus lessons edit ID --text …")
            _edit_pages(context, habitus, is_sure=yes, as_json=as_json)
            return
        memory = memory_of(habitus, all_users)
        before = memory.get(id)
        if text is None and kind is None and scope is None and topic is None:
            text = _edited_text(habitus, before)
        by, project = habitus.settings.signature, habitus.project
        with memory.noting() as made:
            after = memory.edit(id, by=by, text=text, kind=kind, scope=scope, topic=topic, project=project)
        said = f"Changed: {after.id}  {after.text}" if made else "Nothing was changed."
        output.done(context, as_json, {"changed": bool(made), "lesson": json_of.lesson(after)}, said, undo=_undo(made))


def _undo(made: Sequence[Engram]) -> tuple[str, ...]:
    """The command that takes back what was made of lessons, and nothing else."""
    return ("undo", *of_lessons(made)) if made else ()


def _edited_text(habitus: Habitus, engram: Engram) -> str:
    before = f"{engram.text}\n".encode()
    with edited(habitus.settings.editor, before, f"{engram.id}.txt", instead="give the text with --text") as content:
        return content.decode("utf-8", "replace")


def _edit_pages(context: typer.Context, habitus: Habitus, *, is_sure: bool, as_json: bool) -> None:
    habitus.refuse_if_read_only()
    pages = habitus.memory.page_texts()
    where = ", ".join(str(habitus.settings.home / "memory" / name) for name in pages)
    with edited(habitus.settings.editor, _bundle(pages), "memory.md", instead=f"edit {where}") as content:
        found = habitus.memory.understood(_unbundle(content.decode("utf-8", "replace")))
        assert found is not None
        if not found.edits:
            output.say("Nothing was changed.")
            return
        if not as_json:
            _print_understood(found)
        if not is_sure and not as_json and not typer.confirm("Apply this?", default=True):
            raise typer.Abort
        with habitus.memory.noting() as made:
            looked = habitus.memory.apply_texts(_unbundle(content.decode("utf-8", "replace")))
    counts = f"{len(looked.added)} added, {len(looked.changed)} changed, {len(looked.removed)} removed."
    output.done(context, as_json, _looked(looked), *looked.notes, counts, undo=_undo(made))


_DIVIDER = "<!-- page: {} -->"


def _bundle(pages: Mapping[str, str]) -> bytes:
    return "\n".join(f"{_DIVIDER.format(name)}\n{text}" for name, text in pages.items()).encode()


def _unbundle(text: str) -> dict[str, str]:
    parts = re.split(r"^<!-- page: (\w+\.md) -->[ \t]*\r?\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _print_understood(found: FoundPages) -> None:
    for line in found.edits.new:
        output.say(f"new      {line.kind.value:<8} {line.text}", style="green")
    for line in found.edits.changed:
        output.say(f"changed  {line.kind.value:<8} {line.text}")
    for line in found.edits.removed:
        output.say(f"removed  {line.kind.value:<8} {line.text}", style="red")
    for name, page in found.pages.items():
        for bad in page.bad:
            output.say(f"{name}: {bad.why}: {bad.raw.strip()}", style="yellow")


def _looked(looked: Looked) -> dict[str, Any]:
    changes = {"added": looked.added, "changed": looked.changed, "removed": looked.removed}
    return {name: [json_of.lesson(engram) for engram in engrams] for name, engrams in changes.items()} | {
        "notes": looked.notes
    }


def remove(
    context: typer.Context,
    ids: Annotated[list[str], typer.Argument(help="Lessons.", autocompletion=completion.lesson_ids)],
    all_users: AllUsers = False,
    as_json: AsJson = False,
) -> None:
    """Put lessons into the archive; they are not learned again by themselves."""
    with opened(context) as habitus:
        memory = memory_of(habitus, all_users)
        found = [memory.get(id) for id in ids]  # an unknown one is said before anything is done
        gone = [memory.remove(engram.id, by=habitus.settings.signature) for engram in found]
        lines = [f"Removed: {engram.id}  {engram.text}" for engram in gone]
        undo = ("lessons", "restore", *(engram.id for engram in gone))
        output.done(context, as_json, {"removed": [json_of.lesson(engram) for engram in gone]}, *lines, undo=undo)


def retract(
    context: typer.Context,
    turn: Annotated[str, typer.Option("--turn", help="What this turn taught.")] = "",
    session: Annotated[str, typer.Option("--session", help="What all turns of this session taught.")] = "",
    all_users: AllUsers = False,
    as_json: AsJson = False,
) -> None:
    """Withdraw all that one conversation taught; it goes to the archive and is not learned again by itself."""
    with opened(context) as habitus:
        gone = retracting.retract(habitus, turn=turn, session=session, all_users=all_users)
        data = {"retracted": [json_of.lesson(engram) for engram in gone.lessons], "undo": gone.undo}
        lines = [f"Withdrawn: {engram.id}  {engram.text}" for engram in gone.lessons]
        output.done(context, as_json, data, *lines, undo=gone.undo)


def restore(
    context: typer.Context,
    ids: Annotated[list[str], typer.Argument(help="Archived lessons.", autocompletion=completion.lesson_ids)],
    all_users: AllUsers = False,
    as_json: AsJson = False,
) -> None:
    """Bring lessons back from the archive."""
    with opened(context) as habitus:
        memory = memory_of(habitus, all_users)
        found = [memory.get(id) for id in ids]
        back = [memory.restore(engram.id, by=habitus.settings.signature) for engram in found]
        lines = [f"Restored: {engram.id}  {engram.text}" for engram in back]
        undo = ("lessons", "remove", *(engram.id for engram in back))
        output.done(context, as_json, {"restored": [json_of.lesson(engram) for engram in back]}, *lines, undo=undo)


def archive(context: typer.Context, all_users: AllUsers = False, as_json: AsJson = False) -> None:
    """What was removed or had to make room, the last first."""
    with opened(context) as habitus:
        found = memory_of(habitus, all_users).archived()
        data = {"archived": [json_of.lesson(engram) for engram in found]}
        rows = [(e.id, e.kind.value, e.reason, e.text) for e in found]
        output.listed(as_json, data, ("id", "kind", "why", "text"), rows, wide="text", empty="The archive is empty.")
