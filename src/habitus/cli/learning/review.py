"""`habitus review …` and `habitus trust`: renders results, opens the editor, and asks before trusting skills.

`app/use_cases/review.py` does the work.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from habitus.app.library import trusting
from habitus.app.library.trusting import Dangers
from habitus.app.use_cases import review
from habitus.app.use_cases.review import (
    Approval,
    Approved,
    Decided,
    EditedProposal,
    ItemDiff,
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
from habitus.cli import completion, inputs, output
from habitus.cli.completion import AsJson, Wide, Yes
from habitus.cli.opening import open_habitus
from habitus.cli.use_case_commands import edit_in_editor, finish
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
        output.say(
            f"by {item.by}, {inputs.format_timestamp(subject.made_on)}: {subject.author.reason or 'no reason given'}"
        )
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
    """Print an approved item with its undo command."""
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
    """Edit the text of a proposal before you approve it, in your editor or from a file."""
    with open_habitus(context) as habitus:
        before, name = review.text_of(habitus, item)
        by_hand = edit_in_editor(habitus.settings.editor, before, name, instead="give the text with --file")
        # The edit is saved inside the block: if it is rejected, the editor's text is not lost.
        with by_hand if file is None else nullcontext(inputs.read_bytes(str(file))) as content:
            wanted = NewText(id=item, text=content.decode("utf-8", "replace"))
            finish(context, wanted, review.edit(habitus, wanted), _report_edited, as_json=as_json)


def _report_edited(context: typer.Context, wanted: NewText, done: EditedProposal) -> None:
    output.say(f"Proposal {wanted.id} is changed." if done.changed else "Nothing was changed.")


# The most skill names of one root in a list.
_SHOWN = 4


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
    """Trust imported or project skills as they are now. Later changes are trusted only if they are harmless."""
    with open_habitus(context) as habitus:
        if show_list:
            known = trusting.list_trusted(habitus)
            rows = [(t.root, _join_names(t.names), inputs.format_timestamp(t.trusted_on), t.trusted_by) for t in known]
            columns, empty = ("root", "what", "since", "by"), "Nothing is trusted yet."
            output.say_list(as_json, {"trusted": known}, columns, rows, wide="root", empty=empty)
            return
        found = trusting.trustable(habitus, target)
        if revoke:
            now = trusting.take_trust(habitus, found, target)
            said = f"No longer trusted: {', '.join(now.revoked)}." if now.revoked else "It was not trusted."
            output.say_done(context, as_json, now, said, undo=now.undo)
            return
        if not as_json:
            _print_dangers(trusting.dangers(habitus.scan, found))
        if not yes:
            _ask(found.count, as_json)
        now = trusting.give_trust(habitus, found, target)
        said = f"Trusted {output.count_of(found.count, 'skill')}."
        output.say_done(context, as_json, now, said, undo=now.undo)


def _join_names(names: Sequence[str]) -> str:
    """Join names and cut the list after the first few."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


def _ask(count: int, as_json: bool) -> None:
    """Ask whether to trust the skills; refuse if there is no terminal."""
    if as_json or not sys.stdin.isatty():
        raise typer.BadParameter("There is nobody to ask; say --yes once you have read them.")
    if not typer.confirm(f"Trust {output.count_of(count, 'skill')} as they are?"):
        raise typer.Abort


def _print_dangers(found: tuple[Dangers, ...]) -> None:
    """Print what each skill can do and what the scan found, before the person decides."""
    for root, skills in itertools.groupby(found, lambda skill: skill.root):
        output.say(root, style="bold")
        for skill in skills:
            output.say(f"  {skill.name}")
            for power in skill.powers:
                output.say(f"    {power}", style="yellow")
            for finding in skill.findings:
                output.say(f"    {finding}", style="red")
