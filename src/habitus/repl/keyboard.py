"""The keyboard: lines with history and completion, and answers to questions."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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

from habitus.agent.stream import Consent
from habitus.app.home_directory import CHAT_HISTORY
from habitus.redact import Redactor
from habitus.repl.commands import completions

_STYLE = Style.from_dict({"prompt": "ansicyan bold", "question": "bold", "choices": "ansibrightblack"})
_ANSWERS = {
    **dict.fromkeys(("y", "yes"), Consent.YES),
    **dict.fromkeys(("n", "no"), Consent.NO),
    **dict.fromkeys(("l", "later"), Consent.LATER),
    **dict.fromkeys(("a", "always", Consent.ALWAYS), Consent.ALWAYS),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Names:
    """What can be completed, asked anew at every key."""

    invocable: Callable[[], Mapping[str, str]]
    known: Callable[[], Iterable[str]]


class LineEditor:
    """One person's line editor. Ctrl-C is a KeyboardInterrupt, Ctrl-D at an empty prompt an EOFError."""

    def __init__(self, home: Path, names: Names, redactor: Redactor) -> None:
        self._lines: PromptSession[str] = PromptSession(
            history=_History(_private(home / CHAT_HISTORY), redactor),
            completer=_Completer(names),
            complete_while_typing=Condition(lambda: get_app().current_buffer.text.startswith("/")),
            multiline=True,
            prompt_continuation=lambda width, line, wrap: " " * width,
            key_bindings=_keys(),
            reserve_space_for_menu=8,
            style=_STYLE,
        )
        self._answers: PromptSession[str] = PromptSession(style=_STYLE)

    async def line(self) -> str:
        with patch_stdout(raw=True):  # what learning logs meanwhile goes above the line
            return await self._lines.prompt_async([("class:prompt", "› ")])

    async def answer(self, question: str, choices: Sequence[Consent]) -> Consent:
        """One of the choices; what was typed before the question could be seen is no answer."""
        _forget_typed(self._answers)
        offered = f" {', '.join(choices[:-1])} or {choices[-1]} "
        asked = FormattedText([("class:question", question), ("class:choices", offered), ("class:prompt", "› ")])
        while True:
            said = await self._answers.prompt_async(asked, handle_sigint=False)
            answer = _ANSWERS.get(said.strip().lower())
            if answer is not None and answer in choices:
                return answer


class _History(FileHistory):
    """What was typed, without secrets."""

    def __init__(self, path: Path, redactor: Redactor) -> None:
        self._redactor = redactor
        super().__init__(str(path))

    def store_string(self, string: str) -> None:
        super().store_string(self._redactor.redact(string).text)


def _private(path: Path) -> Path:
    """A file for its owner's eyes only."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    return path


class _Completer(Completer):
    def __init__(self, names: Names) -> None:
        self._names = names

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Offered]:
        text = document.text_before_cursor
        for found in completions(text, self._names.invocable(), self._names.known()) if text.startswith("/") else ():
            yield Offered(found.text, start_position=-found.start, display_meta=found.help)


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None  # the offer is taken; the line is not sent yet
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
def silent_keyboard() -> Iterator[None]:
    """What is typed meanwhile is kept for the next line and does not run into what is shown."""
    if not sys.stdin.isatty():
        yield
        return
    import termios

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    silent = [*before]
    silent[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(terminal, termios.TCSADRAIN, silent)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _forget_typed(session: PromptSession[str]) -> None:
    clear_typeahead(session.input)
    if sys.stdin.isatty():
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
