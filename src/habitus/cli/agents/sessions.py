"""`habitus sessions …`: lists, shows and exports recorded conversations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from habitus.agent.history import decode_journal_message
from habitus.app.conversations.past_sessions import PastSession, get_latest_or_matching_session
from habitus.app.use_cases.sessions import SessionDetails, SessionPage
from habitus.cli import inputs, output
from habitus.cli.completion import AllUsersOption, JsonOption, WideOption
from habitus.cli.opening import open_habitus
from habitus.errors import StorageFailed, did_you_mean
from habitus.journal.model import Turn, TurnMessage
from habitus.journal.usage import decide_use_verdict, get_deciding_or_heaviest_outcome
from habitus.llm.model import AssistantMessage, ToolResultMessage

SessionIdArgument = Annotated[str, typer.Argument(help="A session id, or its beginning.")]
EXPORT_FORMATS = ("markdown", "json")


def print_result_of_list_sessions(context: typer.Context, result: SessionPage, wide: WideOption = False) -> None:
    rows = [(s.id, inputs.format_timestamp(s.last_turn_on), s.turns, s.user, s.title) for s in result.sessions]
    columns = ("id", "last turn", "turns", "user", "first request")
    empty = "No sessions yet. Start one: habitus chat"
    output.print_table_or_message(empty, columns, rows, wide="first request", is_cut=not wide)
    output.print_paging_hint(len(rows), result.total, result.next)
    if result.hidden:
        output.print_line(
            f"{output.format_quantity(result.hidden, 'session')} of other users: --all-users, or --user NAME."
        )


def print_result_of_show_session(context: typer.Context, result: SessionDetails) -> None:
    output.print_line(_render_session_markdown(result))
    output.print_paging_hint(len(result.turns), result.total, result.next)


def export_session(
    context: typer.Context,
    session: SessionIdArgument,
    format: Annotated[str, typer.Option("--format", "-f", help="markdown or json.")] = "markdown",
    to: Annotated[Path | None, typer.Option("--to", help="Write to this file instead of standard output.")] = None,
    all_users: AllUsersOption = False,
    as_json: JsonOption = False,
) -> None:
    """Export a conversation; secrets are removed."""
    if format not in EXPORT_FORMATS:
        near = did_you_mean(format, EXPORT_FORMATS) or f"Use {' or '.join(EXPORT_FORMATS)}."
        raise typer.BadParameter(f"Unknown format '{format}'. {near}", param_hint="--format")
    with open_habitus(context) as habitus:
        found = get_latest_or_matching_session(habitus.settings, habitus.journal, session, all_users=all_users)
        # With --to, --json describes the written file; without it, the conversation itself is the output.
        is_json = format == "json" or (as_json and to is None)
        text = (
            output.format_json(found)
            if is_json
            else output.strip_control_characters(_render_session_markdown(found)) + "\n"
        )
        if to is None:
            output.write_stdout(text)
            return
        try:
            to.write_text(text, encoding="utf-8")
        except OSError as error:
            raise StorageFailed(f"Can't write {to}: {error.strerror}.", hint="Check the path.") from None
        data = {"session": found.session, "turns": len(found.turns), "to": to}
        output.print_command_result(
            context,
            as_json,
            data,
            f"Wrote {output.format_quantity(len(found.turns), 'turn')} of {found.session} to {to}.",
        )


def _render_session_markdown(found: PastSession | SessionDetails) -> str:
    """Return the session as Markdown: each request, the messages that followed and the outcome."""
    parts = [f"# Session {found.session}"]
    for number, turn in enumerate(found.turns, 1):
        parts += [
            f"## Turn {number}, {inputs.format_timestamp(turn.started_on)}, {turn.id}",
            _quote_markdown(turn.request),
        ]
        parts += [said for message in turn.messages[1:] if (said := _render_message_as_markdown(message))]
        parts.append(f"*{_describe_outcome_and_tokens(turn)}*")
    return "\n\n".join(parts)


def _quote_markdown(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _render_message_as_markdown(message: TurnMessage) -> str:
    """Return an assistant's text and calls, or a tool's shortened result; empty for a damaged message."""
    match decode_journal_message(message):
        case AssistantMessage(text=text, calls=calls):
            called = [f"`{call.name}` {_shorten_text(call.arguments)}" for call in calls]
            return "\n\n".join([*filter(None, [text]), *called])
        case ToolResultMessage(content=content):
            return f"```\n{_shorten_text(content, 2000)}\n```"
        case _:
            return ""


def _shorten_text(text: str, most: int = 400) -> str:
    return text if len(text) <= most else f"{text[:most]} … ({len(text) - most:,} characters more)"


def _describe_outcome_and_tokens(turn: Turn) -> str:
    """Return a turn's outcome with its source and reason, and the tokens it used."""
    judged, verdict = get_deciding_or_heaviest_outcome(turn.outcomes), decide_use_verdict(turn.outcomes)
    went = verdict.value.replace("_", " ") if verdict.is_known else "no feedback"
    if judged is not None:
        went += f" ({judged.kind.value} by {judged.source}" + (f": {judged.reason})" if judged.reason else ")")
    tokens = f"{turn.usage.get('input_tokens', 0):,.0f} → {turn.usage.get('output_tokens', 0):,.0f} tokens"
    return f"{went}, {tokens}"
