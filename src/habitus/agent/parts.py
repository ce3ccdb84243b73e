"""What a session is made of."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from habitus.agent.background import Background
from habitus.agent.memory import SessionMemory
from habitus.agent.tools.registry import Tool
from habitus.agent.transcription import Transcriber
from habitus.events import TurnObserver
from habitus.journal.journal import Journal
from habitus.llm.model import Model
from habitus.redact import Redactor
from habitus.skills.finding import Finder
from habitus.skills.library import Library
from habitus.skills.review import Review
from habitus.skills.selection import Request, Selection, User

if TYPE_CHECKING:
    from habitus.agent.session import Session


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """`app` puts them together."""

    model: Model
    library: Library
    finder: Finder
    review: Review
    journal: Journal
    memory: SessionMemory
    select: Callable[[Request], Selection]
    waiting: Callable[[], int]  # changes and lessons that wait for a person
    identity: Callable[[], str]
    built_in: Callable[[Session], Sequence[Tool]]
    code_tools: Callable[[], Sequence[Tool]]  # as they are now, the waiting ones of this conversation too
    observers: Sequence[TurnObserver]
    transcribe: Transcriber
    background: Background
    close: Callable[[], Coroutine[Any, Any, None]]
    clock: Callable[[], datetime]
    redactor: Redactor
    context_tokens: int
    user: User
    project: str = ""
    source_type: str = "repl"
    changelog: Callable[[], str] = lambda: ""
