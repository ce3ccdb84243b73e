"""The review queue: pending changes, each bound to the files it changes, so a person approves exactly what they saw.

A change by a person is applied at once. A change by the agent waits, unless `review.auto` lets its prose through;
code, new powers, findings, near-duplicates, removals and switches always wait.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, assert_never

import sqlalchemy as sa

from habitus.errors import Invalid, NotFound, Refused, Stale, StorageFailed, UserError
from habitus.files import Tree, checked_path, file_of, is_same, tree_hash, without_examination
from habitus.skills import names, trees
from habitus.skills.edits import diff_trees
from habitus.skills.layers.layer import USER, Layer
from habitus.skills.library import Library
from habitus.skills.model import Actor, Author, Skill
from habitus.skills.proposals import USER_OF, Desks
from habitus.skills.proposals import Action as Action
from habitus.skills.proposals import Change as Change
from habitus.skills.proposals import Proposal as Proposal
from habitus.skills.proposals import ProposalState as ProposalState
from habitus.skills.proposals import Submitted as Submitted
from habitus.skills.proposals import reasons_to_wait as reasons_to_wait
from habitus.skills.stores import records
from habitus.skills.stores.base import Changed
from habitus.skills.stores.tables import proposals

_DUE = (ProposalState.ACCEPTED, ProposalState.CARRYING)
_BECAME = {ProposalState.STALE: "found stale", **dict.fromkeys(_DUE, "approved")}
_DECIDED = (ProposalState.REJECTED, ProposalState.ACCEPTED, ProposalState.APPROVED)
_UNDECIDED: Mapping[str, Any] = {
    "state": ProposalState.WAITING.value,
    **dict.fromkeys(("decided_on", "decided_by", "decision", "told_on")),
}


class Review:
    """Submits, lists and decides proposals for one user on one host."""

    def __init__(
        self,
        library: Library,
        engine: sa.Engine,
        *,
        clock: Callable[[], datetime],
        auto: bool,
        user: str = "",
        needs_somebody_else: Callable[[], bool] = lambda: False,
        local: sa.Engine | None = None,
        host: str = "",
        allow_elsewhere: Callable[[], None] = lambda: None,
        carry: Callable[[int], int | None] | None = None,
        duplicates: Callable[[str, Tree], Sequence[str]] = lambda name, tree: (),
        redacted: Callable[[str], str] = lambda text: text,
        tell: Callable[[Proposal], None] = lambda proposal: None,
    ) -> None:
        """`local` is this host's own database if `engine` is shared with other hosts.

        `requires_other_approver` says whether `user` may not approve their own proposals. `authorize_other_host`
        raises an error if this user may not decide for another host. `apply_on_host` applies approved changes to
        this host's directories. `notify` is called with each new pending proposal.
        """
        self._library = library
        self._duplicates = duplicates  # describes the skills that a new one resembles
        self._desks = Desks(engine) if local is None or local is engine else Desks(engine, local)
        self._host = host
        self._allow_elsewhere = allow_elsewhere
        self._carry = carry or self.carry_out
        self._clock = clock
        # Only for reasons, which people and models write; files are stored unchanged.
        self._redacted = redacted
        self._auto = auto
        self._user = user
        self._needs_somebody_else = needs_somebody_else
        self._tell = tell
        self._told: list[Callable[[Proposal], None]] = []

    def when_approved(self, tell: Callable[[Proposal], None]) -> None:
        """Register a listener, called with every proposal that has been applied."""
        self._told.append(tell)

    def submit(self, change: Change, author: Author, *, conversation: str = "") -> Submitted:
        """Apply a change, or store it as a proposal if a person must decide."""
        before = self._current(change)
        if author.is_automatic and change.action is Action.WRITE and not before:
            change = replace(change, findings=(*change.findings, *self._twins(change)))
        reasons = reasons_to_wait(change, before, author, auto=self._auto)
        if reasons:
            return Submitted(proposal=self.propose(change, author, reasons, conversation=conversation))
        return Submitted(version=self._apply(change, author))

    def _twins(self, change: Change) -> Sequence[str]:
        try:
            return self._duplicates(change.name, change.tree)
        except StorageFailed:
            return ("the database is away: nobody knows whether another skill says the same",)

    def propose(self, change: Change, author: Author, reasons: Sequence[str], *, conversation: str = "") -> Proposal:
        """Store a change for review; the same change again returns the same proposal.

        Raise `Refused` with the reason if a person has rejected this change before, unless a person proposes it
        again.
        """
        details = {**change.details, USER_OF: self._user} if self._user else change.details
        change = replace(change, name=names.check_name(change.name), details=details)
        before = self._current(change)
        base_hash = tree_hash(before) if before else ""
        if change.action is Action.WRITE and trees.parse(change.name, change.tree).skill is None:
            raise Invalid(str(trees.parse(change.name, change.tree).diagnostics[-1]), hint="")
        trees.refuse_clash(change.name, change.tree)
        wanted = Proposal(
            id=0,
            change=change,
            base_hash=base_hash,
            author=replace(author, reason=self._redacted(author.reason)),
            reasons=tuple(map(self._redacted, reasons)),
            made_on=self._clock(),
            state=ProposalState.WAITING,
            conversation=conversation,
            root=_root(self._library.layer(change.layer)),
        )
        # Only directories belong to a host; the user's layer lives in the shared database itself.
        shared, *own = self._desks.engines
        if not own or change.layer == USER:
            return self._propose(shared, wanted)
        wanted = replace(wanted, host=self._host, base=before)
        try:
            return self._propose(shared, wanted)
        except StorageFailed:
            # The shared database is unavailable; `upload_unsynced` moves the proposal later.
            return self._propose(own[0], wanted)

    def _propose(self, engine: sa.Engine, wanted: Proposal) -> Proposal:
        for earlier in self._earlier(engine, wanted):
            if earlier.state is ProposalState.WAITING:
                return self.get(earlier.id)
            if wanted.author.is_automatic:
                raise Refused(earlier.refusal, hint="Do it another way, or ask the person what they want.")
        made = self.get(self._desks.keep(engine, wanted))
        self._tell(made)
        return made

    def _earlier(self, engine: sa.Engine, wanted: Proposal) -> list[Proposal]:
        """Return the pending and rejected proposals of the same change, pending ones first."""
        change = wanted.change
        about = {"layer": change.layer, "name": change.name, "action": change.action.value}
        same = [proposals.c[column] == value for column, value in about.items()]
        found = [
            one
            for state in (ProposalState.WAITING, ProposalState.REJECTED)
            for one in self._desks.find(proposals.c.state == state.value, self._are_ours, *same, at=[engine])
        ]
        return [
            one
            for one in found
            if one.root in ("", wanted.root)
            and is_same(one.change.tree, change.tree)
            # A rejected write stays rejected even if the skill has changed since: the decision was about the new files.
            and (
                one.base_hash == wanted.base_hash
                or (one.state is ProposalState.REJECTED and change.action is Action.WRITE)
            )
        ]

    def left_here(self) -> list[Proposal]:
        """Return the pending proposals in the host's own database, made without the shared one."""
        of_host = (proposals.c.state == ProposalState.WAITING.value, proposals.c.layer != USER)
        own = self._desks.engines[1:]
        return self._desks.find(*of_host, with_contents=True, at=own) if own else []

    def hand_over(self) -> None:
        """Move unsynced proposals to the shared database, where every host can decide on them."""
        shared = self._desks.engines[0]
        for one in self.left_here():
            same = (proposals.c.host == self._host, proposals.c.made_on == one.made_on)
            # A process killed before `remove` has already copied this proposal.
            if not self._desks.find(proposals.c.name == one.change.name, *same, at=[shared]):
                before = one.base or self.before(one)
                self._desks.keep(shared, replace(one, host=self._host, base=before))
            self._desks.remove(one.id)

    def list(
        self,
        state: ProposalState | None = ProposalState.WAITING,
        *,
        with_contents: bool = True,
        everywhere: bool = False,
        names: Sequence[str] | None = None,
    ) -> list[Proposal]:
        """Return the proposals in a state, or all, optionally of some skills; without contents, files have only
        hashes.

        Proposals for directories of other hosts are included only with `all_hosts`.
        """
        where = [] if state is None else [proposals.c.state == state.value]
        where += [] if names is None else [proposals.c.name.in_(names)]
        return self._desks.find(*where, *([] if everywhere else [self._are_ours]), with_contents=with_contents)

    def due(self) -> Sequence[Proposal]:
        """Return the approved changes that this host still has to apply."""
        approved = proposals.c.state.in_([state.value for state in _DUE])
        return self._desks.find(approved, proposals.c.host == self._host) if self._host else []

    @property
    def _are_ours(self) -> sa.ColumnElement[bool]:
        return proposals.c.host.in_(("", self._host))

    def turned_down(self) -> Sequence[Proposal]:
        """Return the rejected proposals that no agent has been told about yet."""
        rejected = proposals.c.state == ProposalState.REJECTED.value
        return self._desks.find(rejected, proposals.c.told_on.is_(None), self._are_ours)

    def note_told(self, numbers: Iterable[int]) -> None:
        """Record that the agent has been told about these rejections."""
        for number in numbers:
            self._desks.change(number, {"told_on": self._clock()})

    def in_conversation(self, conversation: str) -> dict[str, Skill]:
        """Return the pending skills written in this conversation, by name; they are usable there before approval."""
        waiting = [proposal for proposal in self.list() if proposal.conversation == conversation]
        parsed = {p.change.name: trees.parse(p.change.name, p.change.tree).skill for p in waiting if p.change.tree}
        return {name: skill for name, skill in parsed.items() if skill is not None}

    def waiting_count(self) -> int:
        """Count the pending proposals on all hosts."""
        return self._desks.count(ProposalState.WAITING)

    def get(self, number: int) -> Proposal:
        """Return a proposal with its contents."""
        return self._desks.get(number)

    def diff(self, number: int, *, with_examination: bool = True) -> str:
        """Return the diff that approving it would apply, with or without the skill's tasks and cases."""
        proposal = self.get(number)
        change = proposal.change
        if change.action in (Action.ENABLE, Action.DISABLE):
            return f"{change.action} {proposal.place}\n"
        old = {} if change.action is Action.TASKS else self.before(proposal)
        new = {} if change.action is Action.REMOVE else change.tree
        if not with_examination:
            old, new = without_examination(old), without_examination(new)
        return diff_trees(old, new, f"{change.name} now", f"{change.name} proposed")

    def before(self, proposal: Proposal) -> Tree:
        """Return the files that it changes: the current ones, or those stored with it if its directory is not open
        here.
        """
        return self._current(proposal.change) if self.is_open(proposal) else proposal.base

    def is_elsewhere(self, proposal: Proposal) -> bool:
        """Whether it changes a directory of another host."""
        return proposal.host not in ("", self._host)

    def is_open(self, proposal: Proposal) -> bool:
        """Whether its directory is open here; which project is open depends on the working directory."""
        roots = {layer.name: _root(layer) for layer in self._library.layers}
        return not self.is_elsewhere(proposal) and proposal.root in ("", roots.get(proposal.change.layer))

    def is_for_somebody_else(self, proposal: Proposal) -> bool:
        """Whether it belongs to the current user, who may not approve their own proposals."""
        return bool(proposal.user) and proposal.user == self._user and self._needs_somebody_else()

    def approve(self, number: int, person: Author) -> tuple[Proposal, int | None]:
        """Apply a proposal, or leave that to its host; return it with the new version. Raise `Stale` if its skill has
        changed.
        """
        proposal = self._waiting(number)
        if self.is_for_somebody_else(proposal):
            raise Refused(
                f"Proposal {number} is yours, or your agent's: somebody else must approve it.",
                hint="Ask them, or have an admin change that under Team.",
            )
        if self.is_elsewhere(proposal):
            self._decide(number, ProposalState.ACCEPTED, person, "")
            return self.get(number), None
        if proposal.host:
            self._decide(number, ProposalState.CARRYING, person, "")
            version = self._carry(number)
            return self.get(number), version
        if not self.is_open(proposal):
            raise Refused(f"Proposal {number} is about {proposal.root}, which is not open here.", hint="Run it there.")
        # Without this check, approving would overwrite changes that the person never saw.
        if self._hash_now(proposal.change) != proposal.base_hash:
            self._decide(number, ProposalState.STALE, person, "what it changes has moved on")
            raise Stale(
                f"'{proposal.change.name}' has changed since proposal {number} was made.",
                hint="It is now marked stale; ask for it again on the current version.",
            )
        version = self._carry_out(proposal, person)
        self._decide(number, ProposalState.APPROVED, person, "")
        for tell in self._told:
            tell(proposal)
        return self.get(number), version

    def _carry_out(self, proposal: Proposal, person: Author) -> int | None:
        who = f"proposed by {proposal.author.actor.value} {proposal.author.name}".strip()
        reason = f"{proposal.author.reason} ({who}, proposal {proposal.id})".strip()
        store = self._library.layer(proposal.change.layer).store
        current = next((v.number for v in reversed(store.history(proposal.change.name))), 0)
        return self._apply(proposal.change, replace(person, reason=reason), expected_version=current)

    def carry_out(self, number: int) -> int | None:
        """Apply a proposal approved for this host, exactly once even if a process was killed halfway.

        If it can't be applied it becomes pending again with the reason; only storage failures leave it to be
        retried.
        """
        is_due = self._desks.change(number, {"state": ProposalState.CARRYING.value}, of=_DUE)
        proposal = self.get(number)
        # Another process of this host was faster, and failed.
        if not is_due and proposal.state is not ProposalState.APPROVED:
            raise Stale(f"Proposal {number} is {proposal.state.value} again: {proposal.reasons[-1]}.", hint="")
        try:
            made = self._carried_out(proposal)
        except StorageFailed:
            raise
        except UserError as error:
            self.put_back(number, f"approved by {proposal.decided_by}, and not carried out: {error.message}")
            raise
        version = max((one.last for one in made), default=0) or None
        if is_due:
            for tell in self._told:
                tell(proposal)
            done = {"state": ProposalState.APPROVED.value, "decision": f"version {version}" if version else ""}
            self._desks.change(number, done, of=[ProposalState.CARRYING])
        return version

    def _carried_out(self, proposal: Proposal) -> Sequence[Changed]:
        """Apply the change unless a killed process already did; return the changed skills."""
        change = proposal.change
        if not self.is_open(proposal):
            raise NotFound(f"There is no {proposal.root} any more.", hint="")
        # Reading the current files also completes writes that a killed process left.
        before = self._hash_now(change)
        store = self._library.layer(change.layer).store
        if made := store.changed_in(proposal.carried_as):
            return made
        if before != proposal.base_hash:
            hint = "It waits again, on what is there now."
            raise Stale(f"'{change.name}' has changed since proposal {proposal.id} was made.", hint=hint)
        self._carry_out(proposal, Author(actor=Actor.USER, name=proposal.decided_by, change=proposal.carried_as))
        return store.changed_in(proposal.carried_as)

    def put_back(self, number: int, reason: str) -> None:
        """Make a proposal that could not be applied pending again, with the reason, based on the current files."""
        proposal = self.get(number)
        before = self.before(proposal)
        based = {"base": records.pack_tree(before), "base_hash": tree_hash(before) if before else ""}
        reasons = json.dumps([*dict.fromkeys((*proposal.reasons, reason))], ensure_ascii=False)
        self._desks.change(number, {**_UNDECIDED, **based, "reasons": reasons}, of=_DUE, keep=before)

    def reject(self, number: int, person: Author, reason: str) -> Proposal:
        """Reject a proposal; the agent is told the reason."""
        proposal = self._waiting(number)
        self._decide(number, ProposalState.REJECTED, person, reason)
        if not proposal.author.is_automatic:
            self.note_told([number])
        return self.get(number)

    def reopen(self, number: int) -> Proposal:
        """Make a decided proposal pending again. The caller undoes the effects of its approval."""
        proposal = self.get(number)
        self._allow(proposal)
        if not self._desks.change(number, _UNDECIDED, of=_DECIDED):
            if proposal.state is ProposalState.CARRYING:
                raise Invalid(f"Proposal {number} is being carried out on {proposal.host}.", hint="Retry in a moment.")
            raise Invalid(f"Proposal {number} is {proposal.state.value}; nobody has decided about it.", hint="")
        return self.get(number)

    def supersede(self, number: int, by: int, author: Author) -> None:
        """Mark a proposal stale because a later one by the same author replaces it."""
        self._decide(number, ProposalState.STALE, author, f"replaced by proposal {by}")

    def withdraw(self, number: int, author: Author) -> None:
        """Mark a proposal stale because its author withdrew it."""
        self._decide(number, ProposalState.STALE, author, "taken back by its author")

    def edit(self, number: int, path: str, content: bytes) -> Proposal:
        """Change a file of a pending proposal."""
        proposal = self._waiting(number)
        if proposal.change.action is not Action.WRITE:
            raise Invalid(f"Proposal {number} writes nothing that could be edited.", hint="Approve or reject it.")
        tree = {**proposal.change.tree, checked_path(path): file_of(content)}
        parsed = trees.parse(proposal.change.name, tree)
        if parsed.skill is None:
            raise Invalid(str(parsed.diagnostics[-1]), hint="")
        self._desks.change(number, {"tree": records.pack_tree(tree)}, of=[ProposalState.WAITING], keep=tree)
        return self.get(number)

    def _waiting(self, number: int) -> Proposal:
        proposal = self.get(number)
        self._allow(proposal)
        if proposal.state is not ProposalState.WAITING:
            by = f" by {proposal.decided_by}" if proposal.decided_by else ""
            became = _BECAME.get(proposal.state, proposal.state.value)
            raise Invalid(f"Proposal {number} was {became}{by} already.", hint="See 'habitus review list'.")
        return proposal

    def _allow(self, proposal: Proposal) -> None:
        if self.is_elsewhere(proposal):
            self._allow_elsewhere()

    def _decide(self, number: int, state: ProposalState, person: Author, decision: str) -> None:
        """Record a decision; raise `Invalid` if another person decided first."""
        values = {
            "state": state.value,
            "decided_on": self._clock(),
            "decided_by": person.name or person.actor.value,
            "decision": self._redacted(decision),
        }
        # A lost race has changed the state, so this call raises with the other person's decision.
        if not self._desks.change(number, values, of=[ProposalState.WAITING]):
            self._waiting(number)

    def _hash_now(self, change: Change) -> str:
        before = self._current(change)
        return tree_hash(before) if before else ""

    def _current(self, change: Change) -> Tree:
        """Return the current files of the changed skill; empty if it doesn't exist."""
        store = self._library.layer(change.layer).store
        return store.tree(change.name) or {}

    def _apply(self, change: Change, author: Author, *, expected_version: int | None = None) -> int | None:
        address = f"{change.name}@{change.layer}"
        match change.action:
            case Action.WRITE:
                trees.refuse_clash(change.name, change.tree)
                return self._library.write_tree(
                    change.layer, change.name, change.tree, author, expected_version=expected_version
                )
            case Action.REMOVE:
                self._library.remove(address, author)
                return None
            case Action.ENABLE | Action.DISABLE:
                self._library.set_enabled(address, change.action is Action.ENABLE, author)
                return None
            case Action.TASKS:
                # The listeners of approvals store the tasks.
                return None
            case never:
                assert_never(never)


def _root(layer: Layer) -> str:
    return layer.trust_root or layer.claims_root
