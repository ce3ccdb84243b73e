"""The state of a turn, as its steps fill it in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from habitus.agent.prompts.prompt import ComposedPrompt
from habitus.agent.user_input import PreparedUserInput
from habitus.events import OK, AgentEvent, Outcome
from habitus.llm.model import ChatMessage, TokenUsage
from habitus.memory.model import SCRATCHPAD_TOPIC
from habitus.skills.choosing.selection import SkillSelection
from habitus.skills.model import Skill


@dataclass(kw_only=True, eq=False)
class TurnState:
    """Everything known about a turn so far."""

    id: str
    user_input: PreparedUserInput
    began_on: datetime
    selection: SkillSelection | None = None
    composed: ComposedPrompt | None = None
    # None if all available tools were shown.
    shown_tools: set[str] | None = None
    # Loaded by the model, the person or another skill; known at the end.
    loaded: tuple[Skill, ...] = ()
    # The loaded skills that the model itself asked for.
    asked: frozenset[str] = frozenset()
    # As far as the host provides them.
    messages: Sequence[ChatMessage] = ()
    events: list[AgentEvent] = field(default_factory=list)
    usage: TokenUsage = field(default_factory=TokenUsage)
    rounds: int = 0
    reply: str = ""
    outcome: Outcome = OK
    # Who judged the turn; empty if the outcome is only inferred.
    judged_by: str = ""
    is_capped: bool = False
    is_cancelled: bool = False

    @property
    def has_shown_scratchpad(self) -> bool:
        """Whether the model saw the scratchpad and the lessons in its description."""
        return self.shown_tools is None or SCRATCHPAD_TOPIC in self.shown_tools
