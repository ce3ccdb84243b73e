"""The inbox: everything that waits for a person, changes of skills and lessons in one list, and their word on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from habitus.app.habitus import Habitus
from habitus.app.undoing import of_version
from habitus.app.whose import memory_of
from habitus.app.writing import ByHand, editable
from habitus.errors import Invalid
from habitus.memory.model import Engram
from habitus.skills.review import Action, Proposal, ProposalState

LEARN = "learn"  # what approving a lesson does, beside the actions of proposals


@dataclass(frozen=True, kw_only=True, slots=True)
class InboxItem:
    """One thing a person decides about, or has decided; `subject` is what it is about, whole."""

    id: str
    state: str
    action: str
    what: str
    by: str
    reasons: tuple[str, ...]
    subject: Proposal | Engram


@dataclass(frozen=True, kw_only=True, slots=True)
class Decided:
    """What was decided; an approved change may have made a version, and can be taken back."""

    item: InboxItem
    version: int | None = None
    undo: tuple[str, ...] = ()


def waiting(habitus: Habitus, *, with_decided: bool = False, all_users: bool = False) -> tuple[InboxItem, ...]:
    """Proposals, then lessons, each with the reason why it waits."""
    found = habitus.review.list(None if with_decided else ProposalState.WAITING)
    # Memory is opened only where lessons wait.
    has_lessons = all_users or habitus.waiting_count() > habitus.review.waiting_count()
    lessons = memory_of(habitus, all_users).waiting() if has_lessons else ()
    return (*map(_of_proposal, found), *map(_of_lesson, lessons))


def get(habitus: Habitus, id: str, *, all_users: bool = False) -> InboxItem:
    """By a proposal's number, or a lesson's id, which begins with a letter."""
    if id.isdigit():
        return _of_proposal(habitus.review.get(int(id)))
    return _of_lesson(memory_of(habitus, all_users).get(id))


def diff(habitus: Habitus, item: InboxItem) -> str:
    """What approving it would change."""
    subject = item.subject
    return habitus.review.diff(subject.id) if isinstance(subject, Proposal) else f"+{subject.text}\n"


def approve(habitus: Habitus, ids: Sequence[str], *, all_users: bool = False) -> Iterator[Decided]:
    """Carry changes out and let lessons in, one by one; an unknown one is said before anything is done."""
    for item in [get(habitus, id, all_users=all_users) for id in ids]:
        yield _approved(habitus, item, all_users)


def _approved(habitus: Habitus, item: InboxItem, all_users: bool) -> Decided:
    if isinstance(item.subject, Engram):
        lesson = memory_of(habitus, all_users).approve(item.subject.id, by=habitus.settings.signature)
        return Decided(item=_of_lesson(lesson), undo=("lessons", "remove", lesson.id))
    proposal, version = habitus.review.approve(item.subject.id, habitus.person())
    return Decided(item=_of_proposal(proposal), version=version, undo=_undo(habitus, proposal, version))


def _undo(habitus: Habitus, proposal: Proposal, version: int | None) -> tuple[str, ...]:
    address = f"{proposal.change.name}@{proposal.change.layer}"
    match proposal.change.action:
        case Action.WRITE:
            return of_version(address, version or 1)
        case Action.REMOVE:
            return ("skills", "restore", f"{address}#{habitus.skills.newest_archived(address).id}")
        case Action.ENABLE:
            return ("skills", "disable", address)
        case Action.DISABLE:
            return ("skills", "enable", address)


def reject(habitus: Habitus, id: str, reason: str, *, all_users: bool = False) -> InboxItem:
    """Turn it down; the agent sees the reason."""
    if id.isdigit():
        return _of_proposal(habitus.review.reject(int(id), habitus.person(), reason))
    memory = memory_of(habitus, all_users)
    return _of_lesson(memory.reject(id, by=habitus.settings.signature, reason=reason))


def mend(habitus: Habitus, id: str, by_hand: ByHand) -> tuple[InboxItem, bool]:
    """Have the text of a proposal changed before it is approved; says whether it was."""
    if not id.isdigit():
        raise Invalid(f"'{id}' is a lesson.", mend=f"It is edited with 'habitus lessons edit {id}'.")
    change = habitus.review.get(int(id)).change
    path, content = editable(change.tree)
    with by_hand(content, f"{change.name}.md") as written:
        return _of_proposal(habitus.review.edit(int(id), path, written)), written != content


def _of_proposal(proposal: Proposal) -> InboxItem:
    return InboxItem(
        id=str(proposal.id),
        state=proposal.state,
        action=proposal.change.action,
        what=f"{proposal.change.name}@{proposal.change.layer}",
        by=f"{proposal.author.actor.value} {proposal.author.name}".strip(),
        reasons=proposal.reasons,
        subject=proposal,
    )


def _of_lesson(lesson: Engram) -> InboxItem:
    return InboxItem(
        id=lesson.id,
        state=lesson.state,
        action=LEARN,
        what=lesson.text,
        by=lesson.produced_by,
        reasons=(lesson.reason,),
        subject=lesson,
    )
