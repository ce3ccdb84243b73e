"""`report_outcome`: the model's own word on how the work went, which counts for little."""

from __future__ import annotations

from pydantic import Field

from habitus.agent.tools.registry import Arguments, Running, Tool, returned
from habitus.errors import ToolFailed
from habitus.events import OK, ToolResult, failed
from habitus.text import one_line


class ReportOutcome(Arguments):
    ok: bool = Field(description="Whether what was asked is done, and checked.")
    reason: str | None = Field(default=None, description="What went wrong, in a sentence; needed when it did not.")


def report_outcome() -> Tool:
    def run(given: ReportOutcome, running: Running) -> ToolResult:
        reason = one_line(given.reason or "").strip()
        if not given.ok and not reason:
            raise ToolFailed("Say in 'reason' what went wrong.")
        running.report(OK if given.ok else failed(running.redactor.redact(reason).text[:500]))
        return returned({"recorded": "ok" if given.ok else "failed", "weight": "weak: the model's own word"})

    return Tool(
        name="report_outcome",
        description="Say at the end of a task whether it worked, so that skills are judged by results. Be honest: "
        "a failure that is told improves the skill.",
        arguments=ReportOutcome,
        run=run,
    )
