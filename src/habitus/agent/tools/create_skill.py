"""`create_skill`: keep a procedure for the next time."""

from __future__ import annotations

from pydantic import Field

from habitus.agent.background import in_thread
from habitus.agent.changes import Changes
from habitus.agent.tools.registry import Arguments, Running, Tool, returned
from habitus.errors import ToolFailed
from habitus.events import ToolResult
from habitus.skills import names, trees
from habitus.skills.layers import USER
from habitus.skills.model import Skill, Source


class CreateSkill(Arguments):
    name: str = Field(description="A short unique name in lowercase with hyphens, like 'monthly-report'.")
    title: str = Field(description="The name as a person would write it.")
    description: str = Field(description="What it does and when it applies: the line by which it is found again.")
    content: str = Field(description="The whole procedure in Markdown, as instructions for whoever does it next.")
    tags: list[str] | None = Field(default=None, description="A few words to sort it under.")


def create_skill(changes: Changes) -> Tool:
    async def run(given: CreateSkill, running: Running) -> ToolResult:
        name = names.checked(given.name)
        if await in_thread(lambda: changes.is_taken(name)):
            raise ToolFailed(f"There is a skill '{name}' already. Change it with update_skill, or take another name.")
        if not given.content.strip():
            raise ToolFailed("The procedure is empty. Write its steps into 'content'.")
        skill = Skill(
            name=name,
            title=given.title,
            description=given.description,
            tags=tuple(given.tags or ()),
            source=Source.AGENT,
            body=given.content,
        )
        tree = trees.with_skill({}, skill)
        done = await changes.write(USER, name, tree, "the agent worked it out", f"Save the skill '{name}'?")
        return returned({"name": name, "version": done.version or 1, **done.told()})

    return Tool(
        name="create_skill",
        description="Save a procedure as a skill, so that it can be followed next time without working it out again.",
        arguments=CreateSkill,
        run=run,
        keeps=True,
    )
