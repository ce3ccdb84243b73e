"""`enable_skill` and `disable_skill`: take a skill out of use without losing it, and back."""

from __future__ import annotations

from pydantic import Field

from habitus.agent.changes import Changes
from habitus.agent.consent import Question
from habitus.agent.tools.registry import Arguments, Running, Tool, returned
from habitus.events import ToolResult
from habitus.skills.review import Action, Change


class SwitchSkill(Arguments):
    name: str = Field(description="The skill.")


def enable_skill(changes: Changes) -> Tool:
    return _switch(changes, Action.ENABLE, "Bring a disabled skill back into use.")


def disable_skill(changes: Changes) -> Tool:
    return _switch(changes, Action.DISABLE, "Take a skill out of use without deleting it.")


def _switch(changes: Changes, action: Action, description: str) -> Tool:
    wanted = action is Action.ENABLE

    async def run(given: SwitchSkill, running: Running) -> ToolResult:
        item = changes.find(given.name)
        is_enabled = item.summary is not None and item.summary.enabled
        if is_enabled == wanted:
            return returned({"name": item.name, "enabled": is_enabled})
        change = Change(action=action, name=item.name, layer=item.layer)
        question = Question(text=f"{action.value.capitalize()} the skill '{item.name}'?")
        done = await changes.submit(change, f"the agent wants to {action.value} it", question)
        return returned({"name": item.name, "enabled": is_enabled if done.proposal else wanted, **done.told()})

    return Tool(name=f"{action.value}_skill", description=description, arguments=SwitchSkill, run=run)
