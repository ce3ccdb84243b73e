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
from habitus.files import (
    Tree,
    build_tree_file,
    compute_tree_hash,
    drop_eval_files,
    has_same_files,
    require_path_inside_skill,
)
from habitus.skills import names, trees
from habitus.skills.auto_executed import refuse_auto_executed
from habitus.skills.edits import diff_trees
from habitus.skills.layers.layer import USER_LAYER, Layer
from habitus.skills.library import Library
from habitus.skills.model import ActorKind, Author, Skill
from habitus.skills.proposals import USER_KEY, ProposalStore
from habitus.skills.proposals import Proposal as Proposal
from habitus.skills.proposals import ProposalAction as ProposalAction
from habitus.skills.proposals import ProposalState as ProposalState
from habitus.skills.proposals import SkillChange as SkillChange
from habitus.skills.proposals import SubmitResult as SubmitResult
from habitus.skills.proposals import list_review_reasons as list_review_reasons
from habitus.skills.stores import records
from habitus.skills.stores.base import ChangedSkillRecord
from habitus.skills.stores.tables import proposals

_DUE_STATES = (ProposalState.ACCEPTED, ProposalState.APPLYING)
_STATE_TEXTS = {ProposalState.STALE: "found stale", **dict.fromkeys(_DUE_STATES, "approved")}
_DECIDED_STATES = (ProposalState.REJECTED, ProposalState.ACCEPTED, ProposalState.APPROVED)
_UNDECIDED: Mapping[str, Any] = {
    "state": ProposalState.PENDING.value,
    **dict.fromkeys(("decided_on", "decided_by", "decision", "told_on")),
}


