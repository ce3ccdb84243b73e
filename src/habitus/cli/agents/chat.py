"""`habitus chat` and `habitus ask`: talk to an agent that learns from its work."""

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
from habitus.app.conversations.models import chosen_by, model_names, refuse_in_chat
from habitus.app.conversations.past_sessions import PastSession, past_session
from habitus.cli import output
from habitus.cli.completion import Features, Paths, Resources
from habitus.cli.main import whole
from habitus.cli.opening import open_habitus, share_habitus
from habitus.cli.operating.secrets import unlock
from habitus.errors import Invalid, UserError
from habitus.files import given_path
from habitus.repl.chat import Chat, ChatContext
from habitus.repl.commands import slash_command
from habitus.repl.lines import JsonPipe, Surface, TextPipe, Typed, typed_lines
from habitus.repl.terminal import LineEditor, Names, Terminal, converse, silent_keyboard

Model = Annotated[
    str,
    typer.Option(
        "--model", "-m", help="provider:model, script:PATH, or an agent like claude-code; else HABITUS_MODEL."
    ),
]
Attach = Annotated[list[Path] | None, typer.Option("--attach", "-a", help="Send this file along; may be repeated.")]
Read = Annotated[
    list[Path] | None, typer.Option("--read", help="A folder that code may read where it is; may be repeated.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print every event as one line of JSON.")]


def chat(
    context: typer.Context,
    session: Annotated[str | None, typer.Argument(help="With --resume: which session; else the last.")] = None,
    resume: Annotated[bool, typer.Option("--resume", "-r", help="Go on with an earlier session.")] = False,
    model: Model = "",
    attach: Attach = None,
    read: Read = None,
    path: Paths = None,
    resource: Resources = None,
    feature: Features = None,
    as_json: AsJson = False,
) -> None:
    """Chat with the agent. Without a terminal, every line of standard input is a turn; exits with 1 if one failed."""
    if session is not None and not resume:
        raise typer.BadParameter("A session is named with --resume; to ask one thing, use 'habitus ask'.")
    chat_context = ChatContext(paths=path or (), resources=resource or (), features=feature or (), read=read or ())
    with _lines_of_errors(as_json), open_habitus(context, model=model) as habitus:
        refuse_in_chat(model_names(habitus.settings, os.environ)[0], os.environ)
        unlock(habitus)
        past = past_session(habitus.settings, habitus.journal, session) if resume else None
        try:
            is_well = asyncio.run(_chat(context, habitus, past, attach or [], chat_context, as_json))
        except KeyboardInterrupt:
            if as_json or not _is_terminal():
                raise
            # Ctrl-C between two prompts leaves the chat, as it does at a prompt.
            is_well = True
    if not is_well:
        raise typer.Exit(1)


def ask(
    context: typer.Context,
    request: Annotated[str | None, typer.Argument(help="What to ask; '-' or nothing reads standard input.")] = None,
    model: Model = "",
    attach: Attach = None,
    read: Read = None,
    path: Paths = None,
    resource: Resources = None,
    feature: Features = None,
    as_json: AsJson = False,
) -> None:
    """Run a single turn and print the reply; exits with 1 if it failed."""
    chat_context = ChatContext(paths=path or (), resources=resource or (), features=feature or (), read=read or ())
    with _lines_of_errors(as_json), open_habitus(context, model=model) as habitus:
        if request is None and sys.stdin.isatty():
            raise typer.BadParameter("Say what to ask: habitus ask 'How do I …?'")
        text = sys.stdin.read() if request in (None, "-") else request
        is_well = asyncio.run(
            _ask(habitus, text or "", attach or [], chat_context, as_json, partial(output.command, context))
        )
    if not is_well:
        raise typer.Exit(1)


@contextmanager
def _lines_of_errors(is_json: bool) -> Iterator[None]:
    """Print an error as one more line of JSON if the output is JSON Lines."""
    try:
        yield
    # Standard output itself failed, so a line there can't report it.
    except output.Lost:
        raise
    except UserError as error:
        if not is_json:
            raise
        _json_pipe().complain(error.message, error.hint)
        raise typer.Exit(1) from None


async def _chat(
    context: typer.Context,
    habitus: Habitus,
    past: PastSession | None,
    attach: Sequence[Path],
    chat_context: ChatContext,
    as_json: bool,
) -> bool:
    """Run the chat until it ends; return whether every turn succeeded, always True at a terminal."""
    surface = _surface(as_json)
    async with _chatting(habitus, surface, chat_context, past, attach) as chat:
        if isinstance(surface, Terminal):
            _greet(surface, chat, past)
            await converse(chat, surface)
        else:
            if isinstance(surface, JsonPipe):
                surface.put({"type": "session", "id": chat.session.id, "model": chat.session.model})
            async for line in typed_lines():
                if not await chat.handle(line):
                    break
    if isinstance(surface, Terminal) and chat.session.last is not None:
        go_on = output.command(context, "chat", "--resume", chat.session.id)
        surface.console.print(Text(f"Go on with: {go_on}", style="dim"))
    # A person saw the failed turn; only a script needs the exit code.
    return chat.went_well or isinstance(surface, Terminal)


