"""`habitus chat` and `habitus ask`: talk to an agent that keeps what it works out."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from habitus.cli import output
from habitus.cli.opening import opened, shared
from habitus.cli.sessions import resolved
from habitus.errors import Invalid, UserError

if TYPE_CHECKING:
    from habitus.agent.consent import AskPerson
    from habitus.agent.session import Session
    from habitus.app import Habitus
    from habitus.repl.chat import Chat
    from habitus.repl.keyboard import Prompt
    from habitus.repl.pipes import JsonPipe, TextPipe
    from habitus.repl.terminal import Terminal

Model = Annotated[str, typer.Option("--model", "-m", help="provider:model, or script:PATH; else HABITUS_MODEL.")]
Attach = Annotated[list[Path] | None, typer.Option("--attach", "-a", help="Send this file along; may be repeated.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print every event as one line of JSON.")]


def chat(
    context: typer.Context,
    session: Annotated[str | None, typer.Argument(help="With --resume: which session; else the last.")] = None,
    resume: Annotated[bool, typer.Option("--resume", "-r", help="Go on with an earlier session.")] = False,
    model: Model = "",
    attach: Attach = None,
    as_json: AsJson = False,
) -> None:
    """Talk to the agent. Without a terminal every line of standard input is a turn; exit code 1 if one failed."""
    if session is not None and not resume:
        raise typer.BadParameter("A session is named with --resume; to ask one thing, use 'habitus ask'.")
    from asyncio import run  # slow to import, and help does without

    with _lines_of_errors(as_json), opened(context, model=model) as habitus:
        id = resolved(habitus, session) if resume else None
        try:
            is_well = run(_chat(habitus, id, attach or [], as_json))
        except KeyboardInterrupt:
            if as_json or not _is_terminal():
                raise
            is_well = True  # pressed between two prompts, where it leaves the chat as it does at one
    if not is_well:
        raise typer.Exit(1)


def ask(
    context: typer.Context,
    request: Annotated[str | None, typer.Argument(help="What to ask; '-' or nothing reads standard input.")] = None,
    model: Model = "",
    attach: Attach = None,
    as_json: AsJson = False,
) -> None:
    """Ask one thing and print the answer; exit code 1 if that failed."""
    from asyncio import run  # slow to import, and help does without

    with _lines_of_errors(as_json), opened(context, model=model) as habitus:
        if request is None and sys.stdin.isatty():
            raise typer.BadParameter("Say what to ask: habitus ask 'How do I …?'")
        text = sys.stdin.read() if request in (None, "-") else request
        is_well = run(_ask(habitus, text or "", attach or [], as_json))
    if not is_well:
        raise typer.Exit(1)


@contextmanager
def _lines_of_errors(is_json: bool) -> Iterator[None]:
    """In JSON Lines an error is a line, too."""
    try:
        yield
    except output.Lost:
        raise
    except UserError as error:
        if not is_json:
            raise
        _json_pipe().complain(error.message, error.mend)
        raise typer.Exit(1) from None


async def _chat(habitus: Habitus, id: str | None, attach: Sequence[Path], as_json: bool) -> bool:
    if as_json or not _is_terminal():
        return await _chat_in_a_pipe(habitus, id, attach, _json_pipe() if as_json else _text_pipe())
    return await _chat_at_a_terminal(habitus, id, attach)


async def _chat_at_a_terminal(habitus: Habitus, id: str | None, attach: Sequence[Path]) -> bool:
    from rich.text import Text

    from habitus.repl.chat import Chat
    from habitus.repl.keyboard import silent_keyboard
    from habitus.repl.terminal import Terminal, converse

    terminal = Terminal()
    with silent_keyboard():
        chat = Chat(
            habitus,
            terminal,
            open_session=_sessions(habitus, id, terminal.ask),
            run_command=lambda words: _run(habitus, words),
            drafter=lambda: habitus.models.cheap,
            attached=attach,
        )
    terminal.prompt = _prompt(habitus, chat)
    terminal.console.print(Text.assemble(("habitus", "bold"), f"  {chat.session.model}  ", ("/help", "dim")))
    if id:
        turns = habitus.journal.turns_of(id)
        last = output.clean(" ".join(turns[-1].request.split()))[:60]
        terminal.console.print(Text(f"Resumed {id}, {output.counted(len(turns), 'turn')}; last: {last}", style="dim"))
    try:
        await converse(chat, terminal)
    finally:
        await chat.close()
        await habitus.models.close()
    if chat.session.last is not None:
        terminal.console.print(Text(f"Go on with: habitus chat --resume {chat.session.id}", style="dim"))
    return True


async def _chat_in_a_pipe(habitus: Habitus, id: str | None, attach: Sequence[Path], pipe: JsonPipe | TextPipe) -> bool:
    from habitus.repl.chat import Chat
    from habitus.repl.pipes import JsonPipe, typed_lines

    def run_command(words: Sequence[str]) -> None:
        if not isinstance(pipe, JsonPipe):
            _run(habitus, words)
            return
        with redirect_stdout(io.StringIO()) as said:
            _run(habitus, [*words, "--json"])
        pipe.put({"type": "command", "command": " ".join(words), "output": json.loads(said.getvalue())})

    chat = Chat(
        habitus,
        pipe,
        open_session=_sessions(habitus, id, pipe.ask),
        run_command=run_command,
        drafter=lambda: habitus.models.cheap,
        attached=attach,
    )
    if isinstance(pipe, JsonPipe):
        pipe.put({"type": "session", "id": chat.session.id, "model": chat.session.model})
    try:
        async for line in typed_lines():
            if not await chat.handle(line):
                break
    finally:
        await chat.close()
        await habitus.models.close()
    return chat.went_well


async def _ask(habitus: Habitus, text: str, attach: Sequence[Path], as_json: bool) -> bool:
    from habitus.repl.chat import Chat
    from habitus.repl.terminal import Terminal

    surface: Terminal | JsonPipe | TextPipe
    if as_json:
        surface = _json_pipe()
    elif _is_terminal():
        surface = Terminal()
    else:
        surface = _text_pipe()
    chat = Chat(
        habitus,
        surface,
        open_session=_sessions(habitus, None, surface.ask),
        run_command=lambda words: _run(habitus, words),
        drafter=lambda: habitus.models.cheap,
    )
    if isinstance(surface, Terminal):
        surface.prompt = _prompt(habitus, chat)
    try:
        await chat.say(text, [habitus.settings.cwd / path for path in attach])
    finally:
        await chat.close()
        await habitus.models.close()
    return chat.went_well


def _prompt(habitus: Habitus, chat: Chat) -> Prompt:
    from habitus.repl.keyboard import Names, Prompt

    return Prompt(habitus.place, Names(invocable=chat.invocable, known=chat.known), habitus.redactor)


def _sessions(habitus: Habitus, id: str | None, ask: AskPerson) -> Callable[[], Session]:
    """The session that is resumed first, then new ones."""
    waiting = [id] if id else []

    def open_session() -> Session:
        id = waiting.pop() if waiting else None
        return habitus.session(id=id, resume=id is not None, ask=ask)

    return open_session


def _run(habitus: Habitus, words: Sequence[str]) -> None:
    """A command of the command line, in this conversation."""
    from habitus.cli.main import app

    in_chat = output.in_chat.set(True)
    try:
        with shared(habitus):
            app(list(words), standalone_mode=False)
    except typer.TyperException as error:
        raise Invalid(error.format_message(), mend="See /help.") from None
    finally:
        output.in_chat.reset(in_chat)


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _json_pipe() -> JsonPipe:
    from habitus.repl.pipes import JsonPipe

    return JsonPipe(write=output.write, is_ascii=not output.is_unicode())


def _text_pipe() -> TextPipe:
    from habitus.repl.pipes import TextPipe

    return TextPipe(write=output.write, remark=output.complain)
