"""Tools for memory: store a sentence, and list what was learned."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema

from habitus.access import Access
from habitus.agent.background import run_in_thread
from habitus.agent.stream import AskPerson, Consent, ConsentQuestion
from habitus.agent.tools.registry import (
    Tool,
    ToolArguments,
    ToolCallContext,
    ToolEffectReach,
    build_json_result,
    rewrite_commands_as_notes_for_person,
)
from habitus.agent.user_memory import UserProjectMemory
from habitus.events import OK, ToolResult, build_failed_outcome
from habitus.memory.cortex import Cortex
from habitus.memory.model import (
    MEDIUM_CONFIDENCE,
    LessonDraft,
    LessonDraftOutcome,
    LessonDraftResult,
    LessonKind,
    LessonProducer,
    LessonProvenance,
)


def build_memory_tools(memory: UserProjectMemory, *, conversation: str, ask: AskPerson) -> list[Tool]:
    """Build the tools for memory."""
    return [
        build_memorize_tool(memory, conversation=conversation, ask=ask),
        build_list_lessons_tool(memory.cortex, user=memory.user),
    ]


class MemorizeArguments(ToolArguments):
    """Remember one sentence beyond this conversation: a fact about the user, a rule they want kept, or a lesson.
    Procedures go into skills instead."""

    text: str = Field(description="One sentence, understandable without this conversation.")
    kind: Annotated[LessonKind, WithJsonSchema({"type": "string", "enum": [kind.value for kind in LessonKind]})] = (
        Field(description="; ".join(f"{kind.value}: {kind.meaning}" for kind in LessonKind) + ".")
    )
    scope: Literal["user", "project", "workspace", "global"] | None = Field(
        default=None, description="Whom it applies to; the user by default."
    )


def build_memorize_tool(memory: UserProjectMemory, *, conversation: str, ask: AskPerson) -> Tool:
    """Build the tool that stores a sentence."""
    cortex, user = memory.cortex, memory.user

    async def run(given: MemorizeArguments, running: ToolCallContext) -> ToolResult:
        draft = LessonDraft(
            text=given.text,
            kind=given.kind,
            scope=given.scope or "user",
            confidence=MEDIUM_CONFIDENCE,
            source="memorize",
            evidence=LessonProvenance(trace=running.turn, session=conversation),
            user=user,
            project=memory.project,
            produced_by=LessonProducer.MODEL,
        )
        done = await run_in_thread(lambda: cortex.encode(draft))
        if done.status is LessonDraftOutcome.PENDING and done.engram is not None:
            done = await _ask_and_apply_lesson_decision(cortex, done, user, ask)
        reason = rewrite_commands_as_notes_for_person(done.reason)
        told = {"status": done.status.value, "id": done.engram.id if done.engram else None, "reason": reason}
        refused = done.status in (LessonDraftOutcome.REFUSED, LessonDraftOutcome.OFF, LessonDraftOutcome.PAUSED)
        return build_json_result(told, build_failed_outcome(reason) if refused else OK)

    return Tool(arguments=MemorizeArguments, run=run, access=Access.ADMIN, is_default=True, is_repeatable=True)


async def _ask_and_apply_lesson_decision(
    cortex: Cortex, held: LessonDraftResult, user: str, ask: AskPerson
) -> LessonDraftResult:
    """Ask the person about a pending lesson and apply their decision."""
    assert held.engram is not None
    id = held.engram.id
    asked = ConsentQuestion(text=f"Remember this? {held.engram.text}", detail=f"It needs review because {held.reason}.")
    match await ask(asked):
        case Consent.YES | Consent.ALWAYS:
            kept = await run_in_thread(lambda: cortex.approve(id, by=user))
            return LessonDraftResult(status=LessonDraftOutcome.STORED, engram=kept, reason="confirmed by the person")
        case Consent.NO:
            reason = "rejected in the conversation"
            turned_down = await run_in_thread(lambda: cortex.reject(id, by=user, reason=reason))
            # The agent hears of it through this result.
            await run_in_thread(lambda: cortex.mark_rejections_told([id]))
            return LessonDraftResult(status=LessonDraftOutcome.REFUSED, engram=turned_down, reason="the person said no")
        case Consent.LATER:
            return held


class ListLessonsArguments(ToolArguments):
    """List what is remembered: rules, facts and lessons, the newest first. Use it when the user asks what you have
    learned."""

    scope: Literal["today", "week", "all", "self-play"] | None = Field(
        default=None, description="Since when, or only what self-play taught; all without."
    )
    limit: int | None = Field(default=None, ge=1, le=200, description="How many at most; 20 without.")


def build_list_lessons_tool(cortex: Cortex, *, user: str) -> Tool:
    """Build the tool that lists lessons."""

    def run(given: ListLessonsArguments, running: ToolCallContext) -> ToolResult:
        found = cortex.list_lessons(given.scope or "all", given.limit or 20, user=user)
        return build_json_result(
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
        arguments=ListLessonsArguments,
        run=run,
        access=Access.VIEWER,
        is_parallel=True,
        reach=ToolEffectReach.NOTHING,
        is_default=True,
    )
