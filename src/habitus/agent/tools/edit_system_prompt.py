"""`edit_system_prompt`: change the text that says who the assistant is. From the agent this is always a proposal."""

from __future__ import annotations

from dataclasses import replace

from habitus.agent.background import in_thread
from habitus.agent.changes import Changes
from habitus.agent.identity import NAME, identity_skill
from habitus.agent.tools.editing import EditArguments
from habitus.agent.tools.registry import Running, Tool, returned
from habitus.errors import ToolFailed
from habitus.events import ToolResult
from habitus.skills import edits, trees
from habitus.skills.layers import PROMPT


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
            return returned({"version": skill.version, **done.told()})

        return await in_thread(propose)

    return Tool(
        name="edit_system_prompt",
        description="Propose a change to the text that says who you are and how you speak. A person decides about it. "
        "Facts about the user go to memorize, procedures into skills.",
        arguments=EditArguments,
        run=run,
        keeps=True,
    )
