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
    from habitus.skills.review import Proposal

app = typer.Typer(help="Decide about changes that wait for you.")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Number = Annotated[int, typer.Argument(help="The number of the proposal.")]
Numbers = Annotated[list[int], typer.Argument(help="The numbers of the proposals.")]


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
    """What waits, and why."""
    from habitus.skills.review import ProposalState

    with opened(context) as habitus:
        found = habitus.review.list(None if everything else ProposalState.WAITING)
        if as_json:
            output.print_json({"proposals": [_as_json(proposal) for proposal in found]})
        elif not found:
            output.say("Nothing waits for you.")
        else:
            rows = [
                (p.id, p.state, p.change.action, f"{p.change.name}@{p.change.layer}", _who(p), "; ".join(p.reasons))
                for p in found
            ]
            output.table(("id", "state", "action", "skill", "by", "waits because"), rows, wide="waits because")


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


@app.command()
def show(context: typer.Context, number: Number, as_json: AsJson = False) -> None:
    """One proposal: who wants what, why it waits, and the text."""
    with opened(context) as habitus:
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


@app.command()
def diff(context: typer.Context, number: Number, as_json: AsJson = False) -> None:
    """What approving it would change."""
    with opened(context) as habitus:
        text = habitus.review.diff(number)
        if as_json:
            output.print_json({"id": number, "diff": text})
        else:
            sys.stdout.write(output.clean(text))


@app.command()
def approve(context: typer.Context, numbers: Numbers, as_json: AsJson = False) -> None:
    """Carry proposals out."""
    with opened(context) as habitus:
        for number in numbers:
            habitus.review.get(number)  # an unknown one is said before anything is done
        done = []
        for number in numbers:
            proposal, version = habitus.review.approve(number, habitus.person())
            done.append(_as_json(proposal) | {"version": version})
            if as_json:
                continue
            change = proposal.change
            address = f"{change.name}@{change.layer}"
            output.say(f"Approved: {change.action} {address}" + (f", now version {version}." if version else "."))
            output.undo(context, "skills", *_undo(change.action, address, version))
        if as_json:
            output.print_json({"approved": done})


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
    numbers: Numbers,
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why; the agent sees it.")] = "",
    as_json: AsJson = False,
) -> None:
    """Turn proposals down."""
    with opened(context) as habitus:
        done = [habitus.review.reject(number, habitus.person(), reason) for number in numbers]
        if as_json:
            output.print_json({"rejected": [_as_json(proposal) for proposal in done]})
            return
        for proposal in done:
            output.say(f"Turned down: {proposal.change.action} {proposal.change.name}.")


@app.command()
def edit(
    context: typer.Context,
    number: Number,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Take the new SKILL.md from this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Mend the text of a proposal before you approve it, in your editor or from a file."""
    from habitus.cli.editor import edited
    from habitus.skills import trees

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
