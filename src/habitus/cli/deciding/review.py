"""`habitus review …`: the words of its commands, and the editor. `app/use_cases/review.py` does the work."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from habitus.app.use_cases import review
from habitus.app.use_cases.review import (
    Approval,
    Approved,
    Decided,
    ItemDiff,
    Mended,
    NewText,
    OneItem,
    Rejected,
    Rejection,
    Reopened,
    Reopening,
    ShownItem,
    WaitingList,
    WaitingPage,
)
from habitus.cli import inputs, output
from habitus.cli.completion import AsJson, Wide
from habitus.cli.declared import edit_in_editor, finish
from habitus.cli.opening import open_habitus
from habitus.memory.model import Engram
from habitus.skills.proposals import TRIAL_COLUMNS


def list_waiting(context: typer.Context, wanted: WaitingList, done: WaitingPage, wide: Wide = False) -> None:
    rows = [(one.id, one.state, one.action, one.what, one.by, "; ".join(one.reasons)) for one in done.proposals]
    columns = ("id", "state", "action", "what", "by", "waits because")
    output.rows_or("Nothing waits for you.", columns, rows, wide="waits because", is_cut=not wide)
    output.say_more(len(rows), done.total, done.next)


def show(context: typer.Context, wanted: OneItem, done: ShownItem) -> None:
    item, subject = done.item, done.item.subject
    if isinstance(subject, Engram):
        output.say(f"Lesson {subject.id}: {subject.kind.value}, for {subject.scope.value} {subject.owner}".rstrip())
        output.say(f"by {item.by} ({subject.source}), {item.state}")
    else:
        output.say(f"Proposal {item.id}: {item.action} {item.what} ({item.state})")
        output.say(f"by {item.by}, {inputs.show_moment(subject.made_on)}: {subject.author.reason or 'no reason given'}")
        if subject.decided_by:
            output.say(f"{item.state} by {subject.decided_by}: {subject.decision or 'no reason given'}")
    for reason in filter(None, item.reasons):
        output.say(f"waits because: {reason}", style="yellow")
    output.say()
    if not isinstance(subject, Engram) and subject.trial:
        output.table(TRIAL_COLUMNS, [[row.get(name, "") for name in TRIAL_COLUMNS] for row in subject.trial])
        output.say()
    output.say(done.diff.rstrip("\n") if isinstance(subject, Engram) else done.diff)


def diff(context: typer.Context, wanted: OneItem, done: ItemDiff) -> None:
    output.write(output.clean(done.diff))


def approve(context: typer.Context, wanted: Approval, done: Approved) -> None:
    for one in done.approved:
        _say_approved(context, one)


def _say_approved(context: typer.Context, done: Decided) -> None:
    item = done.item
    if isinstance(item.subject, Engram):
        output.say(f"Approved: {item.action} {item.id}  {item.what}")
    else:
        became = f", now version {done.version}." if done.version else "."
        output.say(f"Approved: {item.action} {item.what}" + ("; that host does it." if done.due_on else became))
    output.say_undo(context, *done.undo)


def reject(context: typer.Context, wanted: Rejection, done: Rejected) -> None:
    for one in done.rejected:
        subject = one.item.subject
        output.say(
            f"Turned down: {one.item.action} {subject.id if isinstance(subject, Engram) else subject.change.name}."
        )
        output.say_undo(context, *one.undo)


def reopen(context: typer.Context, wanted: Reopening, done: Reopened) -> None:
    for item in done.reopened:
        output.say(f"It waits again: {item.action} {item.what}.")


def edit(
    context: typer.Context,
    item: Annotated[str, typer.Argument(help="The number of a proposal, or the id of a lesson.")],
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Take the new SKILL.md from this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Mend the text of a proposal before you approve it, in your editor or from a file."""
    with open_habitus(context) as habitus:
        before, name = review.text_of(habitus, item)
        by_hand = edit_in_editor(habitus.settings.editor, before, name, instead="give the text with --file")
        with by_hand if file is None else nullcontext(inputs.read_bytes(str(file))) as content:
            wanted = NewText(id=item, text=content.decode("utf-8", "replace"))
            finish(context, wanted, review.edit(habitus, wanted), _say_mended, as_json=as_json)


def _say_mended(context: typer.Context, wanted: NewText, done: Mended) -> None:
    output.say(f"Proposal {wanted.id} is changed." if done.changed else "Nothing was changed.")
