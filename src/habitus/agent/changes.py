"""How the agent changes skills: asked and confirmed by the person it applies at once, else it is a proposal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from habitus.agent.background import in_thread
from habitus.agent.stream import AskPerson, Consent, Question
from habitus.agent.view import View
from habitus.errors import NotFound, Refused
from habitus.files import Tree
from habitus.skills import names
from habitus.skills.edits import diff_trees
from habitus.skills.gates import GateContext
from habitus.skills.listing import Listed
from habitus.skills.model import Actor, Author
from habitus.skills.proposals import Proposal
from habitus.skills.review import Action, Change, Review

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Changed:
    """What became of a change: applied as a version, or waiting under a number."""

    version: int | None = None
    proposal: int | None = None

    def as_result(self) -> dict[str, object]:
        """What a tool's result says of it."""
        if self.proposal is None:
            return {}
        return {"status": "proposed", "proposal": self.proposal}


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    view: View
    review: Review
    scan: Callable[[Tree], Sequence[str]]
    person: Author
    gates: GateContext  # those of the session's user
    ask: AskPerson

    def find(self, name: str) -> Listed:
        """The skill that is meant; what is for admins only is not there for anybody else."""
        item = self.view.library.find(name, at=self.view.snapshot)
        if item.summary is not None and item.summary.manifest.admin_only and not self.gates.is_admin:
            raise NotFound(f"No skill '{name}'.", mend="list_skills shows what there is.")
        return item

    def agent(self, reason: str) -> Author:
        """The agent as an author, by the name of the person it works for."""
        return Author(actor=Actor.AGENT, name=self.person.name, reason=reason)

    @property
    def conversation(self) -> str:
        return self.view.conversation

    def note_change(self, what: T) -> T:
        """Something was changed: the rest of the turn sees the library with it."""
        self.view.look()
        return what

    def is_taken(self, name: str) -> bool:
        return self.view.library.is_taken(name) or name in self.view.waiting()

    async def write(self, layer: str, name: str, tree: Tree, reason: str, question: str) -> Changed:
        """Make a skill consist of these files."""
        change = Change(action=Action.WRITE, name=name, layer=layer, tree=tree)

        def look() -> tuple[Change, str]:
            before = self.view.library.layer(layer).store.tree(name) or {}
            return replace(change, findings=tuple(self.scan(tree))), diff_trees(before, tree, "now", "new")

        change, detail = await in_thread(look)
        return await self.submit(change, reason, Question(text=question, detail=detail))

    def propose(self, layer: str, name: str, tree: Tree, reason: str) -> Changed:
        """What a person has to decide at leisure, whoever is there."""
        change = Change(action=Action.WRITE, name=name, layer=layer, tree=tree, findings=tuple(self.scan(tree)))
        made = self.review.propose(
            change, self.agent(reason), [reason, *change.findings], conversation=self.conversation
        )
        return Changed(proposal=made.id)

    def waiting_tree(self, name: str) -> tuple[str, str, Tree] | None:
        """Where a skill that waits and was written in this conversation would go, with its files."""
        found = self._waiting(name)
        return (found[-1].change.layer, found[-1].change.name, found[-1].change.tree) if found else None

    def withdraw(self, name: str) -> bool:
        """Take back what this conversation wrote under this name and nobody has let in; False where it did not."""
        found = [] if self.view.library.is_taken(names.canonical(name)) else self._waiting(name)
        for proposal in found:
            self.review.withdraw(proposal.id, self.agent("the agent wants it gone"))
        return bool(self.note_change(found))

    def _waiting(self, name: str) -> list[Proposal]:
        wanted = (self.conversation, names.canonical(name), Action.WRITE)
        return [p for p in self.review.list() if (p.conversation, p.change.name, p.change.action) == wanted]

    async def submit(self, change: Change, reason: str, question: Question) -> Changed:
        """Ask the person; without an answer it is the agent's own idea, and waits."""
        author = self.agent(reason)
        answer = await self.ask(question)
        if answer is Consent.NO:
            raise Refused("The person said no.", mend="Go on without it, or ask what they would rather have.")
        if answer is Consent.YES:
            author = replace(self.person, reason=f"{reason} (confirmed in the conversation)")
        return await in_thread(lambda: self.note_change(self._submit(change, author)))

    def _submit(self, change: Change, author: Author) -> Changed:
        earlier = self._earlier(change)
        done = self.review.submit(change, author, conversation=self.conversation)
        number = None if done.proposal is None else done.proposal.id
        if number is not None:
            for old in earlier:
                if old != number:
                    self.review.supersede(old, number, author)
        return Changed(version=done.version, proposal=number)

    def _earlier(self, change: Change) -> list[int]:
        """What this conversation has proposed for the same skill, and now says better."""
        wanted = (self.conversation, change.name, change.layer, change.action)
        waiting = self.review.list(with_contents=False)
        return [p.id for p in waiting if (p.conversation, p.change.name, p.change.layer, p.change.action) == wanted]
