"""`update_skill`: correct a skill in place, by one operation on its text and new values for its fields."""

from __future__ import annotations

from pydantic import Field

from habitus.agent.background import in_thread
from habitus.agent.changes import Changes
from habitus.agent.tools.editing import EditArguments
from habitus.agent.tools.registry import Running, Tool, returned
from habitus.events import ToolResult
from habitus.files import Tree
from habitus.skills import trees
from habitus.skills.edits import Edit
from habitus.skills.library import Fields
from habitus.skills.model import Skill


class UpdateSkill(EditArguments):
    name: str = Field(description="The skill to change.")
    title: str | None = Field(default=None, description="A new title.")
    description: str | None = Field(default=None, description="A new description.")
    tags: list[str] | None = Field(default=None, description="New tags, in place of all it has.")


def update_skill(changes: Changes) -> Tool:
    async def run(given: UpdateSkill, running: Running) -> ToolResult:
        fields = Fields(
            title=given.title,
            description=given.description,
            tags=None if given.tags is None else tuple(given.tags),
        )
        layer, tree, skill, edited = await in_thread(lambda: _edited(changes, given.name, given.edit, fields))
        name = skill.name
        if edited == skill:
            return returned({"name": name, "version": skill.version})
        done = await changes.write(
            layer, name, trees.with_skill(tree, edited), "the agent corrected it", f"Change the skill '{name}'?"
        )
        return returned({"name": name, "version": done.version or skill.version, **done.told()})

    return Tool(
        name="update_skill",
        description="Change a skill: its text by one operation (replace, find_replace, append, prepend, delete), its "
        "title, description or tags. Use it when a procedure turned out wrong or the user corrects it.",
        arguments=UpdateSkill,
        run=run,
        keeps=True,
    )


def _edited(changes: Changes, wanted: str, edit: Edit, fields: Fields) -> tuple[str, Tree, Skill, Skill]:
    """Where the change goes, the files it starts from (those that wait, or one's own copy), and the skill in them
    before and after."""
    library = changes.view.library
    waiting = changes.waiting_tree(wanted)
    if waiting is None:
        item = changes.find(wanted)
        layer, tree, skill = library.own_copy(item)
        return layer, tree, skill, library.changing(item, edit, fields)(skill)
    layer, name, tree = waiting
    proposed = trees.parse(name, tree).skill
    assert proposed is not None  # no proposal is made of what can't be loaded
    there = changes.view.snapshot.by_name.get(name)
    return layer, tree, proposed, library.changing(there, edit, fields)(proposed)
