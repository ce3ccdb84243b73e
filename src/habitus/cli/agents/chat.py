"""`habitus chat`: talk to an agent that learns from its work."""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from habitus.agent.session import Session
from habitus.agent.stream import AskPerson
from habitus.app import Habitus
from habitus.app.conversations.models import (
    explain_default_model,
    refuse_agent_as_chat_model,
    resolve_main_and_cheap_model_names,
)
from habitus.app.conversations.past_sessions import PastSession, get_latest_or_matching_session
from habitus.cli import output
from habitus.cli.completion import FeaturesOption, PathsOption, ResourcesOption
from habitus.cli.main import build_root_command
from habitus.cli.opening import open_habitus, share_open_habitus_with_commands
from habitus.cli.operating.secrets import unlock_vault
from habitus.errors import Invalid, UserError
from habitus.files import parse_user_path
from habitus.repl.chat import Chat, ChatRequestContext
from habitus.repl.commands import convert_cli_words_to_slash_command
from habitus.repl.lines import ChatSurface, CommandFormatter, JsonLinesSurface, PlainTextSurface, read_stdin_lines
from habitus.repl.terminal import CompletableNameSources, LineEditor, TerminalSurface, run_chat_loop, suppress_key_echo

ModelOption = Annotated[
    str,
    typer.Option(
        "--model", "-m", help="provider:model, script:PATH, or an agent like claude-code; else HABITUS_MODEL."
    ),
]
AttachOption = Annotated[list[Path] | None, typer.Option("--attach", "-a", help="Attach this file; may be repeated.")]
ReadableFoldersOption = Annotated[
    list[Path] | None, typer.Option("--read", help="A folder that scratchpads may read; may be repeated.")
]
JsonLinesOption = Annotated[bool, typer.Option("--json", help="Print every event as one line of JSON.")]


