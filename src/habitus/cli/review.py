"""`habitus review …`: what waits for a person: look at it, approve it, turn it down, or mend it first."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from habitus.cli import moments, output
from habitus.cli.opening import opened
from habitus.errors import StorageFailed

if TYPE_CHECKING:
    from habitus.app import Habitus
    from habitus.memory.model import Engram
    from habitus.skills.review import Proposal

app = typer.Typer(help="Decide about changes that wait for you.")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Item = Annotated[str, typer.Argument(help="The number of a proposal, or the id of a lesson.")]
Items = Annotated[list[str], typer.Argument(help="Numbers of proposals, ids of lessons.")]


@app.callback(invoke_without_command=True)
def explain(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        output.explain(context)


@app.command("list")
def list_proposals(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Decided ones too.")] = False,
    as_json: AsJson = False,
) -> None:
    """What waits, and why: changes of skills by number, lessons by id."""
    from habitus.skills.review import ProposalState

    with opened(context) as habitus:
        found = habitus.review.list(None if everything else ProposalState.WAITING)
        lessons = habitus.memory.waiting() if habitus.waiting_count() > habitus.review.waiting_count() else ()
        if as_json:
            told = [*(_as_json(proposal) for proposal in found), *(_lesson_json(lesson) for lesson in lessons)]
            output.print_json({"proposals": told})
        elif not found and not lessons:
            output.say("Nothing waits for you.")
        else:
            rows = [
                (p.id, p.state, p.change.action, f"{p.change.name}@{p.change.layer}", _who(p), "; ".join(p.reasons))
                for p in found
            ]
            rows += [(e.id, "waiting", "learn", e.text, e.produced_by.value, e.reason) for e in lessons]  # type: ignore[misc]  # a lesson's cells are texts too
            output.table(("id", "state", "action", "what", "by", "waits because"), rows, wide="waits because")


def _who(proposal: Proposal) -> str:
    return f"{proposal.author.actor.value} {proposal.author.name}".strip()


def _as_json(proposal: Proposal) -> dict[str, Any]:
    change = proposal.change
    return {
        "id": proposal.id,
        "state": proposal.state,
        "action": change.action,
        "name": change.name,
        "layer": change.layer,
        "by": proposal.author,
        "reasons": proposal.reasons,
        "made_on": proposal.made_on,
        "decided_on": proposal.decided_on,
        "decided_by": proposal.decided_by,
        "decision": proposal.decision,
        "files": sorted(change.tree),
    }


def _lesson_json(lesson: Engram) -> dict[str, Any]:
    """A lesson among proposals: the same keys where they mean the same."""
    return {
        "id": lesson.id,
        "state": lesson.state,
        "action": "learn",
        "name": lesson.id,
        "text": lesson.text,
        "kind": lesson.kind,
        "scope": lesson.scope,
        "by": lesson.produced_by,
        "reasons": [lesson.reason],
        "made_on": lesson.created_on,
    }


def _is_lesson(item: str) -> bool:
    """Proposals have numbers; the id of a lesson begins with a letter."""
    return not item.isdigit()


@app.command()
def show(context: typer.Context, item: Item, as_json: AsJson = False) -> None:
    """One proposal: who wants what, why it waits, and the text."""
    with opened(context) as habitus:
        if _is_lesson(item):
            _show_lesson(habitus.memory.get(item), as_json)
            return
        number = int(item)
        proposal = habitus.review.get(number)
        if as_json:
            output.print_json(_as_json(proposal) | {"diff": habitus.review.diff(number)})
            return
        change = proposal.change
        output.say(f"Proposal {proposal.id}: {change.action} {change.name}@{change.layer} ({proposal.state})")
        output.say(
            f"by {_who(proposal)}, {moments.shown(proposal.made_on)}: {proposal.author.reason or 'no reason given'}"
        )
        for reason in proposal.reasons:
            output.say(f"waits because: {reason}", style="yellow")
        if proposal.decided_by:
            output.say(f"{proposal.state} by {proposal.decided_by}: {proposal.decision or 'no reason given'}")
        output.say()
        output.say(habitus.review.diff(number))


def _show_lesson(lesson: Engram, as_json: bool) -> None:
    if as_json:
        output.print_json(_lesson_json(lesson) | {"diff": f"+{lesson.text}\n"})
        return
    output.say(f"Lesson {lesson.id}: {lesson.kind.value}, for {lesson.scope.value} {lesson.owner}".rstrip())
    output.say(f"by {lesson.produced_by.value} ({lesson.source}), {lesson.state.value}")
    if lesson.reason:
        output.say(f"waits because: {lesson.reason}", style="yellow")
    output.say()
    output.say(f"+{lesson.text}")


@app.command()
def diff(context: typer.Context, item: Item, as_json: AsJson = False) -> None:
    """What approving it would change."""
    with opened(context) as habitus:
        text = f"+{habitus.memory.get(item).text}\n" if _is_lesson(item) else habitus.review.diff(int(item))
        if as_json:
            output.print_json({"id": item if _is_lesson(item) else int(item), "diff": text})
        else:
            sys.stdout.write(output.clean(text))


@app.command()
def approve(context: typer.Context, items: Items, as_json: AsJson = False) -> None:
    """Carry proposals out, and let lessons in."""
    with opened(context) as habitus:
        for item in items:  # an unknown one is said before anything is done
            habitus.memory.get(item) if _is_lesson(item) else habitus.review.get(int(item))
        done = [_approved(context, habitus, item, is_quiet=as_json) for item in items]
        if as_json:
            output.print_json({"approved": done})


def _approved(context: typer.Context, habitus: Habitus, item: str, *, is_quiet: bool) -> dict[str, Any]:
    if _is_lesson(item):
        lesson = habitus.memory.approve(item, by=habitus.settings.user)
        if not is_quiet:
            output.say(f"Approved: learn {lesson.id}  {lesson.text}")
            output.undo(context, "lessons", "remove", lesson.id)
        return _lesson_json(lesson)
    proposal, version = habitus.review.approve(int(item), habitus.person())
    if not is_quiet:
        change = proposal.change
        address = f"{change.name}@{change.layer}"
        output.say(f"Approved: {change.action} {address}" + (f", now version {version}." if version else "."))
        output.undo(context, "skills", *_undo(change.action, address, version))
    return _as_json(proposal) | {"version": version}


def _undo(action: str, address: str, version: int | None) -> list[str]:
    match action:
        case "write" if version is not None and version > 1:
            return ["rollback", address, "--to", str(version - 1)]
        case "write":
            return ["remove", address]
        case "remove":
            return ["restore", address]
        case _:
            return ["disable" if action == "enable" else "enable", address]


@app.command()
def reject(
    context: typer.Context,
    items: Items,
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why; the agent sees it.")] = "",
    as_json: AsJson = False,
) -> None:
    """Turn proposals down."""
    with opened(context) as habitus:
        done = [_rejected(habitus, item, reason, is_quiet=as_json) for item in items]
        if as_json:
            output.print_json({"rejected": done})


def _rejected(habitus: Habitus, item: str, reason: str, *, is_quiet: bool) -> dict[str, Any]:
    if _is_lesson(item):
        lesson = habitus.memory.reject(item, by=habitus.settings.user, reason=reason)
        said, told = f"learn {lesson.id}", _lesson_json(lesson)
    else:
        proposal = habitus.review.reject(int(item), habitus.person(), reason)
        said, told = f"{proposal.change.action} {proposal.change.name}", _as_json(proposal)
    if not is_quiet:
        output.say(f"Turned down: {said}.")
    return told


@app.command()
def edit(
    context: typer.Context,
    item: Item,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Take the new SKILL.md from this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Mend the text of a proposal before you approve it, in your editor or from a file."""
    from habitus.cli.editor import edited
    from habitus.skills import trees

    if _is_lesson(item):
        raise typer.BadParameter(f"A lesson is edited with 'habitus lessons edit {item}'.")
    number = int(item)
    with opened(context) as habitus:
        proposal = habitus.review.get(number)
        main = trees.main_file(proposal.change.tree) or "SKILL.md"
        before = (proposal.change.tree[main].content if main in proposal.change.tree else b"") or b""
        if file is not None:
            content = _read(file)
            changed = habitus.review.edit(number, main, content)
        else:
            name, instead = f"{proposal.change.name}.md", "give the text with --file"
            with edited(habitus.settings.editor, before, name, instead=instead) as content:
                changed = habitus.review.edit(number, main, content)
        if as_json:
            output.print_json(_as_json(changed))
        else:
            output.say(f"Proposal {number} is changed." if content != before else "Nothing was changed.")


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise StorageFailed(f"Can't read {file}: {error.strerror}.", mend="Check the path.") from None