def _greet(terminal: Terminal, chat: Chat, past: PastSession | None) -> None:
    """Print the model, who chose it, and the last turn of a resumed session."""
    by = chosen_by(chat.habitus.settings, os.environ)
    terminal.console.print(Text.assemble(("habitus", "bold"), f"  {chat.session.model}", (f"{by}  /help", "dim")))
    if share := chat.habitus.settings.evidence.withhold:
        told = f"{share:.0%} of all offers are withheld at random, to learn what helps (evidence.withhold)."
        terminal.console.print(Text(told, style="dim"))
    if past is not None:
        last = output.clean(" ".join(past.turns[-1].request.split()))[:60]
        turns = output.count_of(len(past.turns), "turn")
        terminal.console.print(Text(f"Resumed {past.session}, {turns}; last: {last}", style="dim"))


async def _ask(
    habitus: Habitus, text: str, attach: Sequence[Path], chat_context: ChatContext, as_json: bool, typed: Typed
) -> bool:
    """Run a single turn and return whether it succeeded."""
    async with _chatting(habitus, _surface(as_json, typed), chat_context, typed=typed) as chat:
        await chat.say(text, [habitus.settings.cwd / path for path in attach])
    return chat.went_well


@asynccontextmanager
async def _chatting(
    habitus: Habitus,
    surface: Terminal | JsonPipe | TextPipe,
    chat_context: ChatContext,
    past: PastSession | None = None,
    attach: Sequence[Path] = (),
    typed: Typed = slash_command,
) -> AsyncIterator[Chat]:
    """Yield a chat on a surface, and close everything it opened at the end."""
    # Keys typed while the session opens would be echoed into the prompt.
    with silent_keyboard():
        chat = Chat(
            habitus,
            surface,
            open_session=partial(_open_session, habitus, surface.ask, chat_context.read),
            run_command=partial(_run, habitus, surface),
            models=habitus.models,
            resume=past.session if past is not None else "",
            attached=attach,
            context=chat_context,
            typed=typed,
        )
    if isinstance(surface, Terminal):
        names = Names(invocable=chat.invocable, known=chat.skill_names)
        surface.prompt = LineEditor(habitus.place, names, habitus.redactor)
    try:
        yield chat
    finally:
        await chat.close()
        await habitus.models.close()


def _open_session(habitus: Habitus, ask: AskPerson, read: Sequence[Path], resume: str) -> Session:
    folders = [given_path(folder) for folder in read]
    return habitus.session(id=resume or None, resume=bool(resume), ask=ask, read=folders)


def _run(habitus: Habitus, surface: Surface, words: Sequence[str]) -> list[tuple[str, ...]]:
    """Run a command of the command line inside the chat and return the commands that undo it."""
    if not isinstance(surface, JsonPipe):
        return _run_here(habitus, words)
    # A JSON pipe carries one object per line, so the command's own output is wrapped in one.
    with redirect_stdout(io.StringIO()) as said:
        undos = _run_here(habitus, [*words, "--json"])
    surface.put({"type": "command", "command": " ".join(words), "output": json.loads(said.getvalue())})
    return undos


def _run_here(habitus: Habitus, words: Sequence[str]) -> list[tuple[str, ...]]:
    """Run a command in this process on the open home; return the commands that undo it."""
    undos: list[tuple[str, ...]] = []
    in_chat, undone = output.in_chat.set(slash_command), output.can_be_undone.set(undos.append)
    try:
        with share_habitus(habitus):
            whole()(list(words), standalone_mode=False)
    except typer.TyperException as error:
        raise Invalid(error.format_message(), hint="See /help.") from None
    finally:
        output.in_chat.reset(in_chat)
        output.can_be_undone.reset(undone)
    return undos


def _surface(as_json: bool, typed: Typed = slash_command) -> Terminal | JsonPipe | TextPipe:
    """Return the surface that fits: JSON Lines, a terminal or plain text."""
    if as_json:
        return _json_pipe()
    return Terminal(typed=typed) if _is_terminal() else TextPipe(write=output.write, remark=output.complain)


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _json_pipe() -> JsonPipe:
    return JsonPipe(write=output.write, is_ascii=not output.is_unicode())
