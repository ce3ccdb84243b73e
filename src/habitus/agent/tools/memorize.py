"""`memorize`: keep one sentence: a fact, a preference, a rule, a lesson."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from habitus.agent.background import in_thread
from habitus.agent.consent import AskPerson, Consent, Question
from habitus.agent.tools.registry import Arguments, Running, Tool, returned
from habitus.events import OK, ToolResult, failed
from habitus.memory.cortex import Cortex
from habitus.memory.model import MEDIUM, Draft, Encoded, Producer, Status


class Memorize(Arguments):
    text: str = Field(description="One sentence, understandable without this conversation.")
    kind: Literal["profile", "always", "never", "when", "lesson"] = Field(
        description="profile: about the user. always, never, when: a rule they want kept. lesson: what work taught."
    )
    scope: Literal["user", "project", "workspace", "global"] | None = Field(
        default=None, description="For whom it holds; the user without."
    )


def memorize(cortex: Cortex, *, user: str, project: str, ask: AskPerson) -> Tool:
    async def run(given: Memorize, running: Running) -> ToolResult:
        draft = Draft(
            text=given.text,
            kind=given.kind,
            scope=given.scope or "user",
            confidence=MEDIUM,
            source="memorize",
            user=user,
            project=project,
            produced_by=Producer.MODEL,
        )
        done = await in_thread(lambda: cortex.encode(draft))
        if done.status is Status.WAITING and done.engram is not None:
            done = await _decided(cortex, done, user, ask)
        told = {"status": done.status.value, "id": done.engram.id if done.engram else None, "reason": done.reason}
        refused = done.status in (Status.REFUSED, Status.OFF, Status.PAUSED)
        return returned(told, failed(done.reason) if refused else OK)

    return Tool(
        name="memorize",
        description="Remember one sentence beyond this conversation: a fact about the user, a rule they want kept, "
        "or a lesson. Procedures go into skills instead.",
        arguments=Memorize,
        run=run,
    )


async def _decided(cortex: Cortex, waiting: Encoded, user: str, ask: AskPerson) -> Encoded:
    """What needs a person's word is asked of the person who is there."""
    assert waiting.engram is not None
    id = waiting.engram.id
    question = Question(text=f"Remember this? {waiting.engram.text}", detail=f"It waits because {waiting.reason}.")
    match await ask(question):
        case Consent.YES:
            kept = await in_thread(lambda: cortex.approve(id, by=user))
            return Encoded(status=Status.STORED, engram=kept, reason="confirmed by the person")
        case Consent.NO:
            reason = "turned down in the conversation"
            turned_down = await in_thread(lambda: cortex.reject(id, by=user, reason=reason))
            return Encoded(status=Status.REFUSED, engram=turned_down, reason="the person said no")
        case Consent.LATER:
            return waiting
