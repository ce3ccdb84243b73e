"""Proposals: changes that wait for a person, each bound to what it changes, so that nothing else can be approved.

What a person asks for is applied at once. What the agent starts itself waits, unless the person has said that its
prose may be applied (`review.auto`); code, new powers, findings, near-duplicates, deletes and switches always wait.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, assert_never

import sqlalchemy as sa

from habitus import sql
from habitus.errors import Invalid, NotFound, Refused, Stale
from habitus.files import Tree, checked_path, file_of, is_same, tree_hash
from habitus.skills import names, records, trees
from habitus.skills.diffing import diff_trees
from habitus.skills.layers import USER
from habitus.skills.ledger import Ledger
from habitus.skills.library import Library
from habitus.skills.model import Author, Skill
from habitus.skills.powers import PowerKind, powers
from habitus.skills.tables import proposals
from habitus.text import one_line


class Action(StrEnum):
    WRITE = "write"
    REMOVE = "remove"
    ENABLE = "enable"
    DISABLE = "disable"


class ProposalState(StrEnum):
    WAITING = "waiting"
    APPROVED = "approved"
    REJECTED = "rejected"
    STALE = "stale"  # what it changes has moved on


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """What somebody wants to do to one skill. `tree` is its files as they shall be, for a write."""

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
    decided_on: datetime | None = None
    decided_by: str = ""
    decision: str = ""  # the reason given

    @property
    def is_new(self) -> bool:
        """Whether it would add a skill."""
        return self.change.action is Action.WRITE and not self.base_hash

    @property
    def refusal(self) -> str:
        """Of one that was turned down: that it was, by whom and why, in a sentence."""
        what = "This change of" if self.change.action is Action.WRITE else f"The wish to {self.change.action}"
        reason = one_line(self.decision)[:500].rstrip(".") or "no reason given"
        return f"{what} '{self.change.name}' (proposal {self.id}) was turned down by {self.decided_by}: {reason}."


@dataclass(frozen=True, kw_only=True, slots=True)
class Submitted:
    """What became of a change: applied as this version, or waiting as this proposal."""

    version: int | None = None
    proposal: Proposal | None = None


def reasons_to_wait(change: Change, before: Tree, author: Author, *, auto: bool) -> list[str]:
    """Why a change has to wait for a person; nothing when it need not."""
    if not author.is_automatic:
        return list(change.findings)
    reasons = [] if auto else ["the agent started it"]
    if change.action is not Action.WRITE:
        reasons.append(f"the agent wants to {change.action} it")
        return reasons
    new_powers = powers(change.name, change.tree) - powers(change.name, before)
    if any(power.kind is PowerKind.RUNS for power in new_powers):
        reasons.append("it brings code")
    reasons += sorted(str(power) for power in new_powers if power.kind is not PowerKind.RUNS)
    return [*reasons, *change.findings]


class Review:
    def __init__(
        self,
        library: Library,
        engine: sa.Engine,
        *,
        clock: Callable[[], datetime],
        auto: bool,
        local: sa.Engine | None = None,
        duplicates: Callable[[str, Tree], Sequence[str]] = lambda name, tree: (),
        redacted: Callable[[str], str] = lambda text: text,
        tell: Callable[[Proposal], None] = lambda proposal: None,
    ) -> None:
        """`local` is this machine's database where `engine` is shared with others; `tell` hears what begins to wait."""
        self._library = library
        self._duplicates = duplicates  # what a new skill is too much like, in words
        # The person's own layer is shared; the directories of the others belong to this machine, as do their proposals.
        self._desks = (engine,) if local in (None, engine) else (engine, local)
        self._clock = clock
        self._redacted = redacted  # for reasons, which people and models write; files are kept as they are
        self._auto = auto
        self._tell = tell
        self._blobs = Ledger("", "")
        self._told: list[Callable[[Proposal], None]] = []

    def when_approved(self, tell: Callable[[Proposal], None]) -> None:
        """Call this with every proposal that has been carried out."""
        self._told.append(tell)

    def submit(self, change: Change, author: Author, *, conversation: str = "") -> Submitted:
        """Apply a change, or keep it for a person to decide."""
        before = self._current(change)
        if author.is_automatic and change.action is Action.WRITE and not before:
            found = self._duplicates(change.name, change.tree)
            change = replace(change, findings=(*change.findings, *found))
        reasons = reasons_to_wait(change, before, author, auto=self._auto)
        if reasons:
            return Submitted(proposal=self.propose(change, author, reasons, conversation=conversation))
        return Submitted(version=self._apply(change, author))

    def propose(self, change: Change, author: Author, reasons: Sequence[str], *, conversation: str = "") -> Proposal:
        """Keep a change for a person. The same change proposed again is the same proposal.

        What a person has turned down is refused with their reason, unless it is a person who brings it up again.
        """
        change = replace(change, name=names.checked(change.name))
        before = self._current(change)
        base_hash = tree_hash(before) if before else ""
        if change.action is Action.WRITE and trees.parse(change.name, change.tree).skill is None:
            raise Invalid(str(trees.parse(change.name, change.tree).diagnostics[-1]), mend="")
        trees.refuse_clash(change.name, change.tree)
        for earlier in self._earlier(change, base_hash):
            if earlier.state is ProposalState.WAITING:
                return self.get(earlier.id)
            if author.is_automatic:
                raise Refused(earlier.refusal, mend="Do it another way, or ask the person what they want.")
        engine = self._desks[0] if change.layer == USER else self._desks[-1]
        with sql.writing(engine, durable=True, lock="proposals") as connection:
            self._blobs.keep(connection, change.tree.values())
            key = connection.execute(
                proposals.insert().values(
                    layer=change.layer,
                    name=change.name,
                    action=change.action.value,
                    base_hash=base_hash,
                    tree=records.pack_tree(change.tree),
                    author=records.pack_author(replace(author, reason=self._redacted(author.reason))),
                    reasons=json.dumps([self._redacted(reason) for reason in reasons], ensure_ascii=False),
                    details=json.dumps(dict(change.details), ensure_ascii=False),
                    conversation=conversation,
                    made_on=self._clock(),
                    state=ProposalState.WAITING.value,
                )
            ).inserted_primary_key
        assert key is not None
        made = self.get(self._number(engine, int(key[0])))
        self._tell(made)
        return made

    def _earlier(self, change: Change, base_hash: str) -> Sequence[Proposal]:
        """Proposals of the same change that wait or were turned down, those that wait first."""
        about = (change.layer, change.name, change.action)
        found = [*self.list(ProposalState.WAITING, with_contents=False), *self._rejected(change.name)]
        return [
            one
            for one in found
            if (one.change.layer, one.change.name, one.change.action) == about
            and (one.base_hash == base_hash or (one.state is ProposalState.REJECTED and change.action is Action.WRITE))
            and is_same(one.change.tree, change.tree)
        ]

    def _rejected(self, name: str) -> Sequence[Proposal]:
        return self._found(proposals.c.state == ProposalState.REJECTED.value, proposals.c.name == name)

    def list(
        self, state: ProposalState | None = ProposalState.WAITING, *, with_contents: bool = True
    ) -> list[Proposal]:
        """The proposals of a state, or all; without contents their files are known by hash alone."""
        where = () if state is None else (proposals.c.state == state.value,)
        return [*self._found(*where, with_contents=with_contents)]

    def turned_down(self) -> Sequence[Proposal]:
        """What an agent proposed, a person turned down, and no agent has heard of yet."""
        return self._found(proposals.c.state == ProposalState.REJECTED.value, proposals.c.told_on.is_(None))

    def told(self, numbers: Iterable[int]) -> None:
        """The agent has heard that these were turned down, and why."""
        for number in numbers:
            engine, identity = self._place(number)
            with sql.writing(engine, lock="proposals") as connection:
                mine = proposals.update().where(proposals.c.id == identity)
                connection.execute(mine.values(told_on=self._clock()))

    def _found(self, *where: sa.ColumnElement[bool], with_contents: bool = False) -> Sequence[Proposal]:
        query = sa.select(proposals).where(*where).order_by(proposals.c.id)
        found: list[Proposal] = []
        for engine in self._desks:
            with sql.reading(engine) as connection:
                here = [_proposal(row, self._number(engine, row["id"])) for row in connection.execute(query).mappings()]
                found += [self._with_contents(connection, proposal) for proposal in here] if with_contents else here
        return sorted(found, key=lambda proposal: (proposal.made_on, proposal.id))

    def in_conversation(self, conversation: str) -> dict[str, Skill]:
        """The skills that wait and were written in this conversation: there they work already."""
        waiting = [proposal for proposal in self.list() if proposal.conversation == conversation]
        parsed = {p.change.name: trees.parse(p.change.name, p.change.tree).skill for p in waiting if p.change.tree}
        return {name: skill for name, skill in parsed.items() if skill is not None}

    def waiting_count(self) -> int:
        query = sa.select(sa.func.count()).where(proposals.c.state == ProposalState.WAITING.value)
        total = 0
        for engine in self._desks:
            with sql.reading(engine) as connection:
                total += int(connection.execute(query).scalar_one())
        return total

    def get(self, number: int) -> Proposal:
        engine, identity = self._place(number)
        with sql.reading(engine) as connection:
            row = connection.execute(sa.select(proposals).where(proposals.c.id == identity)).mappings().first()
            if row is not None:
                return self._with_contents(connection, _proposal(row, number))
        known = ", ".join(str(waiting.id) for waiting in self.list(with_contents=False)) or "none"
        raise NotFound(f"There is no proposal {number}.", mend=f"Waiting: {known}.")

    def _number(self, engine: sa.Engine, identity: int) -> int:
        """What people call a proposal: its id, or with two databases even numbers for the shared one."""
        return identity * len(self._desks) + self._desks.index(engine)

    def _place(self, number: int) -> tuple[sa.Engine, int]:
        identity, desk = divmod(number, len(self._desks))
        return self._desks[desk], identity

    def diff(self, number: int) -> str:
        """What approving it would change."""
        proposal = self.get(number)
        change = proposal.change
        match change.action:
            case Action.WRITE:
                return diff_trees(self._current(change), change.tree, f"{change.name} now", f"{change.name} proposed")
            case Action.REMOVE:
                return diff_trees(self._current(change), {}, f"{change.name} now", f"{change.name} proposed")
            case Action.ENABLE | Action.DISABLE:
                return f"{change.action} {change.name}@{change.layer}\n"
            case never:
                assert_never(never)

    def approve(self, number: int, person: Author) -> tuple[Proposal, int | None]:
        """Carry it out. A proposal whose base has moved becomes stale and changes nothing."""
        proposal = self._waiting(number)
        change = proposal.change
        before = self._current(change)
        if (tree_hash(before) if before else "") != proposal.base_hash:
            self._decide(number, ProposalState.STALE, person, "what it changes has moved on")
            raise Stale(
                f"'{change.name}' has changed since proposal {number} was made.",
                mend="It is now marked stale; ask for it again on the current version.",
            )
        who = f"proposed by {proposal.author.actor.value} {proposal.author.name}".strip()
        reason = f"{proposal.author.reason} ({who}, proposal {number})".strip()
        store = self._library.layer(change.layer).store
        current = next((v.number for v in reversed(store.history(change.name))), 0)
        version = self._apply(change, replace(person, reason=reason), expected_version=current)
        self._decide(number, ProposalState.APPROVED, person, "")
        for tell in self._told:
            tell(proposal)
        return self.get(number), version

    def reject(self, number: int, person: Author, reason: str) -> Proposal:
        """Turn it down; the agent sees the reason."""
        proposal = self._waiting(number)
        self._decide(number, ProposalState.REJECTED, person, reason)
        if not proposal.author.is_automatic:
            self.told([number])
        return self.get(number)

    def reopen(self, number: int) -> Proposal:
        """Let it wait again, as if nobody had decided; what approving it did is the caller's to take back."""
        proposal = self.get(number)
        if proposal.state not in (ProposalState.REJECTED, ProposalState.APPROVED):
            raise Invalid(f"Proposal {number} is {proposal.state.value}; nobody has decided about it.", mend="")
        engine, identity = self._place(number)
        with sql.writing(engine, durable=True, lock="proposals") as connection:
            undecided = dict.fromkeys(("decided_on", "decided_by", "decision", "told_on"))
            again = {"state": ProposalState.WAITING.value, **undecided}
            connection.execute(proposals.update().where(proposals.c.id == identity).values(again))
        return self.get(number)

    def supersede(self, number: int, by: int, author: Author) -> None:
        """A later proposal of the same author says what this one said, and more."""
        self._decide(number, ProposalState.STALE, author, f"replaced by proposal {by}")

    def edit(self, number: int, path: str, content: bytes) -> Proposal:
        """Change a file of a waiting proposal before it is approved."""
        proposal = self._waiting(number)
        if proposal.change.action is not Action.WRITE:
            raise Invalid(f"Proposal {number} writes nothing that could be edited.", mend="Approve or reject it.")
        tree = {**proposal.change.tree, checked_path(path): file_of(content)}
        parsed = trees.parse(proposal.change.name, tree)
        if parsed.skill is None:
            raise Invalid(str(parsed.diagnostics[-1]), mend="")
        engine, identity = self._place(number)
        with sql.writing(engine, durable=True, lock="proposals") as connection:
            self._blobs.keep(connection, tree.values())
            changed = proposals.update().where(proposals.c.id == identity).values(tree=records.pack_tree(tree))
            connection.execute(changed)
        return self.get(number)

    def _waiting(self, number: int) -> Proposal:
        proposal = self.get(number)
        if proposal.state is not ProposalState.WAITING:
            by = f" by {proposal.decided_by}" if proposal.decided_by else ""
            became = "found stale" if proposal.state is ProposalState.STALE else proposal.state.value
            raise Invalid(f"Proposal {number} was {became}{by} already.", mend="See 'habitus review list'.")
        return proposal

    def _decide(self, number: int, state: ProposalState, person: Author, decision: str) -> None:
        engine, identity = self._place(number)
        with sql.writing(engine, durable=True, lock="proposals") as connection:
            connection.execute(
                proposals.update()
                .where(proposals.c.id == identity, proposals.c.state == ProposalState.WAITING.value)
                .values(
                    state=state.value,
                    decided_on=self._clock(),
                    decided_by=person.name or person.actor.value,
                    decision=self._redacted(decision),
                )
            )

    def _current(self, change: Change) -> Tree:
        """The files that the change is about, as they are; empty when there are none."""
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
            case never:
                assert_never(never)

    def _with_contents(self, connection: sa.Connection, proposal: Proposal) -> Proposal:
        tree = self._blobs.contents(connection, proposal.change.tree)
        return replace(proposal, change=replace(proposal.change, tree=tree))


def _proposal(row: Mapping[Any, Any], number: int) -> Proposal:
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
        decided_on=row["decided_on"],
        decided_by=row["decided_by"] or "",
        decision=row["decision"] or "",
    )
