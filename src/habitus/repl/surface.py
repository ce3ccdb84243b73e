"""The surface of a chat, as the chat sees it: a terminal, a pipe of text, or a pipe of JSON."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from rich.console import RenderableType

from habitus.agent.stream import Consent, Done, Question, TurnEvent


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandReport:
    """What a command has to tell: for people as it looks, for programs as data of a type."""

    type: str
    shown: RenderableType
    data: Mapping[str, object] = field(default_factory=dict)


class Surface(Protocol):
    @property
    def can_ask(self) -> bool:
        """Whether somebody is there who can be asked something."""
        ...

    async def show_turn(self, events: AsyncGenerator[TurnEvent, None], cancel: Callable[[], object]) -> Done | None:
        """Show a turn to its end; None when it was cancelled."""
        ...

    def tell(self, report: CommandReport) -> None: ...

    def note(self, report: CommandReport) -> None:
        """Something that nobody asked for, beside the answers."""
        ...

    def complain(self, message: str, mend: str = "") -> None:
        """Something went wrong, and the chat goes on."""
        ...

    async def ask(self, question: Question) -> Consent: ...

    def waiting(self, for_what: str, cancel: Callable[[], object]) -> AbstractContextManager[None]:
        """Say what is being waited for; the person can break it off."""
        ...
