"""`manage_skills`: look after the tools that skills bring: list, test, retire, restore."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

from pydantic import Field

from habitus.agent.background import in_thread
from habitus.agent.changes import Changes
from habitus.agent.consent import Consent, Question
from habitus.agent.sandbox_services import sandbox_services
from habitus.agent.tools.advice import explained
from habitus.agent.tools.registry import Arguments, Running, Tool, returned
from habitus.errors import Refused, ToolFailed
from habitus.events import OK, ToolResult, failed
from habitus.sandbox.services import Services
from habitus.skills.model import Author
from habitus.tools.model import CodeTool
from habitus.tools.tools import Tools

T = TypeVar("T")


class ManageSkills(Arguments):
    action: Literal["list", "test", "retire", "restore"] = Field(
        description="list the tools; test one with its kept cases; retire one to the archive; restore one from there."
    )
    name: str | None = Field(default=None, description="Which tool; not for list.")


def manage_skills(tools: Tools, changes: Changes) -> Tool:
    async def run(given: ManageSkills, running: Running) -> ToolResult:
        if given.action == "list":
            return returned({"tools": [_line(tool) for tool in await in_thread(tools.all)]})
        if not given.name:
            raise ToolFailed(f"Say which tool to {given.action} in 'name'.")
        match given.action:
            case "test":
                return await _test(tools, given.name, sandbox_services(changes.view))
            case "retire":
                gone = await _confirmed(changes, tools.retire, given.name, f"Retire the tool '{given.name}'?")
                return returned({"name": gone.name, "retired": True})
            case "restore":
                back = await _confirmed(changes, tools.restore, given.name, f"Restore the tool '{given.name}'?")
                return returned({"name": back.name, "status": back.status.value})

    return Tool(
        name="manage_skills",
        description="Look after the tools that were made from code: list them with their state, test one, retire one "
        "that no longer works, restore one.",
        arguments=ManageSkills,
        run=run,
    )


def _line(tool: CodeTool) -> dict[str, object]:
    reason = explained(tool.reason)
    return {"name": tool.callable_name, "status": tool.status.value, "reason": reason, "does": tool.description}


async def _test(tools: Tools, name: str, services: Services) -> ToolResult:
    report = await tools.test(name, services=services)
    outcome = OK if report.passed else failed(f"{len(report.failed)} of {len(report.results)} cases failed")
    return returned({"name": name, "passed": report.passed, "cases": len(report.results)}, outcome)


async def _confirmed(changes: Changes, do: Callable[[str, Author], T], name: str, question: str) -> T:
    if await changes.ask(Question(text=question)) is not Consent.YES:
        raise Refused("Only a person can do that, and none said yes.", mend="Say what you would change, and why.")
    return await in_thread(lambda: changes.done(do(name, changes.person)))