class ReviewQueue:
    """Submits, lists and decides proposals for one user on one host."""

    def __init__(
        self,
        library: Library,
        engine: sa.Engine,
        *,
        clock: Callable[[], datetime],
        auto: bool,
        user: str = "",
        requires_other_approver: Callable[[], bool] = lambda: False,
        local: sa.Engine | None = None,
        host: str = "",
        authorize_other_host: Callable[[], None] = lambda: None,
        apply_on_host: Callable[[int], int | None] | None = None,
        find_duplicates: Callable[[str, Tree], Sequence[str]] = lambda name, tree: (),
        redact: Callable[[str], str] = lambda text: text,
        notify: Callable[[Proposal], None] = lambda proposal: None,
    ) -> None:
        """`local` is this host's own database if `engine` is shared with other hosts.

        `requires_other_approver` says whether `user` may not approve their own proposals. `authorize_other_host`
        raises an error if this user may not decide for another host. `apply_on_host` applies approved changes to
        this host's directories. `notify` is called with each new pending proposal.
        """
        self._library = library
        self._duplicates = find_duplicates  # describes the skills that a new one resembles
        self._store = ProposalStore(engine) if local is None or local is engine else ProposalStore(engine, local)
        self._host = host
        self._authorize_other_host = authorize_other_host
        self._apply_on_host = apply_on_host or self.apply_approved_proposal
        self._clock = clock
        # Only for reasons, which people and models write; files are stored unchanged.
        self._redact = redact
        self._auto = auto
        self._user = user
        self._requires_other_approver = requires_other_approver
        self._notify = notify
        self._approval_listeners: list[Callable[[Proposal], None]] = []

    def add_approval_listener(self, listener: Callable[[Proposal], None]) -> None:
        """Register a listener, called with every proposal that has been applied."""
        self._approval_listeners.append(listener)

    def submit(self, change: SkillChange, author: Author, *, conversation: str = "") -> SubmitResult:
        """Apply a change, or store it as a proposal if a person must decide."""
        before = self._read_current_tree(change)
        if author.is_automatic and change.action is ProposalAction.WRITE and not before:
            change = replace(change, findings=(*change.findings, *self._describe_duplicates(change)))
        reasons = list_review_reasons(change, before, author, auto=self._auto)
        if reasons:
            return SubmitResult(proposal=self.propose(change, author, reasons, conversation=conversation))
        return SubmitResult(version=self._apply_change(change, author))

    def _describe_duplicates(self, change: SkillChange) -> Sequence[str]:
        try:
            return self._duplicates(change.name, change.tree)
        except StorageFailed:
            return ("the database is unreachable, so similar skills can't be checked",)

    def propose(
        self, change: SkillChange, author: Author, reasons: Sequence[str], *, conversation: str = ""
    ) -> Proposal:
        """Store a change for review; the same change again returns the same proposal.

        Raise `Refused` with the reason if a person has rejected this change before, unless a person proposes it
        again.
        """
        details = {**change.details, USER_KEY: self._user} if self._user else change.details
        change = replace(change, name=names.canonicalize_and_check_name(change.name), details=details)
        before = self._read_current_tree(change)
        base_hash = compute_tree_hash(before) if before else ""
        if change.action is ProposalAction.WRITE and trees.parse_skill_tree(change.name, change.tree).skill is None:
            raise Invalid(str(trees.parse_skill_tree(change.name, change.tree).diagnostics[-1]), hint="")
        trees.refuse_code_name_conflict(change.name, change.tree)
        wanted = Proposal(
            id=0,
            change=change,
            base_hash=base_hash,
            author=replace(author, reason=self._redact(author.reason)),
            reasons=tuple(map(self._redact, reasons)),
            made_on=self._clock(),
            state=ProposalState.PENDING,
            conversation=conversation,
            root=_get_trust_or_claims_root(self._library.get_layer(change.layer)),
        )
        # Only directories belong to a host; the user's layer lives in the shared database itself.
        shared, *own = self._store.engines
        if not own or change.layer == USER_LAYER:
            return self._save_or_find_earlier_proposal(shared, wanted)
        wanted = replace(wanted, host=self._host, base=before)
        try:
            return self._save_or_find_earlier_proposal(shared, wanted)
        except StorageFailed:
            # The shared database is unavailable; `upload_unsynced` moves the proposal later.
            return self._save_or_find_earlier_proposal(own[0], wanted)

    def _save_or_find_earlier_proposal(self, engine: sa.Engine, wanted: Proposal) -> Proposal:
        for earlier in self._find_earlier_proposals(engine, wanted):
            if earlier.state is ProposalState.PENDING:
                return self.get(earlier.id)
            if wanted.author.is_automatic:
                raise Refused(earlier.rejection_message, hint="Do it another way, or ask the person what they want.")
        made = self.get(self._store.save(engine, wanted))
        self._notify(made)
        return made

    def _find_earlier_proposals(self, engine: sa.Engine, wanted: Proposal) -> list[Proposal]:
        """Return the pending and rejected proposals of the same change, pending ones first."""
        change = wanted.change
        about = {"layer": change.layer, "name": change.name, "action": change.action.value}
        same = [proposals.c[column] == value for column, value in about.items()]
        found = [
            one
            for state in (ProposalState.PENDING, ProposalState.REJECTED)
            for one in self._store.find_matching_proposals(
                proposals.c.state == state.value, self._local_proposals_condition, *same, at=[engine]
            )
        ]
        return [
            one
            for one in found
            if one.root in ("", wanted.root)
            and has_same_files(one.change.tree, change.tree)
            # A rejected write stays rejected even if the skill has changed since: the decision was about the new files.
            and (
                one.base_hash == wanted.base_hash
                or (one.state is ProposalState.REJECTED and change.action is ProposalAction.WRITE)
            )
        ]

    def list_unsynced_proposals(self) -> list[Proposal]:
        """Return the pending proposals in the host's own database, made without the shared one."""
        of_host = (proposals.c.state == ProposalState.PENDING.value, proposals.c.layer != USER_LAYER)
        own = self._store.engines[1:]
        return self._store.find_matching_proposals(*of_host, with_contents=True, at=own) if own else []

    def upload_unsynced(self) -> None:
        """Move unsynced proposals to the shared database, where every host can decide on them."""
        shared = self._store.engines[0]
        for one in self.list_unsynced_proposals():
            same = (proposals.c.host == self._host, proposals.c.made_on == one.made_on)
            # A process killed before `remove` has already copied this proposal.
            if not self._store.find_matching_proposals(proposals.c.name == one.change.name, *same, at=[shared]):
                before = one.base or self.read_base_tree(one)
                self._store.save(shared, replace(one, host=self._host, base=before))
            self._store.remove(one.id)

    def list_proposals_by_state(
        self,
        state: ProposalState | None = ProposalState.PENDING,
        *,
        with_contents: bool = True,
        all_hosts: bool = False,
        names: Sequence[str] | None = None,
    ) -> list[Proposal]:
        """Return the proposals in a state, or all, optionally of some skills; without contents, files have only
        hashes.

        Proposals for directories of other hosts are included only with `all_hosts`.
        """
        where = [] if state is None else [proposals.c.state == state.value]
        where += [] if names is None else [proposals.c.name.in_(names)]
        return self._store.find_matching_proposals(
            *where, *([] if all_hosts else [self._local_proposals_condition]), with_contents=with_contents
        )

    def list_approved_unapplied(self) -> Sequence[Proposal]:
        """Return the approved changes that this host still has to apply."""
        approved = proposals.c.state.in_([state.value for state in _DUE_STATES])
        return self._store.find_matching_proposals(approved, proposals.c.host == self._host) if self._host else []

    @property
    def _local_proposals_condition(self) -> sa.ColumnElement[bool]:
        return proposals.c.host.in_(("", self._host))

    def list_unreported_rejections(self) -> Sequence[Proposal]:
        """Return the rejected proposals that no agent has been told about yet."""
        rejected = proposals.c.state == ProposalState.REJECTED.value
        return self._store.find_matching_proposals(
            rejected, proposals.c.told_on.is_(None), self._local_proposals_condition
        )

    def mark_rejections_reported(self, numbers: Iterable[int]) -> None:
        """Record that the agent has been told about these rejections."""
        for number in numbers:
            self._store.update_if_in_expected_state(number, {"told_on": self._clock()})

    def list_pending_skills_of_conversation(self, conversation: str) -> dict[str, tuple[int, Skill]]:
        """Return the pending skills written in this conversation by name, each with the number of its proposal; they
        are usable there before approval.
        """
        waiting = [proposal for proposal in self.list_proposals_by_state() if proposal.conversation == conversation]
        parsed = [(p, trees.parse_skill_tree(p.change.name, p.change.tree).skill) for p in waiting if p.change.tree]
        return {p.change.name: (p.id, skill) for p, skill in parsed if skill is not None}

    def count_pending(self) -> int:
        """Count the pending proposals on all hosts."""
        return self._store.count_in_state(ProposalState.PENDING)

    def get(self, number: int) -> Proposal:
        """Return a proposal with its contents."""
        return self._store.get(number)

    def diff_proposal(self, number: int, *, with_examination: bool = True) -> str:
        """Return the diff that approving it would apply, with or without the skill's tasks and cases."""
        proposal = self.get(number)
        change = proposal.change
        if change.action in (ProposalAction.ENABLE, ProposalAction.DISABLE):
            return f"{change.action} {proposal.address_with_host}\n"
        old = {} if change.action is ProposalAction.TASKS else self.read_base_tree(proposal)
        new = {} if change.action is ProposalAction.REMOVE else change.tree
        if not with_examination:
            old, new = drop_eval_files(old), drop_eval_files(new)
        return diff_trees(old, new, f"{change.name} now", f"{change.name} proposed")

    def read_base_tree(self, proposal: Proposal) -> Tree:
        """Return the files that it changes: the current ones, or those stored with it if its directory is not open
        here.
        """
        return (
            self._read_current_tree(proposal.change)
            if self.is_proposal_directory_open_here(proposal)
            else proposal.base
        )

    def is_on_other_host(self, proposal: Proposal) -> bool:
        """Whether it changes a directory of another host."""
        return proposal.host not in ("", self._host)

    def is_proposal_directory_open_here(self, proposal: Proposal) -> bool:
        """Whether its directory is open here; which project is open depends on the working directory."""
        roots = {layer.name: _get_trust_or_claims_root(layer) for layer in self._library.layers}
        return not self.is_on_other_host(proposal) and proposal.root in ("", roots.get(proposal.change.layer))

    def needs_other_approver(self, proposal: Proposal) -> bool:
        """Whether it belongs to the current user, who may not approve their own proposals."""
        return bool(proposal.user) and proposal.user == self._user and self._requires_other_approver()

    def approve(self, number: int, person: Author) -> tuple[Proposal, int | None]:
        """Apply a proposal, or leave that to its host; return it with the new version. Raise `Stale` if its skill has
        changed.
        """
        proposal = self._get_pending_if_authorized(number)
        if self.needs_other_approver(proposal):
            raise Refused(
                f"Proposal {number} was made by you or your agent: another person must approve it.",
                hint="Ask them, or have an admin change that under Team.",
            )
        if self.is_on_other_host(proposal):
            self._record_decision(number, ProposalState.ACCEPTED, person, "")
            return self.get(number), None
        if proposal.host:
            self._record_decision(number, ProposalState.APPLYING, person, "")
            version = self._apply_on_host(number)
            return self.get(number), version
        if not self.is_proposal_directory_open_here(proposal):
            raise Refused(f"Proposal {number} is about {proposal.root}, which is not open here.", hint="Run it there.")
        # Without this check, approving would overwrite changes that the person never saw.
        if self._compute_current_hash(proposal.change) != proposal.base_hash:
            self._record_decision(number, ProposalState.STALE, person, "the skill has changed since")
            raise Stale(
                f"'{proposal.change.name}' has changed since proposal {number} was made.",
                hint="It is now marked stale; ask for it again on the current version.",
            )
        version = self._apply_proposal(proposal, person)
        self._record_decision(number, ProposalState.APPROVED, person, "")
        for tell in self._approval_listeners:
            tell(proposal)
        return self.get(number), version

    def _apply_proposal(self, proposal: Proposal, person: Author) -> int | None:
        who = f"proposed by {proposal.author.actor.value} {proposal.author.name}".strip()
        reason = f"{proposal.author.reason} ({who}, proposal {proposal.id})".strip()
        store = self._library.get_layer(proposal.change.layer).store
        current = next((v.number for v in reversed(store.list_versions(proposal.change.name))), 0)
        return self._apply_change(proposal.change, replace(person, reason=reason), expected_version=current)

    def apply_approved_proposal(self, number: int) -> int | None:
        """Apply a proposal approved for this host, exactly once even if a process was killed halfway.

        If it can't be applied it becomes pending again with the reason; only storage failures leave it to be
        retried.
        """
        is_due = self._store.update_if_in_expected_state(
            number, {"state": ProposalState.APPLYING.value}, expected_states=_DUE_STATES
        )
        proposal = self.get(number)
        # Another process of this host was faster, and failed.
        if not is_due and proposal.state is not ProposalState.APPROVED:
            raise Stale(f"Proposal {number} is {proposal.state.value} again: {proposal.reasons[-1]}.", hint="")
        try:
            made = self._apply_change_once(proposal)
        except StorageFailed:
            raise
        except UserError as error:
            self.return_to_pending(number, f"approved by {proposal.decided_by}, but not applied: {error.message}")
            raise
        version = max((one.last_version for one in made), default=0) or None
        if is_due:
            for tell in self._approval_listeners:
                tell(proposal)
            done = {"state": ProposalState.APPROVED.value, "decision": f"version {version}" if version else ""}
            self._store.update_if_in_expected_state(number, done, expected_states=[ProposalState.APPLYING])
        return version

    def _apply_change_once(self, held: Proposal) -> Sequence[ChangedSkillRecord]:
        """Apply the change unless a killed process already did; return the changed skills."""
        change = held.change
        if not self.is_proposal_directory_open_here(held):
            raise NotFound(f"There is no {held.root} any more.", hint="")
        # Reading the current files also completes writes that a killed process left.
        before = self._compute_current_hash(change)
        store = self._library.get_layer(change.layer).store
        if made := store.list_changed_skills(held.change_id):
            return made
        if before != held.base_hash:
            hint = "Pending review again, based on the current version."
            raise Stale(f"'{change.name}' has changed since proposal {held.id} was made.", hint=hint)
        self._apply_proposal(held, Author(actor=ActorKind.USER, name=held.decided_by, change_id=held.change_id))
        return store.list_changed_skills(held.change_id)

    def return_to_pending(self, number: int, reason: str) -> None:
        """Make a proposal that could not be applied pending again, with the reason, based on the current files."""
        proposal = self.get(number)
        before = self.read_base_tree(proposal)
        based = {"base": records.pack_tree(before), "base_hash": compute_tree_hash(before) if before else ""}
        reasons = json.dumps([*dict.fromkeys((*proposal.reasons, reason))], ensure_ascii=False)
        self._store.update_if_in_expected_state(
            number, {**_UNDECIDED, **based, "reasons": reasons}, expected_states=_DUE_STATES, contents=before
        )

    def reject(self, number: int, person: Author, reason: str) -> Proposal:
        """Reject a proposal; the agent is told the reason."""
        proposal = self._get_pending_if_authorized(number)
        self._record_decision(number, ProposalState.REJECTED, person, reason)
        if not proposal.author.is_automatic:
            self.mark_rejections_reported([number])
        return self.get(number)

    def reopen(self, number: int) -> Proposal:
        """Make a decided proposal pending again. The caller undoes the effects of its approval."""
        proposal = self.get(number)
        self._authorize_decision(proposal)
        if not self._store.update_if_in_expected_state(number, _UNDECIDED, expected_states=_DECIDED_STATES):
            if proposal.state is ProposalState.APPLYING:
                raise Invalid(f"Proposal {number} is being applied on {proposal.host}.", hint="Retry in a moment.")
            raise Invalid(f"Proposal {number} is {proposal.state.value}; it has no decision yet.", hint="")
        return self.get(number)

    def supersede(self, number: int, by: int, author: Author) -> None:
        """Mark a proposal stale because a later one by the same author replaces it."""
        self._record_decision(number, ProposalState.STALE, author, f"replaced by proposal {by}")

    def withdraw(self, number: int, author: Author) -> None:
        """Mark a proposal stale because its author withdrew it."""
        self._record_decision(number, ProposalState.STALE, author, "withdrawn by its author")

    def edit_proposed_file(self, number: int, path: str, content: bytes) -> Proposal:
        """Change a file of a pending proposal."""
        proposal = self._get_pending_if_authorized(number)
        action = proposal.change.action
        if action is not ProposalAction.WRITE and (action, path) != (ProposalAction.TASKS, trees.TASKS_FILE):
            raise Invalid(f"Proposal {number} writes nothing that could be edited.", hint="Approve or reject it.")
        tree = {**proposal.change.tree, require_path_inside_skill(path): build_tree_file(content)}
        parsed = trees.parse_skill_tree(proposal.change.name, tree)
        if action is ProposalAction.WRITE and parsed.skill is None:
            raise Invalid(str(parsed.diagnostics[-1]), hint="")
        self._store.update_if_in_expected_state(
            number, {"tree": records.pack_tree(tree)}, expected_states=[ProposalState.PENDING], contents=tree
        )
        return self.get(number)

    def _get_pending_if_authorized(self, number: int) -> Proposal:
        proposal = self.get(number)
        self._authorize_decision(proposal)
        if proposal.state is not ProposalState.PENDING:
            by = f" by {proposal.decided_by}" if proposal.decided_by else ""
            became = _STATE_TEXTS.get(proposal.state, proposal.state.value)
            raise Invalid(f"Proposal {number} was {became}{by} already.", hint="See 'habitus review list'.")
        return proposal

    def _authorize_decision(self, proposal: Proposal) -> None:
        if self.is_on_other_host(proposal):
            self._authorize_other_host()

    def _record_decision(self, number: int, state: ProposalState, person: Author, decision: str) -> None:
        """Record a decision; raise `Invalid` if another person decided first."""
        values = {
            "state": state.value,
            "decided_on": self._clock(),
            "decided_by": person.name or person.actor.value,
            "decision": self._redact(decision),
        }
        # A lost race has changed the state, so this call raises with the other person's decision.
        if not self._store.update_if_in_expected_state(number, values, expected_states=[ProposalState.PENDING]):
            self._get_pending_if_authorized(number)

    def _compute_current_hash(self, change: SkillChange) -> str:
        before = self._read_current_tree(change)
        return compute_tree_hash(before) if before else ""

    def _read_current_tree(self, change: SkillChange) -> Tree:
        """Return the current files of the changed skill; empty if it doesn't exist."""
        store = self._library.get_layer(change.layer).store
        return store.read_tree(change.name) or {}

    def _apply_change(self, change: SkillChange, author: Author, *, expected_version: int | None = None) -> int | None:
        address = f"{change.name}@{change.layer}"
        match change.action:
            case ProposalAction.WRITE:
                trees.refuse_code_name_conflict(change.name, change.tree)
                old = self._read_current_tree(change)
                for path in (path for path, file in change.tree.items() if old.get(path) != file):
                    refuse_auto_executed(path)
                return self._library.write_tree(
                    change.layer, change.name, change.tree, author, expected=expected_version
                )
            case ProposalAction.REMOVE:
                self._library.remove(address, author)
                return None
            case ProposalAction.ENABLE | ProposalAction.DISABLE:
                self._library.set_enabled(address, change.action is ProposalAction.ENABLE, author)
                return None
            case ProposalAction.TASKS:
                # The listeners of approvals store the tasks.
                return None
            case never:
                assert_never(never)


def _get_trust_or_claims_root(layer: Layer) -> str:
    return layer.trust_root or layer.claims_root
