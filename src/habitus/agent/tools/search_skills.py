"""`search_skills`: find the skill for a task when the list does not show it."""

from __future__ import annotations

from pydantic import Field

from habitus.agent.tools.registry import Arguments, Running, Tool
from habitus.agent.view import View
from habitus.errors import ToolFailed
from habitus.events import ToolResult
from habitus.skills.finding import Finder
from habitus.skills.menu import line


class SearchSkills(Arguments):
    query: str = Field(description="What is to be done, in a sentence.")
    limit: int | None = Field(default=None, ge=1, le=20, description="How many at most; 5 without.")


def search_skills(finder: Finder, view: View) -> Tool:
    def run(given: SearchSkills, running: Running) -> ToolResult:
        if not given.query.strip():
            raise ToolFailed("The query is empty. Say in a sentence what is to be done.")
        seen = view.snapshot
        results = finder.search(given.query, k=given.limit or 5, among=view.may_load(), at=seen)
        if not results.hits:
            return ToolResult(content="No skill matches. Work it out, and save it with create_skill if it is worth it.")
        head = "Load one with recall_skill:" if results.fits else "Nothing fits well; the nearest:"
        known = [summary for hit in results.hits if (summary := seen.by_name[hit.id].summary) is not None]
        found = [summary for summary in known if view.may_name(summary)]
        return ToolResult(content="\n".join([head, *map(line, found)]))

    return Tool(
        name="search_skills",
        description="Search all skills by what is to be done. Use it when the list of available skills has nothing "
        "that fits, or says that more are not shown.",
        arguments=SearchSkills,
        run=run,
        is_parallel=True,
    )
