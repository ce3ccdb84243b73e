"""`habitus review …`: what waits for a person: look at it, approve it, turn it down, or mend it first."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from habitus.app import json_of
from habitus.app.library.writing import ByHand
from habitus.app.review import inbox
from habitus.app.review.inbox import Decided, InboxItem
from habitus.cli import given, moments, output
from habitus.cli.editor import edited
from habitus.cli.opening import opened
from habitus.cli.options import AllUsers, AsJson, Wide
from habitus.memory.model import Engram
from habitus.skills.review import Proposal

Item = Annotated[str, typer.Argument(help="The number of a proposal, or the id of a lesson.")]
Items = Annotated[list[str], typer.Argument(help="Numbers of proposals, ids of lessons.")]


def list_waiting(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Decided ones too.")] = False,
    all_users: AllUsers = False,
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """What waits, and why: changes of skills by number, lessons by id."""
    with opened(context) as habitus:
        found = inbox.waiting(habitus, with_decided=everything, all_users=all_users)
        data = {"proposals": [json_of.waiting(item) for item in found]}
        rows = [(item.id, item.state, item.action, item.what, item.by, "; ".join(item.reasons)) for item in found]
        columns = ("id", "state", "action", "what", "by", "waits because")
        output.listed(
            as_json, data, columns, rows, wide="waits because", is_cut=not wide, empty="Nothing waits for you."
        )


def show(context: typer.Context, item: Item, all_users: AllUsers = False, as_json: AsJson = False) -> None:
    """One proposal: who wants what, why it waits, and the text."""
    with opened(context) as habitus:
        found = inbox.get(habitus, item, all_users=all_users)
        diff = inbox.diff(habitus.review, found)
        if as_json:
            output.print_json(json_of.waiting(found) | {"diff": diff})
            return
        match found.subject:
            case Proposal() as proposal:
                _print_proposal(found, proposal)
            case Engram() as lesson:
                output.say(f"Lesson {lesson.id}: {lesson.kind.value}, for {lesson.scope.value} {lesson.owner}".rstrip())
                output.say(f"by {found.by} ({lesson.source}), {found.state}")
        for reason in filter(None, found.reasons):
            output.say(f"waits because: {reason}", style="yellow")
        output.say()
        output.say(diff.rstrip("\n") if isinstance(found.subject, Engram) else diff)


def _print_proposal(found: InboxItem, proposal: Proposal) -> None:
    output.say(f"Proposal {found.id}: {found.action} {found.what} ({found.state})")
    output.say(f"by {found.by}, {moments.shown(proposal.made_on)}: {proposal.author.reason or 'no reason given'}")
    if proposal.decided_by:
        output.say(f"{found.state} by {proposal.decided_by}: {proposal.decision or 'no reason given'}")


def diff(context: typer.Context, item: Item, all_users: AllUsers = False, as_json: AsJson = False) -> None:
    """What approving it would change."""
    with opened(context) as habitus:
        found = inbox.get(habitus, item, all_users=all_users)
        text = inbox.diff(habitus.review, found)
        if as_json:
            output.print_json({"id": found.subject.id, "diff": text})
        else:
            output.write(output.clean(text))


def approve(context: typer.Context, items: Items, all_users: AllUsers = False, as_json: AsJson = False) -> None:
    """Carry proposals out, and let lessons in."""
    with opened(context) as habitus:
        told = []
        for done in inbox.approve(habitus, items, all_users=all_users):
            told.append(json_of.waiting(done.item) | _version(done))
            if not as_json:
                _print_approved(context, done)
        if as_json:
            output.print_json({"approved": told})


def _print_approved(context: typer.Context, done: Decided) -> None:
    item = done.item
    if isinstance(item.subject, Engram):
        output.say(f"Approved: {item.action} {item.id}  {item.what}")
    else:
        became = f", now version {done.version}." if done.version else "."
        output.say(f"Approved: {item.action} {item.what}" + ("; that host does it." if done.due_on else became))
    output.say_undo(context, *done.undo)


def _version(done: Decided) -> dict[str, int | None]:
    return {"version": done.version} if isinstance(done.item.subject, Proposal) else {}


def reject(
    context: typer.Context,
    items: Items,
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why; the agent sees it.")] = "",
    all_users: AllUsers = False,
    as_json: AsJson = False,
) -> None:
    """Turn proposals down."""
    with opened(context) as habitus:
        done = []
        for item in items:
            decided = inbox.reject(habitus, item, reason, all_users=all_users)
            found = decided.item
            done.append(json_of.waiting(found))
            if not as_json:
                name = found.id if isinstance(found.subject, Engram) else found.subject.change.name
                output.say(f"Turned down: {found.action} {name}.")
                output.say_undo(context, *decided.undo)
        if as_json:
            output.print_json({"rejected": done})


def reopen(context: typer.Context, items: Items, as_json: AsJson = False) -> None:
    """Let changes wait for you again that were decided; what approving did is taken back."""
    with opened(context) as habitus:
        again = [inbox.reopen(habitus, item) for item in items]
        said = [f"It waits again: {item.action} {item.what}." for item in again]
        output.done(context, as_json, {"reopened": [json_of.waiting(item) for item in again]}, *said)


def edit(
    context: typer.Context,
    item: Item,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Take the new SKILL.md from this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Mend the text of a proposal before you approve it, in your editor or from a file."""
    with opened(context) as habitus:
        by_hand: ByHand = partial(edited, habitus.settings.editor, instead="give the text with --file")
        if file is not None:
            content = given.read_bytes(str(file))
            by_hand = lambda before, name: nullcontext(content)  # noqa: E731  # what an editor would do
        mended, is_changed = inbox.mend(habitus, item, by_hand)
        said = f"Proposal {item} is changed." if is_changed else "Nothing was changed."
        output.done(context, as_json, json_of.waiting(mended), said)
