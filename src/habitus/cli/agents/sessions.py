"""`habitus sessions …`: lists, shows and exports recorded conversations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from habitus.agent.history import unpack
from habitus.app.conversations.past_sessions import PastSession, past_session
from habitus.app.use_cases.sessions import OneSession, SessionList, SessionPage, SessionTurns
from habitus.cli import inputs, output
from habitus.cli.completion import AllUsers, AsJson, Wide
from habitus.cli.opening import open_habitus
from habitus.errors import StorageFailed, did_you_mean
from habitus.journal.journal import effective
from habitus.journal.model import Message, Turn
from habitus.llm.model import Answered, Returned

Id = Annotated[str, typer.Argument(help="A session, or the beginning of its id.")]
FORMATS = ("markdown", "json")


def list_sessions(context: typer.Context, wanted: SessionList, done: SessionPage, wide: Wide = False) -> None:
    rows = [(s.id, inputs.format_timestamp(s.last_turn_on), s.turns, s.user, s.title) for s in done.sessions]
    columns = ("id", "last turn", "turns", "user", "began with")
    empty = "There are no sessions yet. Begin one: habitus chat"
    output.rows_or(empty, columns, rows, wide="began with", is_cut=not wide)
    output.say_more(len(rows), done.total, done.next)
    if done.hidden:
        output.say(f"{output.count_of(done.hidden, 'session')} of others: --all-users, or --user NAME.")


def show(context: typer.Context, wanted: OneSession, done: SessionTurns) -> None:
    output.say(_as_markdown(done))
    output.say_more(len(done.turns), done.total, done.next)


def export(
    context: typer.Context,
    session: Id,
    format: Annotated[str, typer.Option("--format", "-f", help="markdown or json.")] = "markdown",
    to: Annotated[Path | None, typer.Option("--to", help="Write to this file instead of standard output.")] = None,
    all_users: AllUsers = False,
    as_json: AsJson = False,
) -> None:
    """Export a conversation; secrets are removed."""
    if format not in FORMATS:
        near = did_you_mean(format, FORMATS) or f"Use {' or '.join(FORMATS)}."
        raise typer.BadParameter(f"'{format}' is no format. {near}", param_hint="--format")
    with open_habitus(context) as habitus:
        found = past_session(habitus.settings, habitus.journal, session, all_users=all_users)
        # With --to, --json describes the written file; without it, the conversation itself is the output.
        is_json = format == "json" or (as_json and to is None)
        text = output.json_text(found) if is_json else output.clean(_as_markdown(found)) + "\n"
        if to is None:
            output.write(text)
            return
        try:
            to.write_text(text, encoding="utf-8")
        except OSError as error:
            raise StorageFailed(f"Can't write {to}: {error.strerror}.", hint="Check the path.") from None
        data = {"session": found.session, "turns": len(found.turns), "to": to}
        output.say_done(
            context, as_json, data, f"Wrote {output.count_of(len(found.turns), 'turn')} of {found.session} to {to}."
        )


def _as_markdown(found: PastSession | SessionTurns) -> str:
    """Return the session as Markdown: each request, the messages that followed and the outcome."""
    parts = [f"# Session {found.session}"]
    for number, turn in enumerate(found.turns, 1):
        parts += [f"## Turn {number}, {inputs.format_timestamp(turn.started_on)}, {turn.id}", _quote(turn.request)]
        parts += [said for message in turn.messages[1:] if (said := _describe_message(message))]
        parts.append(f"*{_how_it_went(turn)}*")
    return "\n\n".join(parts)


def _quote(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _describe_message(message: Message) -> str:
    """Return an assistant's text and calls, or a tool's shortened result; empty for a damaged message."""
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
    """Return a turn's outcome with its source and reason, and the tokens it used."""
    judged = effective(turn.outcomes)
    went = "no outcome" if judged is None else f"{judged.kind.value} (said by {judged.source}"
    if judged is not None:
        went += f": {judged.reason})" if judged.reason else ")"
    tokens = f"{turn.usage.get('input_tokens', 0):,.0f} → {turn.usage.get('output_tokens', 0):,.0f} tokens"
    return f"{went}, {tokens}"
