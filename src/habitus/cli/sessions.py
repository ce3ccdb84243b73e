"""`habitus sessions …`: the conversations that the journal keeps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from habitus.cli import moments, output
from habitus.cli.opening import opened
from habitus.errors import NotFound, StorageFailed, did_you_mean

if TYPE_CHECKING:
    from habitus.app import Habitus
    from habitus.journal.model import Message, Turn

app = typer.Typer(help="Look at past conversations, and take them along.")

Id = Annotated[str, typer.Argument(help="A session, or the beginning of its id.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
FORMATS = ("markdown", "json")
_KNOWN = 1000  # sessions that are looked through for an id


@app.callback(invoke_without_command=True)
def explain(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        output.explain(context)


def resolved(habitus: Habitus, wanted: str | None) -> str:
    """The id that is meant: the last session, or the one whose id begins like this."""
    ids = [session.id for session in habitus.journal.sessions(limit=1 if wanted is None else _KNOWN)]
    if not ids:
        raise NotFound("There are no sessions yet.", mend="Begin one: habitus chat.")
    if wanted is None:
        return ids[0]
    found = [id for id in ids if id.startswith(wanted)]
    if wanted in ids or len(found) == 1:
        return wanted if wanted in ids else found[0]
    if found:
        raise NotFound(f"'{wanted}' begins {len(found)} sessions.", mend=f"Write more of it: {', '.join(found[:3])}.")
    near = did_you_mean(wanted, ids) or "See 'habitus sessions list'."
    raise NotFound(f"There is no session '{wanted}'.", mend=near)


@app.command("list")
def list_sessions(
    context: typer.Context,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """The last conversations, the latest first."""
    with opened(context) as habitus:
        found = habitus.journal.sessions(limit=limit)
        if as_json:
            output.print_json({"sessions": found})
        elif not found:
            output.say("There are no sessions yet. Begin one: habitus chat")
        else:
            rows = [(s.id, moments.shown(s.last_turn_on), s.turns, s.user, s.title) for s in found]
            output.table(("id", "last turn", "turns", "user", "began with"), rows, wide="began with")


@app.command()
def show(context: typer.Context, session: Id, as_json: AsJson = False) -> None:
    """One conversation: what was asked, done and answered, and how it went."""
    with opened(context) as habitus:
        id = resolved(habitus, session)
        turns = habitus.journal.turns_of(id)
        if as_json:
            output.print_json(_as_json(id, turns))
        else:
            output.say(_as_markdown(id, turns))


@app.command()
def export(
    context: typer.Context,
    session: Id,
    format: Annotated[str, typer.Option("--format", "-f", help="markdown or json.")] = "markdown",
    to: Annotated[Path | None, typer.Option("--to", help="Write to this file instead of standard output.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write one conversation out; secrets are not in it."""
    if format not in FORMATS:
        near = did_you_mean(format, FORMATS) or f"Use {' or '.join(FORMATS)}."
        raise typer.BadParameter(f"'{format}' is no format. {near}", param_hint="--format")
    with opened(context) as habitus:
        id = resolved(habitus, session)
        turns = habitus.journal.turns_of(id)
        is_json = format == "json" or (as_json and to is None)
        text = output.json_text(_as_json(id, turns)) if is_json else output.clean(_as_markdown(id, turns)) + "\n"
        if to is None:
            output.write(text)
            return
        try:
            to.write_text(text, encoding="utf-8")
        except OSError as error:
            raise StorageFailed(f"Can't write {to}: {error.strerror}.", mend="Check the path.") from None
        if as_json:
            output.print_json({"session": id, "turns": len(turns), "to": to})
        else:
            output.say(f"Wrote {output.counted(len(turns), 'turn')} of {id} to {to}.")


def _as_json(id: str, turns: list[Turn]) -> dict[str, Any]:
    return {"session": id, "turns": turns}


def _as_markdown(id: str, turns: list[Turn]) -> str:
    parts = [f"# Session {id}"]
    for number, turn in enumerate(turns, 1):
        parts += [f"## Turn {number}, {moments.shown(turn.started_on)}", _quoted(turn.request)]
        parts += [said for message in turn.messages[1:] if (said := _said(message))]
        parts.append(f"*{_how_it_went(turn)}*")
    return "\n\n".join(parts)


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _said(message: Message) -> str:
    """What an assistant said and called, and what a tool returned, shortened; nothing of a damaged one."""
    from habitus.agent.history import unpack
    from habitus.llm.model import Answered, Returned

    match unpack(message):
        case Answered(text=text, calls=calls):
            called = [f"`{call.name}` {_short(call.arguments)}" for call in calls]
            return "\n\n".join([*filter(None, [text]), *called])
        case Returned(content=content):
            return f"```\n{_short(content, 2000)}\n```"
        case _:
            return ""


def _short(text: str, most: int = 400) -> str:
    return text if len(text) <= most else f"{text[:most]} … ({len(text) - most:,} characters more)"


def _how_it_went(turn: Turn) -> str:
    from habitus.journal.journal import effective

    judged = effective(turn.outcomes)
    went = "no outcome" if judged is None else f"{judged.kind.value} (said by {judged.source}"
    if judged is not None:
        went += f": {judged.reason})" if judged.reason else ")"
    tokens = f"{turn.usage.get('input_tokens', 0):,.0f} → {turn.usage.get('output_tokens', 0):,.0f} tokens"
    return f"{went}, {tokens}"
