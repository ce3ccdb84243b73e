"""`search_skills`: find the skill for a task when the list does not show it."""

from __future__ import annotations

from collections.abc import Callable, Collection

from pydantic import Field

from habitus.agent.tools.registry import Arguments, Running, Tool
from habitus.errors import ToolFailed
from habitus.events import ToolResult
from habitus.skills.finding import Finder
from habitus.skills.library import Library
from habitus.skills.menu import line


class SearchSkills(Arguments):
    query: str = Field(description="What is to be done, in a sentence.")
    limit: int | None = Field(default=None, ge=1, le=20, description="How many at most; 5 without.")


def search_skills(finder: Finder, library: Library, may_load: Callable[[], Collection[str]]) -> Tool:
    async def run(given: SearchSkills, running: Running) -> ToolResult:
        if not given.query.strip():
            raise ToolFailed("The query is empty. Say in a sentence what is to be done.")
        results = finder.search(given.query, k=given.limit or 5, among=may_load())
        if not results.hits:
            return ToolResult(content="No skill matches. Work it out, and save it with create_skill if it is worth it.")
        head = "Load one with recall_skill:" if results.fits else "Nothing fits well; the nearest:"
        summaries = {item.name: item.summary for item in library.listing()}
        found = [summary for hit in results.hits if (summary := summaries.get(hit.id)) is not None]
        return ToolResult(content="\n".join([head, *map(line, found)]))

    return Tool(
        name="search_skills",
        description="Search all skills by what is to be done. Use it when the list of available skills has nothing "
        "that fits, or says that more are not shown.",
        arguments=SearchSkills,
        run=run,
        is_parallel=True,
    )
