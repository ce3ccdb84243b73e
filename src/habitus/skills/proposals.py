"""Stored proposals: a pending change to a skill, the host it is for, and the decision about it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any

import sqlalchemy as sa

from habitus import sql
from habitus.errors import NotFound
from habitus.files import Tree
from habitus.skills import trees
from habitus.skills.model import ActorKind, Author
from habitus.skills.sources.trust import SkillPowerKind, list_skill_powers
from habitus.skills.stores import records
from habitus.skills.stores.layer_database import LayerDatabase
from habitus.skills.stores.tables import proposals
from habitus.sql.change_notifications import ChangeTopic, get_change_feed
from habitus.text import clean_to_one_line

# Keys of a proposal's details: the trial that its code passed, and the user it belongs to.
TRIAL_KEY = "trial"
USER_KEY = "user"
# The only reason on a proposal in which no check found anything.
AGENT_INITIATED = "the agent started it"
TRIAL_COLUMNS = ("input", "recorded", "draft", "compared")


class ProposalAction(StrEnum):
    """What a proposal does to its skill."""

    WRITE = "write"
    REMOVE = "remove"
    ENABLE = "enable"
    DISABLE = "disable"
    TASKS = "examine"  # adds tasks to it


class ProposalState(StrEnum):
    """The state of a proposal, from pending to its decision."""

    PENDING = "pending"
    ACCEPTED = "accepted"  # approved, not yet known to its host
    APPLYING = "applying"  # its host is applying it
    APPROVED = "approved"  # approved and applied
    REJECTED = "rejected"
    STALE = "stale"  # the skill has changed since


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillChange:
    """A requested change to one skill. For a write, `tree` holds the new files."""

    action: ProposalAction
    name: str
    layer: str
    tree: Tree = field(default_factory=dict)
    findings: tuple[str, ...] = ()  # findings of a scan or search, as text
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """A pending or decided change to a skill."""

    id: int
    change: SkillChange
    base_hash: str
    author: Author
    reasons: tuple[str, ...]  # why it needs review
    made_on: datetime
    state: ProposalState
    conversation: str = ""
    host: str = ""  # the host whose directories it changes, if a database is shared; empty for shared skills
    root: str = ""  # the directory on that host
    base: Tree = field(default_factory=dict)  # the files it is based on, for hosts that can't read them
    decided_on: datetime | None = None
    decided_by: str = ""
    decision: str = ""  # the reason given

    @property
    def trial(self) -> tuple[Mapping[str, str], ...]:
        """Rows of the trial that the code passed: input, recorded, draft, and the compared values."""
        return tuple(self.change.details.get(TRIAL_KEY, ()))

    @property
    def user(self) -> str:
        """The user who proposed it, or whose agent did; empty for background jobs."""
        return "" if self.author.actor is ActorKind.JOB else str(self.change.details.get(USER_KEY, ""))

    @property
    def would_add_skill(self) -> bool:
        """Whether it would add a skill."""
        return self.change.action is ProposalAction.WRITE and not self.base_hash

    @property
    def is_agent_text_without_findings(self) -> bool:
        """Whether it is text by an agent, without code, new powers or findings."""
        return self.change.action is ProposalAction.WRITE and self.reasons == (AGENT_INITIATED,)

    @property
    def address_with_host(self) -> str:
        """The skill and its layer, with the host if it is for one."""
        address = f"{self.change.name}@{self.change.layer}"
        return f"{address} on {self.host}" if self.host else address

    @property
    def change_id(self) -> str:
        """The change id under which the host applies it; after a crash it tells whether the change was made."""
        return hashlib.sha256(f"{self.host} {self.id} {self.decided_on}".encode()).hexdigest()[:16]

    @property
    def rejection_message(self) -> str:
        """Why and by whom the proposal was rejected, as a sentence."""
        action = self.change.action
        what = "This change of" if action is ProposalAction.WRITE else f"The proposal to {action}"
        reason = clean_to_one_line(self.decision)[:500].rstrip(".") or "no reason given"
        return f"{what} '{self.change.name}' (proposal {self.id}) was rejected by {self.decided_by}: {reason}."


@dataclass(frozen=True, kw_only=True, slots=True)
class SubmitResult:
    """The result of submitting a change: applied as this version, or pending as this proposal."""

    version: int | None = None
    proposal: Proposal | None = None


def list_review_reasons(change: SkillChange, before: Tree, author: Author, *, auto: bool) -> list[str]:
    """Return the reasons why a person must review the change; empty if none is needed."""
    if not author.is_automatic:
        return list(change.findings)
    reasons = [] if auto else [AGENT_INITIATED]
    if change.action is not ProposalAction.WRITE:
        reasons.append(f"the agent wants to {change.action} it")
        return reasons
    # Only powers that the change adds count; those already approved don't need review again.
    new_powers = list_skill_powers(change.name, change.tree) - list_skill_powers(change.name, before)
    if any(power.kind is SkillPowerKind.RUNS for power in new_powers):
        reasons.append("it brings code")
    if auto and trees.TASKS_FILE in before:
        reasons.append("it has tasks, on which the change can be tried first")
    reasons += sorted(str(power) for power in new_powers if power.kind is not SkillPowerKind.RUNS)
    return [*reasons, *change.findings]


_COUNT_QUERY = sa.select(sa.func.count()).where(proposals.c.state == sa.bindparam("state"))


class ProposalStore:
    """The proposals in one database, or in the shared one and, while that is unavailable, in the host's own.

    People refer to proposals by number: the row id, or with two databases even numbers for the shared one.
    """

    def __init__(self, *engines: sa.Engine) -> None:
        self.engines = engines
        self._blobs = LayerDatabase("", "")

    def save(self, engine: sa.Engine, proposal: Proposal) -> int:
        """Store a proposal; return its number."""
        change = proposal.change
        with self._open_transaction(engine) as conn:
            self._blobs.store_contents(conn, [*change.tree.values(), *proposal.base.values()])
            key = conn.execute(
                proposals.insert().values(
                    layer=change.layer,
                    name=change.name,
                    action=change.action.value,
                    tree=records.pack_tree(change.tree),
                    author=records.pack_author(proposal.author),
                    reasons=json.dumps(proposal.reasons, ensure_ascii=False),
                    details=json.dumps(dict(change.details), ensure_ascii=False),
                    state=proposal.state.value,
                    base=records.pack_tree(proposal.base),
                    **{name: getattr(proposal, name) for name in _SAME_IN_ROW},
                )
            ).inserted_primary_key
        assert key is not None
        return self._compute_proposal_number_of_row(engine, int(key[0]))

    def find_matching_proposals(
        self, *where: sa.ColumnElement[bool], with_contents: bool = False, at: Sequence[sa.Engine] = ()
    ) -> list[Proposal]:
        """Return the matching proposals, oldest first; without contents, files have only their hashes."""
        query = sa.select(proposals).where(*where).order_by(proposals.c.id)
        found: list[Proposal] = []
        for engine in at or self.engines:
            with sql.read_transaction(engine) as conn:
                here = [
                    _parse_proposal_row(row, self._compute_proposal_number_of_row(engine, row["id"]))
                    for row in conn.execute(query).mappings()
                ]
                found += [self._load_contents(conn, proposal) for proposal in here] if with_contents else here
        return sorted(found, key=lambda proposal: (proposal.made_on, proposal.id))

    def count_in_state(self, state: ProposalState) -> int:
        """Count the proposals in a state, over all databases."""

        def ask(engine: sa.Engine) -> int:
            with sql.read_transaction(engine) as conn:
                return int(conn.execute(_COUNT_QUERY, {"state": state.value}).scalar_one())

        return sum(
            # Every page shows this number, so it is cached until a notification says that proposals changed.
            get_change_feed(engine).fetch_cached(
                ChangeTopic.PROPOSALS, partial(ask, engine), key=(sql.get_user_and_role_of_engine(engine), state)
            )
            for engine in self.engines
        )

    def get(self, number: int) -> Proposal:
        """Return a proposal with its contents; raise `NotFound` with the pending numbers otherwise."""
        engine, identity = self._get_engine_and_row_id(number)
        with sql.read_transaction(engine) as conn:
            row = conn.execute(sa.select(proposals).where(proposals.c.id == identity)).mappings().first()
            if row is not None:
                return self._load_contents(conn, _parse_proposal_row(row, number))
        waiting = self.find_matching_proposals(proposals.c.state == ProposalState.PENDING.value)
        known = ", ".join(str(one.id) for one in waiting) or "none"
        raise NotFound(f"There is no proposal {number}.", hint=f"Pending: {known}.")

    def update_if_in_expected_state(
        self,
        number: int,
        values: Mapping[str, Any],
        *,
        expected_states: Iterable[ProposalState] = ProposalState,
        contents: Tree | None = None,
    ) -> bool:
        """Update a proposal that is in one of `expected_states`; False if it isn't. `contents` are files that the
        values refer to.
        """
        engine, identity = self._get_engine_and_row_id(number)
        # The state is part of the WHERE clause, so of two concurrent decisions exactly one succeeds.
        this = (proposals.c.id == identity, proposals.c.state.in_([state.value for state in expected_states]))
        with self._open_transaction(engine) as conn:
            self._blobs.store_contents(conn, (contents or {}).values())
            return conn.execute(proposals.update().where(*this).values(values)).rowcount > 0

    def remove(self, number: int) -> None:
        """Delete a proposal."""
        engine, identity = self._get_engine_and_row_id(number)
        with self._open_transaction(engine) as conn:
            conn.execute(proposals.delete().where(proposals.c.id == identity))

    @staticmethod
    def _open_transaction(engine: sa.Engine) -> AbstractContextManager[sa.Connection]:
        return sql.write_transaction(engine, durable=True, lock="proposals")

    def _compute_proposal_number_of_row(self, engine: sa.Engine, identity: int) -> int:
        # Numbers interleave the databases, so a number alone says which one holds the row.
        return identity * len(self.engines) + self.engines.index(engine)

    def _get_engine_and_row_id(self, number: int) -> tuple[sa.Engine, int]:
        identity, desk = divmod(number, len(self.engines))
        return self.engines[desk], identity

    def _load_contents(self, conn: sa.Connection, proposal: Proposal) -> Proposal:
        tree = self._blobs.load_contents(conn, proposal.change.tree)
        base = self._blobs.load_contents(conn, proposal.base)
        return replace(proposal, change=replace(proposal.change, tree=tree), base=base)


def _parse_proposal_row(row: Mapping[Any, Any], number: int) -> Proposal:
    change = SkillChange(
        action=ProposalAction(row["action"]),
        name=row["name"],
        layer=row["layer"],
        tree=records.unpack_tree(row["tree"]),
        details=json.loads(row["details"]),
    )
    return Proposal(
        id=number,
        change=change,
        author=records.unpack_author(row["author"]),
        reasons=tuple(json.loads(row["reasons"])),
        state=ProposalState(row["state"]),
        base=records.unpack_tree(row["base"] or "{}"),
        decided_by=row["decided_by"] or "",
        decision=row["decision"] or "",
        **{name: row[name] for name in _SAME_IN_ROW},
    )


# The fields that are stored as they are.
_SAME_IN_ROW = ("base_hash", "made_on", "conversation", "host", "root", "decided_on")
