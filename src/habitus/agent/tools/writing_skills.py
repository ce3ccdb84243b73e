"""Tools that change skills and the assistant's identity text.

A change that the person confirms applies at once; any other becomes a proposal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from pydantic import Field, create_model

from habitus.access import Access
from habitus.agent.background import run_in_thread
from habitus.agent.library.view import LibraryView
from habitus.agent.prompts.prompt import NAME, load_identity_skill
from habitus.agent.stream import AskPerson, Consent, ConsentQuestion
from habitus.agent.tools.reading_skills import build_version_and_pending_fields
from habitus.agent.tools.registry import Tool, ToolArguments, ToolCallContext, build_json_result
from habitus.errors import NotFound, Refused, ToolFailed
from habitus.events import ToolResult
from habitus.files import Tree
from habitus.skills import edits, names, trees
from habitus.skills.editable_fields import EDITABLE_FIELDS, FieldChanges
from habitus.skills.edits import EditOperation, TextEdit, diff_trees
from habitus.skills.layers.layer import PROMPT_LAYER, USER_LAYER
from habitus.skills.layers.listing import ListedSkill
from habitus.skills.lifecycle import GateContext
from habitus.skills.model import ActorKind, Author, Skill, SkillSource
from habitus.skills.proposals import Proposal, SubmitResult
from habitus.skills.review import ProposalAction, ReviewQueue, SkillChange


def build_writing_tools(changes: SkillChangeSubmitter) -> list[Tool]:
    """Build the tools that change skills."""
    return [
        build_create_skill_tool(changes),
        build_update_skill_tool(changes),
        build_delete_skill_tool(changes),
        _build_enable_or_disable_tool(changes, ProposalAction.ENABLE, "Bring a disabled skill back into use."),
        _build_enable_or_disable_tool(changes, ProposalAction.DISABLE, "Take a skill out of use without deleting it."),
        build_edit_system_prompt_tool(changes),
    ]


class CreateSkillArguments(ToolArguments):
    """Save a procedure as a skill, so that it can be followed next time without working it out again."""

    name: str = Field(description="A short unique name in lowercase with hyphens, like 'monthly-report'.")
    title: str = Field(description="The name as a person would write it.")
    description: str = Field(description="What it does and when it applies: the line by which it is found again.")
    content: str = Field(description="The whole procedure in Markdown, as instructions for whoever does it next.")
    tags: list[str] | None = Field(default=None, description="A few words to sort it under.")


def build_create_skill_tool(changes: SkillChangeSubmitter) -> Tool:
    """Build the tool that creates a skill."""

    async def run(given: CreateSkillArguments, running: ToolCallContext) -> ToolResult:
        name = names.canonicalize_and_check_name(given.name, is_coined=True)
        if await run_in_thread(lambda: changes.is_name_taken(name)):
            raise ToolFailed(f"There is a skill '{name}' already. Change it with update_skill, or take another name.")
        if not given.content.strip():
            raise ToolFailed("The procedure is empty. Write its steps into 'content'.")
        skill = FieldChanges.from_object(given).apply_to(Skill(name=name, source=SkillSource.AGENT, body=given.content))
        tree = trees.update_main_file({}, skill)
        done = await changes.ask_and_submit_skill_write(
            USER_LAYER, name, tree, "the agent worked it out", f"Save the skill '{name}'?"
        )
        return build_json_result({"name": name, "version": done.version or 1, **_build_pending_change_fields(done)})

    return Tool(
        arguments=_extend_arguments_with_editable_fields(CreateSkillArguments),
        run=run,
        access=Access.ADMIN,
        stores_arguments=True,
        is_default=True,
    )


def _extend_arguments_with_editable_fields(arguments: type[ToolArguments]) -> type[ToolArguments]:
    """Return the arguments model extended by the editable fields of a skill that it lacks."""
    others: dict[str, Any] = {
        field.name: (list[str] | None if field.is_list else str | None, Field(default=None, description=field.help))
        for field in EDITABLE_FIELDS
        if field.name not in arguments.model_fields
    }
    return create_model(arguments.__name__, __base__=arguments, **others)


class TextEditArguments(ToolArguments):
    """The arguments of an edit of a text."""

    operation: Literal["replace", "find_replace", "append", "prepend", "delete"] | None = Field(
        default=None, description="What to do with the text; without one it stays as it is."
    )
    content: str | None = Field(
        default=None,
        description="The whole new text (replace), the text to add (append, prepend) or to remove (delete).",
    )
    find: str | None = Field(default=None, description="For find_replace: the exact text to find.")
    replace: str | None = Field(default=None, description="For find_replace: what to put in its place.")
    replace_all: bool | None = Field(default=None, description="For find_replace: every place, not only the first.")

    @property
    def text_edit(self) -> TextEdit:
        """The edit that these arguments describe."""
        return TextEdit(
            operation=None if self.operation is None else EditOperation(self.operation),
            content=self.content,
            find=self.find,
            replace=self.replace,
            replace_all=bool(self.replace_all),
        )


class UpdateSkillArguments(TextEditArguments):
    """Change a skill: its text by one operation (replace, find_replace, append, prepend, delete), its title,
    description, tags or when to use it. Use it when a procedure turned out wrong or the user corrects it."""

    name: str = Field(description="The skill to change.")
    title: str | None = Field(default=None, description="A new title.")
    description: str | None = Field(default=None, description="A new description.")
    tags: list[str] | None = Field(default=None, description="New tags, in place of all it has.")


def build_update_skill_tool(changes: SkillChangeSubmitter) -> Tool:
    """Build the tool that edits a skill."""

    async def run(given: UpdateSkillArguments, running: ToolCallContext) -> ToolResult:
        fields = FieldChanges.from_object(given)
        layer, tree, skill, edited = await run_in_thread(
            lambda: _compute_skill_before_and_after_edit(changes, given.name, given.text_edit, fields)
        )
        name = skill.name
        now = build_version_and_pending_fields(changes.view, name)
        if edited == skill:
            return build_json_result({"name": name, **now})
        done = await changes.ask_and_submit_skill_write(
            layer, name, trees.update_main_file(tree, edited), "the agent corrected it", f"Change the skill '{name}'?"
        )
        return build_json_result(
            {"name": name, "version": done.version or now["version"], **_build_pending_change_fields(done)}
        )

    return Tool(
        arguments=_extend_arguments_with_editable_fields(UpdateSkillArguments),
        run=run,
        access=Access.ADMIN,
        stores_arguments=True,
        is_default=True,
    )


def _compute_skill_before_and_after_edit(
    changes: SkillChangeSubmitter, wanted: str, edit: TextEdit, fields: FieldChanges
) -> tuple[str, Tree, Skill, Skill]:
    """Return the target layer, the files to start from, and the skill before and after the edit.

    The files are those of a pending proposal, if there is one, or of the user's own copy.
    """
    library = changes.view.library
    waiting = changes.find_files_of_pending_skill(wanted)
    if waiting is None:
        item = changes.find_skill_visible_to_user(wanted)
        layer, tree, skill = library.prepare_editable_copy(item)
        return layer, tree, skill, library.build_edit_function(item, edit, fields)(skill)
    layer, name, tree = waiting
    proposed = trees.parse_skill_tree(name, tree).skill
    # Skills that can't be loaded are never proposed.
    assert proposed is not None
    there = changes.view.snapshot.by_name.get(name)
    return layer, tree, proposed, library.build_edit_function(there, edit, fields)(proposed)


class DeleteSkillArguments(ToolArguments):
    """Delete a skill that is wrong or no longer needed. It goes to an archive and can be restored."""

    name: str = Field(description="The skill to delete.")


def build_delete_skill_tool(changes: SkillChangeSubmitter) -> Tool:
    """Build the tool that deletes a skill."""

    async def run(given: DeleteSkillArguments, running: ToolCallContext) -> ToolResult:
        if await run_in_thread(lambda: changes.withdraw_pending_skill_proposals(given.name)):
            return build_json_result({"deleted": True})
        try:
            item = changes.find_skill_visible_to_user(given.name)
        except NotFound:
            return build_json_result({"deleted": False})
        if not changes.view.library.get_layer(item.layer).can_write:
            raise ToolFailed(f"'{item.name}' is in the read-only layer '{item.layer}'. Use disable_skill instead.")
        change = SkillChange(action=ProposalAction.REMOVE, name=item.name, layer=item.layer)
        question = ConsentQuestion(text=f"Move the skill '{item.name}' to the archive?")
        done = await changes.ask_and_submit_change(change, "the agent wants it gone", question)
        return build_json_result({"deleted": done.proposal is None, **_build_pending_change_fields(done)})

    return Tool(arguments=DeleteSkillArguments, run=run, access=Access.ADMIN, is_destructive=True)


class EnableOrDisableSkillArguments(ToolArguments):
    name: str = Field(description="The skill.")


def _build_enable_or_disable_tool(changes: SkillChangeSubmitter, action: ProposalAction, description: str) -> Tool:
    wanted = action is ProposalAction.ENABLE

    async def run(given: EnableOrDisableSkillArguments, running: ToolCallContext) -> ToolResult:
        await run_in_thread(lambda: changes.raise_if_skill_is_only_pending(given.name))
        item = changes.find_skill_visible_to_user(given.name)
        is_enabled = item.summary is not None and item.summary.enabled
        if is_enabled == wanted:
            return build_json_result({"name": item.name, "enabled": is_enabled})
        change = SkillChange(action=action, name=item.name, layer=item.layer)
        question = ConsentQuestion(text=f"{action.value.capitalize()} the skill '{item.name}'?")
        done = await changes.ask_and_submit_change(change, f"the agent wants to {action.value} it", question)
        return build_json_result(
            {
                "name": item.name,
                "enabled": is_enabled if done.proposal else wanted,
                **_build_pending_change_fields(done),
            }
        )

    name = f"{action.value}_skill"
    return Tool(
        name=name,
        description=description,
        arguments=EnableOrDisableSkillArguments,
        run=run,
        access=Access.ADMIN,
        is_destructive=not wanted,
        is_repeatable=True,
    )


class EditSystemPromptArguments(TextEditArguments):
    """Propose a change to the text that says who you are and how you speak. A person decides about it. Facts about
    the user go to memorize, procedures into skills."""


def build_edit_system_prompt_tool(changes: SkillChangeSubmitter) -> Tool:
    """Build the tool that proposes a change of the identity text."""

    async def run(given: EditSystemPromptArguments, running: ToolCallContext) -> ToolResult:
        if given.operation is None:
            raise ToolFailed("Say in 'operation' what to do with the text.")

        def propose() -> ToolResult:
            library = changes.view.library
            skill = load_identity_skill(library)
            edited = replace(skill, body=edits.apply_edit(skill.body, given.text_edit))
            tree = trees.update_main_file(library.get_layer(PROMPT_LAYER).store.read_tree(NAME) or {}, edited)
            done = changes.propose_skill_for_later_decision(
                PROMPT_LAYER, NAME, tree, "the agent wants to change who it is"
            )
            return build_json_result({"version": skill.version, **_build_pending_change_fields(done)})

        return await run_in_thread(propose)

    return Tool(arguments=EditSystemPromptArguments, run=run, stores_arguments=True, access=None)


T = TypeVar("T")


def _build_pending_change_fields(done: SubmitResult) -> dict[str, object]:
    """Return the result fields of a pending change; empty if it was applied."""
    return {} if done.proposal is None else {"status": "proposed", "proposal": done.proposal.id}


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillChangeSubmitter:
    """Submits the agent's changes to skills, asking the person where needed."""

    view: LibraryView
    review: ReviewQueue
    scan: Callable[[Tree], Sequence[str]]
    person: Author
    gates: GateContext  # the session user's
    ask: AskPerson

    def find_skill_visible_to_user(self, name: str) -> ListedSkill:
        """Return the skill of that name; skills for admins don't exist for other users."""
        item = self.view.library.find(name, at=self.view.snapshot)
        if item.summary is not None and item.summary.manifest.admin_only and not self.gates.is_admin:
            raise NotFound(f"No skill '{name}'.", hint="list_skills shows what there is.")
        return item

    def raise_if_skill_is_only_pending(self, name: str) -> None:
        """Raise `Refused` for a skill that is only pending, which can't be enabled or disabled."""
        if self.view.is_skill_only_pending(wanted := names.canonicalize_name(name)):
            raise Refused(f"'{wanted}' needs review.", hint="delete_skill withdraws it.")

    def build_agent_author(self, reason: str) -> Author:
        """Return the agent as an author, under the name of the person it works for."""
        return Author(actor=ActorKind.AGENT, name=self.person.name, reason=reason)

    @property
    def conversation(self) -> str:
        return self.view.conversation

    def retake_snapshot_after_change(self, what: T) -> T:
        """Refresh the snapshot after a change, so the rest of the turn sees it; return the argument."""
        self.view.take_snapshot()
        return what

    def is_name_taken(self, name: str) -> bool:
        """Whether a skill of that name exists or is pending."""
        return self.view.library.is_name_taken(name) or name in self.view.get_pending_skills_of_conversation()

    async def ask_and_submit_skill_write(
        self, layer: str, name: str, tree: Tree, reason: str, question: str
    ) -> SubmitResult:
        """Submit a change that replaces the files of a skill."""
        change = SkillChange(action=ProposalAction.WRITE, name=name, layer=layer, tree=tree)

        def look() -> tuple[SkillChange, str]:
            before = self.view.library.get_layer(layer).store.read_tree(name) or {}
            return replace(change, findings=tuple(self.scan(tree))), diff_trees(before, tree, "now", "new")

        change, detail = await run_in_thread(look)
        return await self.ask_and_submit_change(change, reason, ConsentQuestion(text=question, detail=detail))

    def propose_skill_for_later_decision(self, layer: str, name: str, tree: Tree, reason: str) -> SubmitResult:
        """Propose a change that a person decides on later, even if one is present."""
        change = SkillChange(
            action=ProposalAction.WRITE, name=name, layer=layer, tree=tree, findings=tuple(self.scan(tree))
        )
        made = self.review.propose(
            change, self.build_agent_author(reason), [reason, *change.findings], conversation=self.conversation
        )
        return SubmitResult(proposal=made)

    def find_files_of_pending_skill(self, name: str) -> tuple[str, str, Tree] | None:
        """Return layer, name and files of a pending skill of this conversation, or None."""
        found = self._list_pending_writes_of_skill(name)
        return (found[-1].change.layer, found[-1].change.name, found[-1].change.tree) if found else None

    def withdraw_pending_skill_proposals(self, name: str) -> bool:
        """Withdraw this conversation's pending proposals for a new skill. False if there are none."""
        # A name that exists in the library is edited, not withdrawn.
        found = (
            []
            if self.view.library.is_name_taken(names.canonicalize_name(name))
            else self._list_pending_writes_of_skill(name)
        )
        for proposal in found:
            self.review.withdraw(proposal.id, self.build_agent_author("the agent wants it gone"))
        return bool(self.retake_snapshot_after_change(found))

    def _list_pending_writes_of_skill(self, name: str) -> list[Proposal]:
        wanted = (self.conversation, names.canonicalize_name(name), ProposalAction.WRITE)
        return [
            p
            for p in self.review.list_proposals_by_state()
            if (p.conversation, p.change.name, p.change.action) == wanted
        ]

    async def ask_and_submit_change(self, change: SkillChange, reason: str, question: ConsentQuestion) -> SubmitResult:
        """Ask the person and submit the change; without an answer it stays pending as the agent's own proposal."""
        author = self.build_agent_author(reason)
        answer = await self.ask(question)
        if answer is Consent.NO:
            raise Refused("The person said no.", hint="Go on without it, or ask what they would rather have.")
        if answer is Consent.YES:
            author = replace(self.person, reason=f"{reason} (confirmed in the conversation)")
        return await run_in_thread(
            lambda: self.retake_snapshot_after_change(self._submit_and_supersede_earlier_proposals(change, author))
        )

    def _submit_and_supersede_earlier_proposals(self, change: SkillChange, author: Author) -> SubmitResult:
        earlier = self._list_earlier_proposals_to_supersede(change)
        done = self.review.submit(change, author, conversation=self.conversation)
        if (proposal := done.proposal) is not None:
            for old in (number for number in earlier if number != proposal.id):
                self.review.supersede(old, proposal.id, author)
        return done

    def _list_earlier_proposals_to_supersede(self, change: SkillChange) -> list[int]:
        """Return this conversation's earlier proposals for the same skill, which a new one replaces."""
        wanted = (self.conversation, change.name, change.layer, change.action)
        waiting = self.review.list_proposals_by_state(with_contents=False)
        return [p.id for p in waiting if (p.conversation, p.change.name, p.change.layer, p.change.action) == wanted]
