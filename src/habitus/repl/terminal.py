"""A chat at a terminal: type, watch the turn, answer questions; Ctrl-C stops what runs and not the chat."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager, nullcontext

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from habitus.agent.stream import Consent, Done, Question, TurnEvent
from habitus.repl.chat import Chat
from habitus.repl.commands import slash_command
from habitus.repl.display import TurnDisplay
from habitus.repl.keyboard import LineEditor, silent_keyboard
from habitus.repl.lines import CommandReport, Typed
from habitus.repl.plain_text import clean

_MOST_DETAIL = 200  # lines of a change that are shown before its question


class Terminal:
    def __init__(self, console: Console | None = None, *, typed: Typed = slash_command) -> None:
        self.console = console or Console(highlight=False, markup=False, emoji=False)
        self.prompt: LineEditor | None = None  # without one nobody is asked
        self._typed = typed
        self._display: TurnDisplay | None = None
        self._cancel: Callable[[], object] = lambda: None
        self._asking = asyncio.Lock()
        self._is_free = asyncio.Event()
        self._is_free.set()

    async def show_turn(self, events: AsyncGenerator[TurnEvent, None], cancel: Callable[[], object]) -> Done | None:
        done = None
        self._cancel = cancel
        self._display = display = TurnDisplay(console=self.console, typed=self._typed)
        try:
            with _interrupted_by_ctrl_c(cancel), silent_keyboard():
                async with aclosing(events), display.drawing():
                    async for event in events:
                        await self._is_free.wait()
                        display.show(event)
                        done = event if isinstance(event, Done) else done
                    if done is None:
                        display.show_cancelled()
        finally:
            self._display = None
        return done

    def tell(self, report: CommandReport) -> None:
        self.console.print(report.shown)

    note = tell

    def complain(self, message: str, mend: str = "") -> None:
        self.console.print(Text(clean(f"{message} {mend}".strip()), style="red"))

    @property
    def can_ask(self) -> bool:
        return self.prompt is not None

    async def ask(self, question: Question) -> Consent:
        """One question at a time, below everything that was said before it."""
        if self.prompt is None:
            return Consent.LATER
        async with self._asking:
            self._is_free.clear()
            try:
                with self._display.hold() if self._display else nullcontext():
                    self._show_detail(question.detail)
                    return await self.prompt.answer(clean(question.text), question.choices)
            except EOFError:
                return Consent.LATER
            except KeyboardInterrupt:
                self._cancel()
                return Consent.NO
            finally:
                self._is_free.set()

    def _show_detail(self, detail: str) -> None:
        self.console.print()
        lines = clean(detail).splitlines()
        if not lines:
            return
        shown = "\n".join(lines[:_MOST_DETAIL])
        self.console.print(Syntax(shown, "diff", theme="ansi_dark", background_color="default", word_wrap=True))
        if len(lines) > _MOST_DETAIL:
            self.console.print(Text(f"… and {len(lines) - _MOST_DETAIL} more lines", style="dim"))

    @contextmanager
    def waiting(self, for_what: str, cancel: Callable[[], object]) -> Iterator[None]:
        with (
            _interrupted_by_ctrl_c(cancel),
            silent_keyboard(),
            self.console.status(f"{for_what}, Ctrl-C stops it", spinner="dots", spinner_style="cyan"),
        ):
            yield


async def converse(chat: Chat, terminal: Terminal) -> None:
    """Until the person leaves."""
    assert terminal.prompt is not None
    is_leaving = False
    while True:
        try:
            line = await terminal.prompt.line()
        except EOFError:
            return
        except KeyboardInterrupt:
            if is_leaving:
                return
            is_leaving = True
            terminal.console.print(Text("Ctrl-C again, or Ctrl-D, leaves the chat.", style="dim"))
            continue
        is_leaving = False
        if not await chat.handle(line):
            return
        terminal.console.print()


@contextmanager
def _interrupted_by_ctrl_c(cancel: Callable[[], object]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, cancel)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
