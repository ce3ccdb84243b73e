"""`list_lessons`: what was learned, for "what did you learn today?"."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from habitus.agent.tools.registry import Arguments, Running, Tool, returned
from habitus.events import ToolResult
from habitus.memory.cortex import Cortex


class ListLessons(Arguments):
    scope: Literal["today", "week", "all", "self-play"] | None = Field(
        default=None, description="Since when, or only what self-play taught; all without."
    )
    limit: int | None = Field(default=None, ge=1, le=200, description="How many at most; 20 without.")


def list_lessons(cortex: Cortex, *, user: str) -> Tool:
    def run(given: ListLessons, running: Running) -> ToolResult:
        found = cortex.list_lessons(given.scope or "all", given.limit or 20, user=user)
        return returned(
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
        name="list_lessons",
        description="List what is remembered: rules, facts and lessons, the newest first. Use it when the user asks "
        "what you have learned.",
        arguments=ListLessons,
        run=run,
        is_parallel=True,
    )
