"""Tools that change skills, and the text that says who the assistant is: with a person's word, or as a proposal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from pydantic import Field, create_model

from habitus.agent.background import in_thread
from habitus.agent.changes import Changes
from habitus.agent.prompt import NAME, identity_skill
from habitus.agent.stream import Question
from habitus.agent.tools.registry import Arguments, Running, Tool, json_result
from habitus.errors import NotFound, ToolFailed
from habitus.events import ToolResult
from habitus.files import Tree
from habitus.skills import edits, names, trees
from habitus.skills.edits import Edit, Operation
from habitus.skills.fields import EDITABLE, Fields
from habitus.skills.layers import PROMPT, USER
from habitus.skills.model import Skill, Source
from habitus.skills.review import Action, Change


def writing_tools(changes: Changes) -> list[Tool]:
    return [
        create_skill(changes),
        update_skill(changes),
        delete_skill(changes),
        _switch(changes, Action.ENABLE, "Bring a disabled skill back into use."),
        _switch(changes, Action.DISABLE, "Take a skill out of use without deleting it."),
        edit_system_prompt(changes),
    ]


class CreateSkill(Arguments):
    name: str = Field(description="A short unique name in lowercase with hyphens, like 'monthly-report'.")
    title: str = Field(description="The name as a person would write it.")
    description: str = Field(description="What it does and when it applies: the line by which it is found again.")
    content: str = Field(description="The whole procedure in Markdown, as instructions for whoever does it next.")
    tags: list[str] | None = Field(default=None, description="A few words to sort it under.")


def create_skill(changes: Changes) -> Tool:
    async def run(given: CreateSkill, running: Running) -> ToolResult:
        name = names.check_name(given.name)
        if await in_thread(lambda: changes.is_taken(name)):
            raise ToolFailed(f"There is a skill '{name}' already. Change it with update_skill, or take another name.")
        if not given.content.strip():
            raise ToolFailed("The procedure is empty. Write its steps into 'content'.")
        skill = Fields.of(given).apply_to(Skill(name=name, source=Source.AGENT, body=given.content))
        tree = trees.with_skill({}, skill)
        done = await changes.write(USER, name, tree, "the agent worked it out", f"Save the skill '{name}'?")
        return json_result({"name": name, "version": done.version or 1, **done.as_result()})

    return Tool(
        name="create_skill",
        description="Save a procedure as a skill, so that it can be followed next time without working it out again.",
        arguments=_with_other_fields(CreateSkill),
        run=run,
        keeps=True,
        is_default=True,
    )


def _with_other_fields(arguments: type[Arguments]) -> type[Arguments]:
    """The arguments with those fields of a skill that people change and they do not name."""
    others: dict[str, Any] = {
        field.name: (list[str] | None if field.is_list else str | None, Field(default=None, description=field.help))
        for field in EDITABLE
        if field.name not in arguments.model_fields
    }
    return create_model(arguments.__name__, __base__=arguments, **others)


class EditArguments(Arguments):
    operation: Literal["replace", "find_replace", "append", "prepend", "delete"] | None = Field(
        default=None, description="What to do with the text; without one it stays as it is."
    )
    content: str | None = Field(
        default=None,
        description="The whole new text (replace), the text to add (append, prepend) or to remove (delete).",
    )
    find: str | None = Field(default=None, description="For find_replace: the exact text that stands there.")
    replace: str | None = Field(default=None, description="For find_replace: what to put in its place.")
    replace_all: bool | None = Field(default=None, description="For find_replace: every place, not only the first.")

    @property
    def edit(self) -> Edit:
        return Edit(
            operation=None if self.operation is None else Operation(self.operation),
            content=self.content,
            find=self.find,
            replace=self.replace,
            replace_all=bool(self.replace_all),
        )


class UpdateSkill(EditArguments):
    name: str = Field(description="The skill to change.")
    title: str | None = Field(default=None, description="A new title.")
    description: str | None = Field(default=None, description="A new description.")
    tags: list[str] | None = Field(default=None, description="New tags, in place of all it has.")


def update_skill(changes: Changes) -> Tool:
    async def run(given: UpdateSkill, running: Running) -> ToolResult:
        fields = Fields.of(given)
        layer, tree, skill, edited = await in_thread(lambda: _edit_files(changes, given.name, given.edit, fields))
        name = skill.name
        if edited == skill:
            return json_result({"name": name, "version": skill.version})
        done = await changes.write(
            layer, name, trees.with_skill(tree, edited), "the agent corrected it", f"Change the skill '{name}'?"
        )
        return json_result({"name": name, "version": done.version or skill.version, **done.as_result()})

    return Tool(
        name="update_skill",
        description="Change a skill: its text by one operation (replace, find_replace, append, prepend, delete), its "
        "title, description, tags or when to use it. Use it when a procedure turned out wrong or the user corrects it.",
        arguments=_with_other_fields(UpdateSkill),
        run=run,
        keeps=True,
        is_default=True,
    )


def _edit_files(changes: Changes, wanted: str, edit: Edit, fields: Fields) -> tuple[str, Tree, Skill, Skill]:
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


class DeleteSkill(Arguments):
    name: str = Field(description="The skill to delete.")


def delete_skill(changes: Changes) -> Tool:
    async def run(given: DeleteSkill, running: Running) -> ToolResult:
        if await in_thread(lambda: changes.withdraw(given.name)):
            return json_result({"deleted": True})
        try:
            item = changes.find(given.name)
        except NotFound:
            return json_result({"deleted": False})
        if not changes.view.library.layer(item.layer).can_write:
            raise ToolFailed(f"'{item.name}' is in the read-only layer '{item.layer}'. Use disable_skill instead.")
        change = Change(action=Action.REMOVE, name=item.name, layer=item.layer)
        question = Question(text=f"Move the skill '{item.name}' to the archive?")
        done = await changes.submit(change, "the agent wants it gone", question)
        return json_result({"deleted": done.proposal is None, **done.as_result()})

    return Tool(
        name="delete_skill",
        description="Delete a skill that is wrong or no longer needed. It goes to an archive and can be restored.",
        arguments=DeleteSkill,
        run=run,
        takes_away=True,
    )


class SwitchSkill(Arguments):
    name: str = Field(description="The skill.")


def _switch(changes: Changes, action: Action, description: str) -> Tool:
    wanted = action is Action.ENABLE

    async def run(given: SwitchSkill, running: Running) -> ToolResult:
        item = changes.find(given.name)
        is_enabled = item.summary is not None and item.summary.enabled
        if is_enabled == wanted:
            return json_result({"name": item.name, "enabled": is_enabled})
        change = Change(action=action, name=item.name, layer=item.layer)
        question = Question(text=f"{action.value.capitalize()} the skill '{item.name}'?")
        done = await changes.submit(change, f"the agent wants to {action.value} it", question)
        return json_result({"name": item.name, "enabled": is_enabled if done.proposal else wanted, **done.as_result()})

    return Tool(
        name=f"{action.value}_skill",
        description=description,
        arguments=SwitchSkill,
        run=run,
        takes_away=not wanted,
        is_repeatable=True,
    )


def edit_system_prompt(changes: Changes) -> Tool:
    async def run(given: EditArguments, running: Running) -> ToolResult:
        if given.operation is None:
            raise ToolFailed("Say in 'operation' what to do with the text.")

        def propose() -> ToolResult:
            library = changes.view.library
            skill = identity_skill(library)
            edited = replace(skill, body=edits.apply(skill.body, given.edit))
            tree = trees.with_skill(library.layer(PROMPT).store.tree(NAME) or {}, edited)
            done = changes.propose(PROMPT, NAME, tree, "the agent wants to change who it is")
            return json_result({"version": skill.version, **done.as_result()})

        return await in_thread(propose)

    return Tool(
        name="edit_system_prompt",
        description="Propose a change to the text that says who you are and how you speak. A person decides about it. "
        "Facts about the user go to memorize, procedures into skills.",
        arguments=EditArguments,
        run=run,
        keeps=True,
        over_mcp=False,
    )
