"""A chat at a terminal: line editor with history and completion, live turns, questions. Ctrl-C cancels the turn."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer
from prompt_toolkit.completion import Completion as Offered
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.styles import Style
from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from habitus import operating_system
from habitus.agent.stream import Consent, ConsentQuestion, TurnEvent, TurnResult
from habitus.app.home_directory import CHAT_HISTORY_FILE
from habitus.redact import Redactor
from habitus.repl.chat import Chat
from habitus.repl.commands import convert_cli_words_to_slash_command, list_line_completions
from habitus.repl.display import TurnDisplay
from habitus.repl.lines import CommandFormatter, CommandOutput
from habitus.text import strip_control_characters

# The most lines of a change that are shown before its question.
_MAX_DETAIL_LINES = 200


class TerminalSurface:
    """The surface of a chat at a terminal."""

    def __init__(
        self, console: Console | None = None, *, format_command: CommandFormatter = convert_cli_words_to_slash_command
    ) -> None:
        self.console = console or Console(highlight=False, markup=False, emoji=False)
        # Without an editor, questions are answered with "later".
        self.prompt: LineEditor | None = None
        self._typed = format_command
        self._display: TurnDisplay | None = None
        self._cancel: Callable[[], object] = lambda: None
        self._asking = asyncio.Lock()
        self._is_free = asyncio.Event()
        self._is_free.set()

    async def show_turn(
        self, events: AsyncGenerator[TurnEvent, None], cancel: Callable[[], object]
    ) -> TurnResult | None:
        done = None
        self._cancel = cancel
        self._display = display = TurnDisplay(console=self.console, format_command=self._typed)
        try:
            with _cancel_on_ctrl_c(cancel), suppress_key_echo():
                async with aclosing(events), display.draw_live():
                    async for event in events:
                        # Events wait while a question is on the screen.
                        await self._is_free.wait()
                        display.show_event(event)
                        done = event if isinstance(event, TurnResult) else done
                    if done is None:
                        display.show_cancelled()
        finally:
            self._display = None
        return done

    def show_report(self, report: CommandOutput) -> None:
        self.console.print(report.shown)

    show_unasked_report = show_report

    def show_error(self, message: str, hint: str = "") -> None:
        self.console.print(Text(strip_control_characters(f"{message} {hint}".strip()), style="red"))

    @property
    def can_ask(self) -> bool:
        return self.prompt is not None

    async def ask(self, question: ConsentQuestion) -> Consent:
        """Ask one question at a time, below everything printed before; an interrupted one cancels the turn."""
        if self.prompt is None:
            return Consent.LATER
        async with self._asking:
            self._is_free.clear()
            try:
                with self._display.pause_drawing() if self._display else nullcontext():
                    self._print_question_detail(question.detail)
                    return await self.prompt.ask_question(strip_control_characters(question.text), question.choices)
            except EOFError:
                return Consent.LATER
            except KeyboardInterrupt:
                self._cancel()
                return Consent.NO
            finally:
                self._is_free.set()

    def _print_question_detail(self, detail: str) -> None:
        self.console.print()
        lines = strip_control_characters(detail).splitlines()
        if not lines:
            return
        shown = "\n".join(lines[:_MAX_DETAIL_LINES])
        self.console.print(Syntax(shown, "diff", theme="ansi_dark", background_color="default", word_wrap=True))
        if len(lines) > _MAX_DETAIL_LINES:
            self.console.print(Text(f"… and {len(lines) - _MAX_DETAIL_LINES} more lines", style="dim"))

    @contextmanager
    def show_waiting_indicator(self, activity: str, cancel: Callable[[], object]) -> Iterator[None]:
        with (
            _cancel_on_ctrl_c(cancel),
            suppress_key_echo(),
            self.console.status(f"{activity} … (Ctrl-C to cancel)", spinner="dots", spinner_style="cyan"),
        ):
            yield


async def run_chat_loop(chat: Chat, terminal: TerminalSurface) -> None:
    """Read and handle lines until the person leaves."""
    assert terminal.prompt is not None
    is_leaving = False
    while True:
        try:
            line = await terminal.prompt.read_line()
        except EOFError:
            return
        except KeyboardInterrupt:
            # Two presses leave: a single one is often a late attempt to stop the turn.
            if is_leaving:
                return
            is_leaving = True
            terminal.console.print(Text("Press Ctrl-C again or Ctrl-D to quit.", style="dim"))
            continue
        is_leaving = False
        if not await chat.handle_line(line):
            return
        terminal.console.print()


@contextmanager
def _cancel_on_ctrl_c(cancel: Callable[[], object]) -> Iterator[None]:
    with operating_system.handle_signal(asyncio.get_running_loop(), signal.SIGINT, cancel):
        yield


_STYLE = Style.from_dict({"prompt": "ansicyan bold", "question": "bold", "choices": "ansibrightblack"})
_ANSWERS = {
    **dict.fromkeys(("y", "yes"), Consent.YES),
    **dict.fromkeys(("n", "no"), Consent.NO),
    **dict.fromkeys(("l", "later"), Consent.LATER),
    **dict.fromkeys(("a", "always", Consent.ALWAYS), Consent.ALWAYS),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletableNameSources:
    """Functions that return the names to complete, called on every key press."""

    invocable: Callable[[], Mapping[str, str]]
    known: Callable[[], Iterable[str]]


class LineEditor:
    """Reads lines and answers; Ctrl-C raises KeyboardInterrupt, Ctrl-D at an empty prompt EOFError."""

    def __init__(self, home: Path, names: CompletableNameSources, redactor: Redactor) -> None:
        self._lines: PromptSession[str] = PromptSession(
            history=_RedactedHistory(_create_private_file(home / CHAT_HISTORY_FILE), redactor),
            completer=_SlashCommandCompleter(names),
            complete_while_typing=Condition(lambda: get_app().current_buffer.text.startswith("/")),
            multiline=True,
            prompt_continuation=lambda width, line, wrap: " " * width,
            key_bindings=_make_key_bindings(),
            reserve_space_for_menu=8,
            style=_STYLE,
        )
        self._answers: PromptSession[str] = PromptSession(style=_STYLE)

    async def read_line(self) -> str:
        """Read a line."""
        # Log lines of background learning are printed above the prompt.
        with patch_stdout(raw=True):
            return await self._lines.prompt_async([("class:prompt", "› ")])

    async def ask_question(self, question: str, choices: Sequence[Consent]) -> Consent:
        """Ask until one of the choices is given; keys typed before the question appeared are discarded."""
        _discard_typeahead(self._answers)
        offered = f" {', '.join(choices[:-1])} or {choices[-1]} "
        asked = FormattedText([("class:question", question), ("class:choices", offered), ("class:prompt", "› ")])
        while True:
            said = await self._answers.prompt_async(asked, handle_sigint=False)
            answer = _ANSWERS.get(said.strip().lower())
            if answer is not None and answer in choices:
                return answer


class _RedactedHistory(FileHistory):
    """The history of typed lines, without secrets."""

    def __init__(self, path: Path, redactor: Redactor) -> None:
        self._redactor = redactor
        super().__init__(str(path))

    def store_string(self, string: str) -> None:
        super().store_string(self._redactor.redact(string).text)


def _create_private_file(path: Path) -> Path:
    """Create a file that only its owner can read, and return its path."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    return path


class _SlashCommandCompleter(Completer):
    def __init__(self, names: CompletableNameSources) -> None:
        self._names = names

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Offered]:
        text = document.text_before_cursor
        for found in (
            list_line_completions(text, self._names.invocable(), self._names.known()) if text.startswith("/") else ()
        ):
            yield Offered(found.text, start_position=-found.start, display_meta=found.help)


def _make_key_bindings() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            # Enter accepts the completion; a second one sends the line.
            buffer.complete_state = None
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-c")
    def _(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

    return keys


@contextmanager
def suppress_key_echo() -> Iterator[None]:
    """Keep typed keys for the next prompt instead of echoing them into the output."""
    if not sys.stdin.isatty():
        yield
        return
    with operating_system.suppress_echo():
        yield


def _discard_typeahead(session: PromptSession[str]) -> None:
    clear_typeahead(session.input)
    if sys.stdin.isatty():
        operating_system.discard_typed_input()
