"""`habitus sessions …` and `habitus pad …`: the conversations that the journal keeps, and scratchpads without an
agent. A pad's variables live in a process in the background, its cells in the home.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from habitus.agent.history import unpack
from habitus.app.conversations import running_code as use_case
from habitus.app.conversations.past_sessions import PastSession, past_session
from habitus.app.conversations.running_code import RanCell
from habitus.app.use_cases.sessions import OneSession, SessionList, SessionPage, SessionTurns
from habitus.cli import inputs, output
from habitus.cli.completion import AllUsers, AsJson, Wide, Yes
from habitus.cli.opening import open_habitus
from habitus.errors import StorageFailed, did_you_mean
from habitus.journal.journal import effective
from habitus.journal.model import Message, Turn
from habitus.llm.model import Answered, Returned
from habitus.redact import taken_out

Id = Annotated[str, typer.Argument(help="A session, or the beginning of its id.")]
FORMATS = ("markdown", "json")


def list_sessions(context: typer.Context, wanted: SessionList, done: SessionPage, wide: Wide = False) -> None:
    rows = [(s.id, inputs.show_moment(s.last_turn_on), s.turns, s.user, s.title) for s in done.sessions]
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
    """Write one conversation out; secrets are not in it."""
    if format not in FORMATS:
        near = did_you_mean(format, FORMATS) or f"Use {' or '.join(FORMATS)}."
        raise typer.BadParameter(f"'{format}' is no format. {near}", param_hint="--format")
    with open_habitus(context) as habitus:
        found = past_session(habitus.settings, habitus.journal, session, all_users=all_users)
        is_json = format == "json" or (as_json and to is None)
        text = output.json_text(found) if is_json else output.clean(_as_markdown(found)) + "\n"
        if to is None:
            output.write(text)
            return
        try:
            to.write_text(text, encoding="utf-8")
        except OSError as error:
            raise StorageFailed(f"Can't write {to}: {error.strerror}.", mend="Check the path.") from None
        data = {"session": found.session, "turns": len(found.turns), "to": to}
        output.say_done(
            context, as_json, data, f"Wrote {output.count_of(len(found.turns), 'turn')} of {found.session} to {to}."
        )


def _as_markdown(found: PastSession | SessionTurns) -> str:
    parts = [f"# Session {found.session}"]
    for number, turn in enumerate(found.turns, 1):
        parts += [f"## Turn {number}, {inputs.show_moment(turn.started_on)}, {turn.id}", _quote(turn.request)]
        parts += [said for message in turn.messages[1:] if (said := _describe_message(message))]
        parts.append(f"*{_how_it_went(turn)}*")
    return "\n\n".join(parts)


def _quote(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _describe_message(message: Message) -> str:
    """A message in words: an assistant's text and calls, or a tool's result, shortened; nothing of a damaged one."""
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
    judged = effective(turn.outcomes)
    went = "no outcome" if judged is None else f"{judged.kind.value} (said by {judged.source}"
    if judged is not None:
        went += f": {judged.reason})" if judged.reason else ")"
    tokens = f"{turn.usage.get('input_tokens', 0):,.0f} → {turn.usage.get('output_tokens', 0):,.0f} tokens"
    return f"{went}, {tokens}"


Name = Annotated[str, typer.Argument(help="A scratchpad.")]
Idle = Annotated[float, typer.Option("--idle", min=0.1, help="Seconds without a cell after which its process ends.")]


def execute(
    context: typer.Context,
    name: Name,
    code: Annotated[str | None, typer.Argument(help="Python; '-' reads standard input.")] = None,
    file: Annotated[str | None, typer.Option("--file", "-f", help="A file with the code.")] = None,
    description: Annotated[str, typer.Option("--description", "-d", help="What the cell does.")] = "",
    estimate: Annotated[float | None, typer.Option("--estimate", help="Seconds it may take; sets its limits.")] = None,
    idle: Idle = 1800.0,
    as_json: AsJson = False,
) -> None:
    """Run a cell. Variables stay until the pad is reset, removed, or idle for half an hour."""
    if (code is None) == (file is None):
        raise typer.BadParameter("Give the code, or a file with --file, or '-' for standard input.")
    text = inputs.read_text(file) if file is not None else inputs.read_text("-") if code == "-" else str(code)
    said = (lambda text: None) if as_json else (lambda text: output.write(output.clean(text)))
    with open_habitus(context) as habitus:
        cell = use_case.execute(
            habitus, name, text, description=description, estimated_s=estimate, idle_s=idle, said=said
        )
    if as_json:
        output.print_json(cell)
    else:
        for line in cell["logs"]:
            output.complain(line)
        if cell["error"]:
            output.complain(cell["error"])
        output.tell_taken_out(taken_out(cell["stdout"]))
    if cell["error"]:
        raise typer.Exit(1)


def list_pads(context: typer.Context, as_json: AsJson = False) -> None:
    """Every scratchpad, and whether its variables are still there."""
    with open_habitus(context) as habitus:
        found = use_case.pads(habitus.settings)
        rows = [(pad.name, "running" if pad.running else "asleep", pad.cells) for pad in found]
        empty = "There are no scratchpads yet. Start one: habitus pad exec NAME 'print(1)'"
        output.say_list(as_json, {"pads": found}, ("name", "process", "cells"), rows, empty=empty)


def view(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """The cells that ran since the pad was made or reset, with what they printed."""
    with open_habitus(context) as habitus:
        cells = use_case.cells(habitus.settings, name)
        said = "\n\n".join(_show_cell(number, cell) for number, cell in enumerate(cells, 1)) or "No cell ran yet."
        output.say_done(context, as_json, {"name": name, "cells": cells}, said)


def _show_cell(number: int, cell: RanCell) -> str:
    title = f"# cell {number}" + (f": {cell['description']}" if cell["description"] else "")
    parts = [title, cell["code"].rstrip(), cell["stdout"].rstrip(), cell["stderr"].rstrip(), cell["error"] or ""]
    return "\n".join(part for part in parts if part)


def reset(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Forget the variables and cells; files and packages stay."""
    with open_habitus(context) as habitus:
        done = use_case.reset(habitus, name)
        forgotten = output.count_of(done.forgotten_cells, "cell")
        said = f"{name} starts anew; {forgotten} forgotten. Its files and packages stay."
        output.say_done(context, as_json, done, said)


def remove(
    context: typer.Context,
    name: Name,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete a scratchpad with its files and packages. There is no way back."""
    with open_habitus(context) as habitus:
        habitus.refuse_if_read_only()
        folder = use_case.existing(habitus.settings, name)
        if not yes:
            if as_json or not sys.stdin.isatty():
                raise typer.BadParameter("Its files would be gone for good; say --yes.")
            if not typer.confirm(f"Delete {folder} for good?"):
                raise typer.Abort
        asyncio.run(use_case.remove(habitus, name))
        output.say_done(context, as_json, {"removed": name}, f"{name} is gone.")


def keep(context: typer.Context, name: Name, idle: Idle = 1800.0) -> None:
    """Hold a pad's process; started by 'exec', in the background."""
    with open_habitus(context) as habitus:
        asyncio.run(use_case.keep(habitus, name, idle))