def start_chat(
    context: typer.Context,
    request: Annotated[
        str | None,
        typer.Argument(help="A request to answer, then exit ('-' reads it); with --resume, the session."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", "-r", help="Continue an earlier session, by default the last.")
    ] = False,
    model: ModelOption = "",
    attach: AttachOption = None,
    read: ReadableFoldersOption = None,
    path: PathsOption = None,
    resource: ResourcesOption = None,
    feature: FeaturesOption = None,
    as_json: JsonLinesOption = False,
) -> None:
    """Chat with the agent, or give it one request. Without a terminal, every line of standard input is a turn.

    Exits with 1 if a turn failed that no person saw.
    """
    chat_context = ChatRequestContext(
        paths=path or (), resources=resource or (), features=feature or (), readable_folders=read or ()
    )
    with _print_errors_as_json(as_json), open_habitus(context, model=model) as habitus:
        if request is not None and not resume:
            text, typed = sys.stdin.read() if request == "-" else request, partial(output.format_command, context)
            running = _run_single_turn(habitus, text, attach or [], chat_context, as_json, typed)
        else:
            refuse_agent_as_chat_model(resolve_main_and_cheap_model_names(habitus.settings, os.environ)[0], os.environ)
            unlock_vault(habitus)
            past = get_latest_or_matching_session(habitus.settings, habitus.journal, request) if resume else None
            running = _run_chat(context, habitus, past, attach or [], chat_context, as_json)
        try:
            is_well = asyncio.run(running)
        except KeyboardInterrupt:
            if as_json or (request and not resume) or not _is_standard_io_a_terminal():
                raise
            # Ctrl-C between two prompts leaves the chat, as it does at a prompt.
            is_well = True
    if not is_well:
        raise typer.Exit(1)


@contextmanager
def _print_errors_as_json(is_json: bool) -> Iterator[None]:
    """Print an error as one more line of JSON if the output is JSON Lines."""
    try:
        yield
    # Standard output itself failed, so a line there can't report it.
    except output.OutputWriteError:
        raise
    except UserError as error:
        if not is_json:
            raise
        _make_json_lines_surface().show_error(error.message, error.hint)
        raise typer.Exit(1) from None


async def _run_chat(
    context: typer.Context,
    habitus: Habitus,
    past: PastSession | None,
    attach: Sequence[Path],
    chat_context: ChatRequestContext,
    as_json: bool,
) -> bool:
    """Run the chat until it ends; return whether every turn succeeded, always True at a terminal."""
    surface = _make_chat_surface(as_json)
    async with _open_chat(habitus, surface, chat_context, past, attach) as chat:
        if isinstance(surface, TerminalSurface):
            _print_welcome(surface, chat, past)
            await run_chat_loop(chat, surface)
        else:
            if isinstance(surface, JsonLinesSurface):
                surface.write_json_line({"type": "session", "id": chat.session.id, "model": chat.session.model})
            async for line in read_stdin_lines():
                if not await chat.handle_line(line):
                    break
    if isinstance(surface, TerminalSurface) and chat.session.last is not None:
        go_on = output.format_command(context, "chat", "--resume", chat.session.id)
        surface.console.print(Text(f"Continue with: {go_on}", style="dim"))
    # A person saw the failed turn; only a script needs the exit code.
    return chat.has_succeeded or isinstance(surface, TerminalSurface)


def _print_welcome(terminal: TerminalSurface, chat: Chat, past: PastSession | None) -> None:
    """Print the model, who chose it, and the last turn of a resumed session."""
    by = explain_default_model(chat.habitus.settings, os.environ)
    terminal.console.print(Text.assemble(("habitus", "bold"), f"  {chat.session.model}", (f"{by}  /help", "dim")))
    if share := chat.habitus.settings.evidence.withhold:
        told = f"{share:.0%} of all offers are withheld at random to measure what helps (evidence.withhold)."
        terminal.console.print(Text(told, style="dim"))
    if past is not None:
        last = output.strip_control_characters(" ".join(past.turns[-1].request.split()))[:60]
        turns = output.format_quantity(len(past.turns), "turn")
        terminal.console.print(Text(f"Resumed {past.session}, {turns}; last: {last}", style="dim"))


async def _run_single_turn(
    habitus: Habitus,
    text: str,
    attach: Sequence[Path],
    chat_context: ChatRequestContext,
    as_json: bool,
    typed: CommandFormatter,
) -> bool:
    """Run a single turn and return whether it succeeded."""
    async with _open_chat(habitus, _make_chat_surface(as_json, typed), chat_context, typed=typed) as chat:
        await chat.run_turn_and_report_lessons(text, [habitus.settings.cwd / path for path in attach])
    return chat.has_succeeded


@asynccontextmanager
async def _open_chat(
    habitus: Habitus,
    surface: TerminalSurface | JsonLinesSurface | PlainTextSurface,
    chat_context: ChatRequestContext,
    past: PastSession | None = None,
    attach: Sequence[Path] = (),
    typed: CommandFormatter = convert_cli_words_to_slash_command,
) -> AsyncIterator[Chat]:
    """Yield a chat on a surface, and close everything it opened at the end."""
    # Keys typed while the session opens would be echoed into the prompt.
    with suppress_key_echo():
        chat = Chat(
            habitus,
            surface,
            open_session=partial(_open_session, habitus, surface.ask, chat_context.readable_folders),
            run_command=partial(_run_cli_command_in_chat, habitus, surface),
            models=habitus.models,
            resume=past.session if past is not None else "",
            attached=attach,
            context=chat_context,
            format_command=typed,
        )
    if isinstance(surface, TerminalSurface):
        names = CompletableNameSources(invocable=chat.list_invocable_skills, known=chat.list_skill_names)
        surface.prompt = LineEditor(habitus.writable_dir, names, habitus.redactor)
    try:
        yield chat
    finally:
        await chat.close()
        await habitus.models.close()


def _open_session(habitus: Habitus, ask: AskPerson, read: Sequence[Path], resume: str) -> Session:
    folders = [parse_user_path(folder) for folder in read]
    return habitus.session(id=resume or None, resume=bool(resume), ask=ask, read=folders)


def _run_cli_command_in_chat(habitus: Habitus, surface: ChatSurface, words: Sequence[str]) -> list[tuple[str, ...]]:
    """Run a command of the command line inside the chat and return the commands that undo it."""
    if not isinstance(surface, JsonLinesSurface):
        return _run_command_in_process(habitus, words)
    # A JSON pipe carries one object per line, so the command's own output is wrapped in one.
    with redirect_stdout(io.StringIO()) as said:
        undos = _run_command_in_process(habitus, [*words, "--json"])
    surface.write_json_line({"type": "command", "command": " ".join(words), "output": json.loads(said.getvalue())})
    return undos


def _run_command_in_process(habitus: Habitus, words: Sequence[str]) -> list[tuple[str, ...]]:
    """Run a command in this process on the open home; return the commands that undo it."""
    undos: list[tuple[str, ...]] = []
    in_chat, undone = (
        output.chat_command_formatter.set(convert_cli_words_to_slash_command),
        output.undo_listener.set(undos.append),
    )
    try:
        with share_open_habitus_with_commands(habitus):
            build_root_command()(list(words), standalone_mode=False)
    except typer.TyperException as error:
        raise Invalid(error.format_message(), hint="See /help.") from None
    finally:
        output.chat_command_formatter.reset(in_chat)
        output.undo_listener.reset(undone)
    return undos


def _make_chat_surface(
    as_json: bool, typed: CommandFormatter = convert_cli_words_to_slash_command
) -> TerminalSurface | JsonLinesSurface | PlainTextSurface:
    """Return the surface that fits: JSON Lines, a terminal or plain text."""
    if as_json:
        return _make_json_lines_surface()
    return (
        TerminalSurface(format_command=typed)
        if _is_standard_io_a_terminal()
        else PlainTextSurface(write=output.write_stdout, write_remark=output.print_line_to_stderr)
    )


def _is_standard_io_a_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _make_json_lines_surface() -> JsonLinesSurface:
    return JsonLinesSurface(write=output.write_stdout, is_ascii=not output.is_unicode_output())
