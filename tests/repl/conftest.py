"""A chat without a terminal: a surface that keeps what it is told."""

from __future__ import annotations

import io
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field

import pytest
from rich.console import Console

from habitus.agent.stream import Consent, ConsentQuestion, TurnEvent, TurnResult
from habitus.app import Habitus
from habitus.llm.model import SessionModels
from habitus.llm.scripted import Script, ScriptedModel
from habitus.repl.chat import Chat
from habitus.repl.lines import CommandOutput


@dataclass(kw_only=True, slots=True)
class Kept:
    """What a surface was told, and what it answers."""

    answer: Consent = Consent.YES
    can_ask: bool = True
    events: list[TurnEvent] = field(default_factory=list)
    reports: list[CommandOutput] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    questions: list[ConsentQuestion] = field(default_factory=list)
    commands: list[Sequence[str]] = field(default_factory=list)

    async def show_turn(
        self, events: AsyncGenerator[TurnEvent, None], cancel: Callable[[], object]
    ) -> TurnResult | None:
        done = None
        async with aclosing(events):
            async for event in events:
                self.events.append(event)
                done = event if isinstance(event, TurnResult) else done
        return done

    def show_report(self, report: CommandOutput) -> None:
        self.reports.append(report)

    show_unasked_report = show_report

    def show_error(self, message: str, hint: str = "") -> None:
        self.complaints.append(f"{message} {hint}".strip())

    async def ask(self, question: ConsentQuestion) -> Consent:
        self.questions.append(question)
        return self.answer

    def run_command(self, words: Sequence[str]) -> list[tuple[str, ...]]:
        self.commands.append(words)
        return []

    @contextmanager
    def show_waiting_indicator(self, activity: str, cancel: Callable[[], object]) -> Iterator[None]:
        yield

    def last(self) -> str:
        """The last report as text."""
        console = Console(file=io.StringIO(), width=80)
        console.print(self.reports[-1].shown)
        assert isinstance(console.file, io.StringIO)
        return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


Begin = Callable[[Script], tuple[Chat, Kept, ScriptedModel]]


@pytest.fixture
async def begin(habitus: Habitus) -> AsyncIterator[Begin]:
    """`begin(script)` opens a chat with its surface and its model, which drafts, too."""
    chats: list[Chat] = []

    def start(script: Script) -> tuple[Chat, Kept, ScriptedModel]:
        model, kept = ScriptedModel(script), Kept()
        chat = Chat(
            habitus,
            kept,
            open_session=lambda resume: habitus.session(model, ask=kept.ask, id=resume or None, resume=bool(resume)),
            run_command=kept.run_command,
            models=SessionModels("main", open_model=lambda name: model),
        )
        chats.append(chat)
        return chat, kept, model

    yield start
    for chat in chats:
        await chat.close()
