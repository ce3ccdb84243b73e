"""`delete_skill`: move a skill to the archive."""

from __future__ import annotations

from pydantic import Field

from habitus.agent.changes import Changes
from habitus.agent.consent import Question
from habitus.agent.tools.registry import Arguments, Running, Tool, returned
from habitus.errors import ToolFailed
from habitus.events import ToolResult
from habitus.skills.review import Action, Change


class DeleteSkill(Arguments):
    name: str = Field(description="The skill to delete.")


def delete_skill(changes: Changes) -> Tool:
    async def run(given: DeleteSkill, running: Running) -> ToolResult:
        item = changes.find(given.name)
        if not changes.view.library.layer(item.layer).can_write:
            raise ToolFailed(f"'{item.name}' is in the read-only layer '{item.layer}'. Use disable_skill instead.")
        change = Change(action=Action.REMOVE, name=item.name, layer=item.layer)
        question = Question(text=f"Move the skill '{item.name}' to the archive?")
        done = await changes.submit(change, "the agent wants it gone", question)
        return returned({"deleted": done.proposal is None, **done.told()})

    return Tool(
        name="delete_skill",
        description="Delete a skill that is wrong or no longer needed. It goes to an archive and can be restored.",
        arguments=DeleteSkill,
        run=run,
    )
