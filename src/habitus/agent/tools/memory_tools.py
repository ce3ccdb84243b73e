"""Tools for memory: store a sentence, and list what was learned."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema

from habitus.access import Access
from habitus.agent.background import in_thread
from habitus.agent.choosing import SessionMemory
from habitus.agent.stream import AskPerson, Consent, Question
from habitus.agent.tools.registry import Arguments, Reach, Running, Tool, explain_absence, json_result
from habitus.events import OK, ToolResult, failure
from habitus.memory.memory import Cortex
from habitus.memory.model import MEDIUM, Draft, Encoded, Evidence, Kind, Producer, Status


def memory_tools(memory: SessionMemory, *, conversation: str, ask: AskPerson) -> list[Tool]:
    """Build the tools for memory."""
    return [memorize(memory, conversation=conversation, ask=ask), list_lessons(memory.cortex, user=memory.user)]


class Memorize(Arguments):
    """Remember one sentence beyond this conversation: a fact about the user, a rule they want kept, or a lesson.
    Procedures go into skills instead."""

    text: str = Field(description="One sentence, understandable without this conversation.")
    kind: Annotated[Kind, WithJsonSchema({"type": "string", "enum": [kind.value for kind in Kind]})] = Field(
        description="; ".join(f"{kind.value}: {kind.meaning}" for kind in Kind) + "."
    )
    scope: Literal["user", "project", "workspace", "global"] | None = Field(
        default=None, description="For whom it holds; the user without."
    )


def memorize(memory: SessionMemory, *, conversation: str, ask: AskPerson) -> Tool:
    """Build the tool that stores a sentence."""
    cortex, user = memory.cortex, memory.user

    async def run(given: Memorize, running: Running) -> ToolResult:
        draft = Draft(
            text=given.text,
            kind=given.kind,
            scope=given.scope or "user",
            confidence=MEDIUM,
            source="memorize",
            evidence=Evidence(trace=running.turn, session=conversation),
            user=user,
            project=memory.project,
            produced_by=Producer.MODEL,
        )
        done = await in_thread(lambda: cortex.encode(draft))
        if done.status is Status.WAITING and done.engram is not None:
            done = await _ask_decision(cortex, done, user, ask)
        reason = explain_absence(done.reason)
        told = {"status": done.status.value, "id": done.engram.id if done.engram else None, "reason": reason}
        refused = done.status in (Status.REFUSED, Status.OFF, Status.PAUSED)
        return json_result(told, failure(reason) if refused else OK)

    return Tool(arguments=Memorize, run=run, access=Access.ADMIN, is_default=True, is_repeatable=True)


async def _ask_decision(cortex: Cortex, waiting: Encoded, user: str, ask: AskPerson) -> Encoded:
    """Ask the person about a pending lesson and apply their decision."""
    assert waiting.engram is not None
    id = waiting.engram.id
    question = Question(text=f"Remember this? {waiting.engram.text}", detail=f"It waits because {waiting.reason}.")
    match await ask(question):
        case Consent.YES | Consent.ALWAYS:
            kept = await in_thread(lambda: cortex.approve(id, by=user))
            return Encoded(status=Status.STORED, engram=kept, reason="confirmed by the person")
        case Consent.NO:
            reason = "turned down in the conversation"
            turned_down = await in_thread(lambda: cortex.reject(id, by=user, reason=reason))
            # The agent hears of it through this result.
            await in_thread(lambda: cortex.note_told([id]))
            return Encoded(status=Status.REFUSED, engram=turned_down, reason="the person said no")
        case Consent.LATER:
            return waiting


class ListLessons(Arguments):
    """List what is remembered: rules, facts and lessons, the newest first. Use it when the user asks what you have
    learned."""

    scope: Literal["today", "week", "all", "self-play"] | None = Field(
        default=None, description="Since when, or only what self-play taught; all without."
    )
    limit: int | None = Field(default=None, ge=1, le=200, description="How many at most; 20 without.")


def list_lessons(cortex: Cortex, *, user: str) -> Tool:
    """Build the tool that lists lessons."""

    def run(given: ListLessons, running: Running) -> ToolResult:
        found = cortex.list_lessons(given.scope or "all", given.limit or 20, user=user)
        return json_result(
            {
                "lessons": [
                    {
                        "id": engram.id,
                        "text": engram.text,
                        "kind": engram.kind.value,
                        "trust": engram.trust.value,
                        "learned_on": engram.created_on,
                    }
                    for engram in found
                ]
            }
        )

    return Tool(
        arguments=ListLessons, run=run, access=Access.VIEWER, is_parallel=True, reach=Reach.NOTHING, is_default=True
    )
