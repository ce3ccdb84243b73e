"""`edit_system_prompt`: change the text that says who the assistant is. From the agent this is always a proposal."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field

from habitus.agent.changes import Changes
from habitus.agent.identity import LAYER, NAME, identity_skill
from habitus.agent.tools.registry import Arguments, Running, Tool, returned
from habitus.events import ToolResult
from habitus.skills import edits, trees
from habitus.skills.edits import Edit


class EditSystemPrompt(Arguments):
    operation: Literal["replace", "find_replace", "append", "prepend", "delete"] = Field(
        description="What to do with the text."
    )
    content: str | None = Field(
        default=None, description="The whole new text (replace), the text to add (append, prepend) or remove (delete)."
    )
    find: str | None = Field(default=None, description="For find_replace: the exact text that stands there.")
    replace: str | None = Field(default=None, description="For find_replace: what to put in its place.")
    replace_all: bool | None = Field(default=None, description="For find_replace: every place, not only the first.")


def edit_system_prompt(changes: Changes) -> Tool:
    async def run(given: EditSystemPrompt, running: Running) -> ToolResult:
        skill = identity_skill(changes.library)
        edit = Edit(
            operation=edits.parse_operation(given.operation),
            content=given.content,
            find=given.find,
            replace=given.replace,
            replace_all=bool(given.replace_all),
        )
        edited = replace(skill, body=edits.apply(skill.body, edit))
        tree = trees.with_skill(changes.library.layer(LAYER).store.tree(NAME) or {}, edited)
        done = await changes.propose(LAYER, NAME, tree, "the agent wants to change who it is")
        return returned({"version": skill.version, **done.told()})

    return Tool(
        name="edit_system_prompt",
        description="Propose a change to the text that says who you are and how you speak. A person decides about it. "
        "Facts about the user go to memorize, procedures into skills.",
        arguments=EditSystemPrompt,
        run=run,
    )
