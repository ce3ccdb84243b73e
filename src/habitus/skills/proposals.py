"""Proposals as they are kept: a change that somebody wants, of which skill on which host, and what became of it."""

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
from habitus.skills.model import Actor, Author
from habitus.skills.sources.trust import PowerKind, powers
from habitus.skills.stores import records
from habitus.skills.stores.ledger import Ledger
from habitus.skills.stores.tables import proposals
from habitus.sql.notifications import Topic, news_of
from habitus.text import one_line

TRIAL = "trial"  # where a proposal keeps the table of the trial that its code passed
USER_OF = "user"  # where it keeps whose it is
AGENT_STARTED = "the agent started it"  # a reason to wait, alone where nothing was found in it
TRIAL_COLUMNS = ("input", "recorded", "draft", "compared")


class Action(StrEnum):
    WRITE = "write"
    REMOVE = "remove"
    ENABLE = "enable"
    DISABLE = "disable"
    TASKS = "examine"  # with more tasks


class ProposalState(StrEnum):
    WAITING = "waiting"
    ACCEPTED = "accepted"  # approved, and its host has not heard of it yet
    CARRYING = "carrying"  # its host is at it
    APPROVED = "approved"  # and carried out
    REJECTED = "rejected"
    STALE = "stale"  # what it changes has moved on


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A change that somebody wants to make to one skill. `tree` is its files as they shall be, for a write."""

    action: Action
    name: str
    layer: str
    tree: Tree = field(default_factory=dict)
    findings: tuple[str, ...] = ()  # what a scan or a search found, in words
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    id: int
    change: Change
    base_hash: str
    author: Author
    reasons: tuple[str, ...]  # why it waits
    made_on: datetime
    state: ProposalState
    conversation: str = ""
    host: str = ""  # whose directories it changes, where hosts share a database; empty for what they share
    root: str = ""  # the directory there
    base: Tree = field(default_factory=dict)  # what was there, for those who can't look
    decided_on: datetime | None = None
    decided_by: str = ""
    decision: str = ""  # the reason given

    @property
    def trial(self) -> tuple[Mapping[str, str], ...]:
        """Rows of a trial that code went through: input, recorded, draft, and what of it was compared."""
        return tuple(self.change.details.get(TRIAL, ()))

    @property
    def user(self) -> str:
        """Who proposed it, or whose agent did; nobody for what goes on by itself."""
        return "" if self.author.actor is Actor.JOB else str(self.change.details.get(USER_OF, ""))

    @property
    def is_new(self) -> bool:
        """Whether it would add a skill."""
        return self.change.action is Action.WRITE and not self.base_hash

    @property
    def is_harmless(self) -> bool:
        """Whether it is text of an agent that brings no code and no power, and in which no check found anything."""
        return self.change.action is Action.WRITE and self.reasons == (AGENT_STARTED,)

    @property
    def place(self) -> str:
        """The skill and its layer, with the host where that matters."""
        address = f"{self.change.name}@{self.change.layer}"
        return f"{address} on {self.host}" if self.host else address

    @property
    def carried_as(self) -> str:
        """The change that its host makes of it: whoever is killed on the way finds it done, or not."""
        return hashlib.sha256(f"{self.host} {self.id} {self.decided_on}".encode()).hexdigest()[:16]

    @property
    def refusal(self) -> str:
        """Of one that was turned down: that it was, by whom and why, in a sentence."""
        what = "This change of" if self.change.action is Action.WRITE else f"The wish to {self.change.action}"
        reason = one_line(self.decision)[:500].rstrip(".") or "no reason given"
        return f"{what} '{self.change.name}' (proposal {self.id}) was turned down by {self.decided_by}: {reason}."


@dataclass(frozen=True, kw_only=True, slots=True)
class Submitted:
    """The result of a change: applied as this version, or waiting as this proposal."""

    version: int | None = None
    proposal: Proposal | None = None


def reasons_to_wait(change: Change, before: Tree, author: Author, *, auto: bool) -> list[str]:
    """Why a change has to wait for a person; nothing when it need not."""
    if not author.is_automatic:
        return list(change.findings)
    reasons = [] if auto else [AGENT_STARTED]
    if change.action is not Action.WRITE:
        reasons.append(f"the agent wants to {change.action} it")
        return reasons
    new_powers = powers(change.name, change.tree) - powers(change.name, before)
    if any(power.kind is PowerKind.RUNS for power in new_powers):
        reasons.append("it brings code")
    if auto and trees.TASKS_FILE in before:
        reasons.append("it has tasks, on which the change can be tried first")
    reasons += sorted(str(power) for power in new_powers if power.kind is not PowerKind.RUNS)
    return [*reasons, *change.findings]


_COUNT = sa.select(sa.func.count()).where(proposals.c.state == sa.bindparam("state"))


class Desks:
    """Where proposals lie: in one database, or where hosts share one, in that and for a while in the host's own.

    People call them by number: the id of the row, or with two databases even numbers for the shared one.
    """

    def __init__(self, *engines: sa.Engine) -> None:
        self.engines = engines
        self._blobs = Ledger("", "")

    def keep(self, engine: sa.Engine, wanted: Proposal) -> int:
        """Write it down; the number that it has there."""
        change = wanted.change
        with self._writing(engine) as connection:
            self._blobs.keep(connection, [*change.tree.values(), *wanted.base.values()])
            key = connection.execute(
                proposals.insert().values(
                    layer=change.layer,
                    name=change.name,
                    action=change.action.value,
                    base_hash=wanted.base_hash,
                    tree=records.pack_tree(change.tree),
                    author=records.pack_author(wanted.author),
                    reasons=json.dumps(wanted.reasons, ensure_ascii=False),
                    details=json.dumps(dict(change.details), ensure_ascii=False),
                    conversation=wanted.conversation,
                    made_on=wanted.made_on,
                    state=wanted.state.value,
                    host=wanted.host,
                    root=wanted.root,
                    base=records.pack_tree(wanted.base),
                )
            ).inserted_primary_key
        assert key is not None
        return self._number(engine, int(key[0]))

    def find(
        self, *where: sa.ColumnElement[bool], with_contents: bool = False, at: Sequence[sa.Engine] = ()
    ) -> list[Proposal]:
        """The oldest first; without contents their files are known by hash alone."""
        query = sa.select(proposals).where(*where).order_by(proposals.c.id)
        found: list[Proposal] = []
        for engine in at or self.engines:
            with sql.reading(engine) as connection:
                here = [_read(row, self._number(engine, row["id"])) for row in connection.execute(query).mappings()]
                found += [self._with_contents(connection, proposal) for proposal in here] if with_contents else here
        return sorted(found, key=lambda proposal: (proposal.made_on, proposal.id))

    def count(self, state: ProposalState) -> int:
        def ask(engine: sa.Engine) -> int:
            with sql.reading(engine) as connection:
                return int(connection.execute(_COUNT, {"state": state.value}).scalar_one())

        return sum(
            news_of(engine).fresh(Topic.PROPOSALS, partial(ask, engine), of=(sql.acts_as(engine), state))
            for engine in self.engines
        )

    def get(self, number: int) -> Proposal:
        engine, identity = self._place(number)
        with sql.reading(engine) as connection:
            row = connection.execute(sa.select(proposals).where(proposals.c.id == identity)).mappings().first()
            if row is not None:
                return self._with_contents(connection, _read(row, number))
        waiting = self.find(proposals.c.state == ProposalState.WAITING.value)
        known = ", ".join(str(one.id) for one in waiting) or "none"
        raise NotFound(f"There is no proposal {number}.", mend=f"Waiting: {known}.")

    def change(
        self,
        number: int,
        values: Mapping[str, Any],
        *,
        of: Iterable[ProposalState] = ProposalState,
        keep: Tree | None = None,
    ) -> bool:
        """Whether it was in one of these states, and is changed; `keep` are contents that the values speak of."""
        engine, identity = self._place(number)
        this = (proposals.c.id == identity, proposals.c.state.in_([state.value for state in of]))
        with self._writing(engine) as connection:
            self._blobs.keep(connection, (keep or {}).values())
            return connection.execute(proposals.update().where(*this).values(values)).rowcount > 0

    def remove(self, number: int) -> None:
        engine, identity = self._place(number)
        with self._writing(engine) as connection:
            connection.execute(proposals.delete().where(proposals.c.id == identity))

    @staticmethod
    def _writing(engine: sa.Engine) -> AbstractContextManager[sa.Connection]:
        return sql.writing(engine, durable=True, lock="proposals")

    def _number(self, engine: sa.Engine, identity: int) -> int:
        return identity * len(self.engines) + self.engines.index(engine)

    def _place(self, number: int) -> tuple[sa.Engine, int]:
        identity, desk = divmod(number, len(self.engines))
        return self.engines[desk], identity

    def _with_contents(self, connection: sa.Connection, proposal: Proposal) -> Proposal:
        tree = self._blobs.contents(connection, proposal.change.tree)
        base = self._blobs.contents(connection, proposal.base)
        return replace(proposal, change=replace(proposal.change, tree=tree), base=base)


def _read(row: Mapping[Any, Any], number: int) -> Proposal:
    reasons = tuple(json.loads(row["reasons"]))
    change = Change(
        action=Action(row["action"]),
        name=row["name"],
        layer=row["layer"],
        tree=records.unpack_tree(row["tree"]),
        details=json.loads(row["details"]),
    )
    return Proposal(
        id=number,
        change=change,
        base_hash=row["base_hash"],
        author=records.unpack_author(row["author"]),
        reasons=reasons,
        made_on=row["made_on"],
        state=ProposalState(row["state"]),
        conversation=row["conversation"],
        host=row["host"],
        root=row["root"],
        base=records.unpack_tree(row["base"] or "{}"),
        decided_on=row["decided_on"],
        decided_by=row["decided_by"] or "",
        decision=row["decision"] or "",
    )
