"""`update_skill`: correct a skill in place, by one operation on its text and new values for its fields."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from habitus.agent.background import in_thread
from habitus.agent.changes import Changes
from habitus.agent.tools.editing import EditArguments
from habitus.agent.tools.registry import Running, Tool, returned
from habitus.events import ToolResult
from habitus.files import Tree
from habitus.skills import edits, trees
from habitus.skills.layers import USER
from habitus.skills.library import Fields, Library
from habitus.skills.listing import Listed
from habitus.skills.model import Skill


class UpdateSkill(EditArguments):
    name: str = Field(description="The skill to change.")
    title: str | None = Field(default=None, description="A new title.")
    description: str | None = Field(default=None, description="A new description.")
    tags: list[str] | None = Field(default=None, description="New tags, in place of all it has.")


def update_skill(changes: Changes) -> Tool:
    async def run(given: UpdateSkill, running: Running) -> ToolResult:
        layer, name, tree, skill = await in_thread(lambda: _as_it_is(changes, given.name))
        fields = Fields(
            title=given.title,
            description=given.description,
            tags=None if given.tags is None else tuple(given.tags),
        )
        edited = fields.applied(replace(skill, body=edits.apply(skill.body, given.edit)))
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


def _as_it_is(changes: Changes, wanted: str) -> tuple[str, str, Tree, Skill]:
    """Where the change goes and the files it starts from: those that wait, the skill's, or a read-only one's."""
    waiting = changes.waiting_tree(wanted)
    if waiting is not None:
        layer, name, tree = waiting
    else:
        layer, name, tree = writable_copy(changes.view.library, changes.find(wanted))
    parsed = trees.parse(name, tree)
    assert parsed.skill is not None  # find() refuses the broken ones
    return layer, name, tree, parsed.skill


def writable_copy(library: Library, item: Listed) -> tuple[str, str, Tree]:
    skill = library.load(item.name)  # a broken one is an error here
    layer = library.layer(item.layer)
    tree = layer.store.tree(item.name) or {}
    return (layer.name if layer.can_write else USER), skill.name, tree
