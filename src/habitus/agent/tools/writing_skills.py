"""Tools that change skills and the assistant's identity text.

A change that the person confirms applies at once; any other becomes a proposal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from pydantic import Field, create_model

from habitus.access import Access
from habitus.agent.background import in_thread
from habitus.agent.library_view import View
from habitus.agent.prompts.prompt import NAME, identity_skill
from habitus.agent.stream import AskPerson, Consent, Question
from habitus.agent.tools.registry import Arguments, Running, Tool, json_result
from habitus.errors import NotFound, Refused, ToolFailed
from habitus.events import ToolResult
from habitus.files import Tree
from habitus.skills import edits, names, trees
from habitus.skills.editable_fields import EDITABLE, Fields
from habitus.skills.edits import Edit, Operation, diff_trees
from habitus.skills.layers.layer import PROMPT, USER
from habitus.skills.layers.listing import Listed
from habitus.skills.lifecycle import GateContext
from habitus.skills.model import Actor, Author, Skill, Source
from habitus.skills.proposals import Proposal, Submitted
from habitus.skills.review import Action, Change, Review


def writing_tools(changes: Changes) -> list[Tool]:
    """Build the tools that change skills."""
    return [
        create_skill(changes),
        update_skill(changes),
        delete_skill(changes),
        _switch(changes, Action.ENABLE, "Bring a disabled skill back into use."),
        _switch(changes, Action.DISABLE, "Take a skill out of use without deleting it."),
        edit_system_prompt(changes),
    ]


class CreateSkill(Arguments):
    """Save a procedure as a skill, so that it can be followed next time without working it out again."""

    name: str = Field(description="A short unique name in lowercase with hyphens, like 'monthly-report'.")
    title: str = Field(description="The name as a person would write it.")
    description: str = Field(description="What it does and when it applies: the line by which it is found again.")
    content: str = Field(description="The whole procedure in Markdown, as instructions for whoever does it next.")
    tags: list[str] | None = Field(default=None, description="A few words to sort it under.")


def create_skill(changes: Changes) -> Tool:
    """Build the tool that creates a skill."""

    async def run(given: CreateSkill, running: Running) -> ToolResult:
        name = names.check_name(given.name)
        if await in_thread(lambda: changes.is_taken(name)):
            raise ToolFailed(f"There is a skill '{name}' already. Change it with update_skill, or take another name.")
        if not given.content.strip():
            raise ToolFailed("The procedure is empty. Write its steps into 'content'.")
        skill = Fields.of(given).apply_to(Skill(name=name, source=Source.AGENT, body=given.content))
        tree = trees.with_skill({}, skill)
        done = await changes.write(USER, name, tree, "the agent worked it out", f"Save the skill '{name}'?")
        return json_result({"name": name, "version": done.version or 1, **_pending(done)})

    return Tool(arguments=_with_other_fields(CreateSkill), run=run, access=Access.ADMIN, keeps=True, is_default=True)


def _with_other_fields(arguments: type[Arguments]) -> type[Arguments]:
    """Return the arguments model extended by the editable fields of a skill that it lacks."""
    others: dict[str, Any] = {
        field.name: (list[str] | None if field.is_list else str | None, Field(default=None, description=field.help))
        for field in EDITABLE
        if field.name not in arguments.model_fields
    }
    return create_model(arguments.__name__, __base__=arguments, **others)


class EditArguments(Arguments):
    """The arguments of an edit of a text."""

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
        """The edit that these arguments describe."""
        return Edit(
            operation=None if self.operation is None else Operation(self.operation),
            content=self.content,
            find=self.find,
            replace=self.replace,
            replace_all=bool(self.replace_all),
        )


class UpdateSkill(EditArguments):
    """Change a skill: its text by one operation (replace, find_replace, append, prepend, delete), its title,
    description, tags or when to use it. Use it when a procedure turned out wrong or the user corrects it."""

    name: str = Field(description="The skill to change.")
    title: str | None = Field(default=None, description="A new title.")
    description: str | None = Field(default=None, description="A new description.")
    tags: list[str] | None = Field(default=None, description="New tags, in place of all it has.")


def update_skill(changes: Changes) -> Tool:
    """Build the tool that edits a skill."""

    async def run(given: UpdateSkill, running: Running) -> ToolResult:
        fields = Fields.of(given)
        layer, tree, skill, edited = await in_thread(lambda: _edit_files(changes, given.name, given.edit, fields))
        name = skill.name
        if edited == skill:
            return json_result({"name": name, "version": skill.version})
        done = await changes.write(
            layer, name, trees.with_skill(tree, edited), "the agent corrected it", f"Change the skill '{name}'?"
        )
        return json_result({"name": name, "version": done.version or skill.version, **_pending(done)})

    return Tool(arguments=_with_other_fields(UpdateSkill), run=run, access=Access.ADMIN, keeps=True, is_default=True)


def _edit_files(changes: Changes, wanted: str, edit: Edit, fields: Fields) -> tuple[str, Tree, Skill, Skill]:
    """Return the target layer, the files to start from, and the skill before and after the edit.

    The files are those of a pending proposal, if there is one, or of the user's own copy.
    """
    library = changes.view.library
    waiting = changes.waiting_tree(wanted)
    if waiting is None:
        item = changes.find(wanted)
        layer, tree, skill = library.own_copy(item)
        return layer, tree, skill, library.changing(item, edit, fields)(skill)
    layer, name, tree = waiting
    proposed = trees.parse(name, tree).skill
    # Skills that can't be loaded are never proposed.
    assert proposed is not None
    there = changes.view.snapshot.by_name.get(name)
    return layer, tree, proposed, library.changing(there, edit, fields)(proposed)


class DeleteSkill(Arguments):
    """Delete a skill that is wrong or no longer needed. It goes to an archive and can be restored."""

    name: str = Field(description="The skill to delete.")


def delete_skill(changes: Changes) -> Tool:
    """Build the tool that deletes a skill."""

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
        return json_result({"deleted": done.proposal is None, **_pending(done)})

    return Tool(arguments=DeleteSkill, run=run, access=Access.ADMIN, takes_away=True)


class SwitchSkill(Arguments):
    name: str = Field(description="The skill.")


def _switch(changes: Changes, action: Action, description: str) -> Tool:
    wanted = action is Action.ENABLE

    async def run(given: SwitchSkill, running: Running) -> ToolResult:
        await in_thread(lambda: changes.refuse_waiting(given.name))
        item = changes.find(given.name)
        is_enabled = item.summary is not None and item.summary.enabled
        if is_enabled == wanted:
            return json_result({"name": item.name, "enabled": is_enabled})
        change = Change(action=action, name=item.name, layer=item.layer)
        question = Question(text=f"{action.value.capitalize()} the skill '{item.name}'?")
        done = await changes.submit(change, f"the agent wants to {action.value} it", question)
        return json_result({"name": item.name, "enabled": is_enabled if done.proposal else wanted, **_pending(done)})

    name = f"{action.value}_skill"
    return Tool(
        name=name,
        description=description,
        arguments=SwitchSkill,
        run=run,
        access=Access.ADMIN,
        takes_away=not wanted,
        is_repeatable=True,
    )


class EditSystemPrompt(EditArguments):
    """Propose a change to the text that says who you are and how you speak. A person decides about it. Facts about
    the user go to memorize, procedures into skills."""


def edit_system_prompt(changes: Changes) -> Tool:
    """Build the tool that proposes a change of the identity text."""

    async def run(given: EditSystemPrompt, running: Running) -> ToolResult:
        if given.operation is None:
            raise ToolFailed("Say in 'operation' what to do with the text.")

        def propose() -> ToolResult:
            library = changes.view.library
            skill = identity_skill(library)
            edited = replace(skill, body=edits.apply(skill.body, given.edit))
            tree = trees.with_skill(library.layer(PROMPT).store.tree(NAME) or {}, edited)
            done = changes.propose(PROMPT, NAME, tree, "the agent wants to change who it is")
            return json_result({"version": skill.version, **_pending(done)})

        return await in_thread(propose)

    return Tool(arguments=EditSystemPrompt, run=run, keeps=True, access=None)


T = TypeVar("T")


def _pending(done: Submitted) -> dict[str, object]:
    """Return the result fields of a pending change; empty if it was applied."""
    return {} if done.proposal is None else {"status": "proposed", "proposal": done.proposal.id}


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    """Submits the agent's changes to skills, asking the person where needed."""

    view: View
    review: Review
    scan: Callable[[Tree], Sequence[str]]
    person: Author
    gates: GateContext  # the session user's
    ask: AskPerson

    def find(self, name: str) -> Listed:
        """Return the skill of that name; skills for admins don't exist for other users."""
        item = self.view.library.find(name, at=self.view.snapshot)
        if item.summary is not None and item.summary.manifest.admin_only and not self.gates.is_admin:
            raise NotFound(f"No skill '{name}'.", hint="list_skills shows what there is.")
        return item

    def refuse_waiting(self, name: str) -> None:
        """Raise `Refused` for a skill that is only pending, which can't be enabled or disabled."""
        if self.view.only_waits(wanted := names.canonical(name)):
            raise Refused(f"'{wanted}' waits for a person.", hint="delete_skill takes it back.")

    def agent(self, reason: str) -> Author:
        """Return the agent as an author, under the name of the person it works for."""
        return Author(actor=Actor.AGENT, name=self.person.name, reason=reason)

    @property
    def conversation(self) -> str:
        return self.view.conversation

    def note_change(self, what: T) -> T:
        """Refresh the snapshot after a change, so the rest of the turn sees it; return the argument."""
        self.view.look()
        return what

    def is_taken(self, name: str) -> bool:
        """Whether a skill of that name exists or is pending."""
        return self.view.library.is_taken(name) or name in self.view.waiting()

    async def write(self, layer: str, name: str, tree: Tree, reason: str, question: str) -> Submitted:
        """Submit a change that replaces the files of a skill."""
        change = Change(action=Action.WRITE, name=name, layer=layer, tree=tree)

        def look() -> tuple[Change, str]:
            before = self.view.library.layer(layer).store.tree(name) or {}
            return replace(change, findings=tuple(self.scan(tree))), diff_trees(before, tree, "now", "new")

        change, detail = await in_thread(look)
        return await self.submit(change, reason, Question(text=question, detail=detail))

    def propose(self, layer: str, name: str, tree: Tree, reason: str) -> Submitted:
        """Propose a change that a person decides on later, even if one is present."""
        change = Change(action=Action.WRITE, name=name, layer=layer, tree=tree, findings=tuple(self.scan(tree)))
        made = self.review.propose(
            change, self.agent(reason), [reason, *change.findings], conversation=self.conversation
        )
        return Submitted(proposal=made)

    def waiting_tree(self, name: str) -> tuple[str, str, Tree] | None:
        """Return layer, name and files of a pending skill of this conversation, or None."""
        found = self._waiting(name)
        return (found[-1].change.layer, found[-1].change.name, found[-1].change.tree) if found else None

    def withdraw(self, name: str) -> bool:
        """Withdraw this conversation's pending proposals for a new skill. False if there are none."""
        # A name that exists in the library is edited, not withdrawn.
        found = [] if self.view.library.is_taken(names.canonical(name)) else self._waiting(name)
        for proposal in found:
            self.review.withdraw(proposal.id, self.agent("the agent wants it gone"))
        return bool(self.note_change(found))

    def _waiting(self, name: str) -> list[Proposal]:
        wanted = (self.conversation, names.canonical(name), Action.WRITE)
        return [p for p in self.review.list() if (p.conversation, p.change.name, p.change.action) == wanted]

    async def submit(self, change: Change, reason: str, question: Question) -> Submitted:
        """Ask the person and submit the change; without an answer it stays pending as the agent's own proposal."""
        author = self.agent(reason)
        answer = await self.ask(question)
        if answer is Consent.NO:
            raise Refused("The person said no.", hint="Go on without it, or ask what they would rather have.")
        if answer is Consent.YES:
            author = replace(self.person, reason=f"{reason} (confirmed in the conversation)")
        return await in_thread(lambda: self.note_change(self._submit(change, author)))

    def _submit(self, change: Change, author: Author) -> Submitted:
        earlier = self._earlier(change)
        done = self.review.submit(change, author, conversation=self.conversation)
        if (proposal := done.proposal) is not None:
            for old in (number for number in earlier if number != proposal.id):
                self.review.supersede(old, proposal.id, author)
        return done

    def _earlier(self, change: Change) -> list[int]:
        """Return this conversation's earlier proposals for the same skill, which a new one replaces."""
        wanted = (self.conversation, change.name, change.layer, change.action)
        waiting = self.review.list(with_contents=False)
        return [p.id for p in waiting if (p.conversation, p.change.name, p.change.layer, p.change.action) == wanted]
