"""How the agent changes skills: asked and confirmed by the person it applies at once, else it is a proposal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from habitus.agent.consent import AskPerson, Consent, Question
from habitus.errors import Refused
from habitus.files import Tree
from habitus.skills import names
from habitus.skills.library import Library, diff_trees
from habitus.skills.model import Actor, Author
from habitus.skills.review import Action, Change, Review


@dataclass(frozen=True, kw_only=True, slots=True)
class Changed:
    """What became of a change: applied as a version, or waiting under a number."""

    version: int | None = None
    proposal: int | None = None

    def told(self) -> dict[str, object]:
        """What a tool's result says of it."""
        if self.proposal is None:
            return {}
        return {"status": "proposed", "proposal": self.proposal}


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    library: Library
    review: Review
    scan: Callable[[Tree], Sequence[str]]
    person: Author
    conversation: str
    ask: AskPerson

    async def write(self, layer: str, name: str, tree: Tree, reason: str, question: str) -> Changed:
        """Make a skill consist of these files."""
        before = self.library.layer(layer).store.tree(name) or {}
        change = Change(action=Action.WRITE, name=name, layer=layer, tree=tree, findings=tuple(self.scan(tree)))
        return await self.submit(change, reason, Question(text=question, detail=diff_trees(before, tree, "now", "new")))

    async def propose(self, layer: str, name: str, tree: Tree, reason: str) -> Changed:
        """What a person has to decide at leisure, whoever is there."""
        change = Change(action=Action.WRITE, name=name, layer=layer, tree=tree, findings=tuple(self.scan(tree)))
        author = Author(actor=Actor.AGENT, name="agent", reason=reason)
        made = self.review.propose(change, author, [reason, *change.findings], conversation=self.conversation)
        return Changed(proposal=made.id)

    def waiting_tree(self, name: str) -> tuple[str, str, Tree] | None:
        """Where a skill that waits and was written in this conversation would go, with its files."""
        for proposal in reversed(self.review.list()):
            change = proposal.change
            is_ours = proposal.conversation == self.conversation and change.action is Action.WRITE
            if is_ours and change.name == names.canonical(name):
                return change.layer, change.name, change.tree
        return None

    async def submit(self, change: Change, reason: str, question: Question) -> Changed:
        """Ask the person; without an answer it is the agent's own idea, and waits."""
        author = Author(actor=Actor.AGENT, name="agent", reason=reason)
        answer = await self.ask(question)
        if answer is Consent.NO:
            raise Refused("The person said no.", mend="Go on without it, or ask what they would rather have.")
        if answer is Consent.YES:
            author = replace(self.person, reason=f"{reason} (confirmed in the conversation)")
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
