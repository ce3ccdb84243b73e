"""The parts of a conversation, as `app` puts them together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime

from habitus.agent.background import Background
from habitus.agent.memory import SessionMemory
from habitus.agent.offered_tools import OfferedTools
from habitus.agent.outage import Outage
from habitus.agent.prompt import Identity
from habitus.agent.stream import TimedPerson, nobody
from habitus.agent.transcription import Transcriber
from habitus.agent.view import OtherFiles, View
from habitus.events import TurnObserver
from habitus.journal.journal import Journal
from habitus.journal.spool import Spool
from habitus.memory.model import Encoded
from habitus.redact import Redactor
from habitus.sandbox.input_files import Given
from habitus.skills.finding import Finder
from habitus.skills.gates import GateContext
from habitus.skills.review import Review
from habitus.skills.selection import User


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    view: View
    files: OtherFiles
    finder: Finder
    review: Review
    journal: Journal
    spool: Spool
    memory: SessionMemory
    identity: Identity
    tools: OfferedTools
    observers: Sequence[TurnObserver]
    transcribe: Transcriber
    outage: Outage
    redactor: Redactor
    clock: Callable[[], datetime]
    context_tokens: int
    user: User
    given: Given  # where what is attached is laid for the code that runs
    person: TimedPerson = field(default_factory=lambda: TimedPerson(nobody))
    learned: Callable[[], tuple[Encoded, ...]] = tuple  # what is new in memory since it was last asked for
    project: str = ""
    source_type: str = "repl"
    background: Background = field(default_factory=Background)
    before_turn: Callable[[], None] = lambda: None  # what others have left to be done here between two turns
    ready: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0)  # what code needs besides, before a call runs any
    closing: AsyncExitStack = field(default_factory=AsyncExitStack)  # what else ends with the conversation

    @property
    def gates(self) -> GateContext:
        """Those of the user, with the tools that are there."""
        return self.tools.gates
