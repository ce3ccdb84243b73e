"""The inbox: pending changes to skills and pending lessons in one list."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from habitus.app.home import Home, memory_of
from habitus.errors import NotFound
from habitus.memory.model import Engram
from habitus.plain_data import plain
from habitus.skills import trees
from habitus.skills.choosing.finding import DUPLICATE, Finder, document_of
from habitus.skills.review import Proposal, ProposalState, Review

APPROVED = (ProposalState.ACCEPTED, ProposalState.CARRYING, ProposalState.APPROVED)
# The action of approving a lesson, next to the actions of proposals.
LEARN = "learn"


@dataclass(frozen=True, kw_only=True, slots=True)
class InboxItem:
    """A pending or decided item; `subject` is the whole proposal or lesson."""

    id: str
    state: str
    action: str
    what: str
    by: str
    reasons: tuple[str, ...]
    subject: Proposal | Engram

    def as_json(self) -> dict[str, Any]:
        """Return the item as JSON; proposals and lessons share keys with the same meaning."""
        told: dict[str, Any] = {"state": self.state, "action": self.action, "reasons": list(self.reasons)}
        match self.subject:
            case Proposal() as proposal:
                return {
                    **told,
                    "id": proposal.id,
                    "name": proposal.change.name,
                    "layer": proposal.change.layer,
                    "host": proposal.host,
                    "conversation": proposal.conversation,
                    "by": plain(proposal.author),
                    "made_on": plain(proposal.made_on),
                    "decided_on": plain(proposal.decided_on),
                    "decided_by": proposal.decided_by,
                    "decision": proposal.decision,
                    "files": sorted(proposal.change.tree),
                    "trial": [dict(row) for row in proposal.trial],
                }
            case Engram() as engram:
                return {
                    **told,
                    "id": engram.id,
                    "name": engram.id,
                    "text": engram.text,
                    "kind": engram.kind.value,
                    "scope": engram.scope.value,
                    "by": plain(engram.produced_by),
                    "conversation": engram.evidence.session,
                    "made_on": plain(engram.created_on),
                }


def waiting(
    home: Home, *, with_decided: bool = False, all_users: bool = False, with_contents: bool = True
) -> tuple[InboxItem, ...]:
    """Return pending proposals, then lessons, each with the reason for review; `with_contents` reads their files."""
    state = None if with_decided else ProposalState.WAITING
    found = home.review.list(state, everywhere=True, with_contents=with_contents)
    # Opening memory is slow, so do it only if lessons are pending.
    has_lessons = all_users or home.waiting_count() > home.review.waiting_count()
    lessons = memory_of(home, all_users).waiting() if has_lessons else ()
    return (*map(of_proposal, found), *map(of_lesson, lessons))


def decided_items(review: Review, limit: int) -> tuple[InboxItem, ...]:
    """Return the changes decided last, most recent first, without their files."""
    states = (*APPROVED, ProposalState.REJECTED)
    found = [one for state in states for one in review.list(state, with_contents=False, everywhere=True)]
    dated = sorted(found, key=lambda one: (one.decided_on or one.made_on, one.id), reverse=True)
    return tuple(map(of_proposal, dated[:limit]))


def together(finder: Finder, items: Sequence[InboxItem]) -> tuple[tuple[InboxItem, ...], ...]:
    """Group items to decide together: changes to one skill, and new skills that say nearly the same."""
    groups: list[list[InboxItem]] = []
    near = _alike(finder, items)
    for item in items:
        # An item may connect groups that were separate so far, so they are merged.
        mine = [group for group in groups if any(_belong(one, item, near) for one in group)]
        groups = [group for group in groups if group not in mine]
        groups.append([*(one for group in mine for one in group), item])
    order = {item.id: number for number, item in enumerate(items)}
    return tuple(sorted((tuple(group) for group in groups), key=lambda group: order[group[0].id]))


def alike(home: Home, item: InboxItem) -> tuple[InboxItem, ...]:
    """Return the other pending items that are best decided with this one; empty for a lesson."""
    if not isinstance(item.subject, Proposal):
        return ()
    others = [one for one in waiting(home) if one.id != item.id]
    near = _alike(home.finder, [item, *others], only=item.subject.change.name)
    return tuple(one for one in others if _belong(item, one, near))


def _belong(one: InboxItem, other: InboxItem, near: Mapping[str, Collection[str]]) -> bool:
    if not (isinstance(one.subject, Proposal) and isinstance(other.subject, Proposal)):
        return False
    first, second = one.subject.change.name, other.subject.change.name
    return one.what == other.what or second in near.get(first, ()) or first in near.get(second, ())


def _alike(finder: Finder, items: Sequence[InboxItem], only: str = "") -> dict[str, set[str]]:
    """Map each new pending skill, or only one, to the others that say nearly the same."""
    changes = [item.subject.change for item in items if isinstance(item.subject, Proposal) and item.subject.is_new]
    parsed = {change.name: trees.parse(change.name, change.tree).skill for change in changes}
    skills = [skill for skill in parsed.values() if skill is not None]
    if len(skills) < 2:
        return {}
    supposed = finder.supposing(skills)
    asked = [skill for skill in skills if only in ("", skill.name)]
    hits = {skill.name: supposed.similar(document_of(skill, skill.body)) for skill in asked}
    return {
        name: {hit.id for hit in found if hit.id in parsed and hit.score >= DUPLICATE} for name, found in hits.items()
    }


def get(home: Home, id: str, *, all_users: bool = False) -> InboxItem:
    """Return an item by a proposal's number or a lesson's id."""
    # A lesson's id starts with a letter, so the two can't be confused.
    if (number := number_of(id)) is not None:
        return of_proposal(home.review.get(number))
    try:
        return of_lesson(memory_of(home, all_users).get(id))
    except NotFound:
        raise NotFound(f"There is no proposal or lesson '{id}'.", hint="See 'habitus review list'.") from None


def number_of(id: str) -> int | None:
    """Return the number of a proposal; None if the id can't be one."""
    # At most nine digits: larger numbers overflow the column in some databases.
    return int(id) if id.isascii() and id.isdigit() and len(id) < 10 else None


def of_proposal(proposal: Proposal) -> InboxItem:
    """Return a proposal as an inbox item."""
    return InboxItem(
        id=str(proposal.id),
        state=proposal.state,
        action=proposal.change.action,
        what=proposal.place,
        by=f"{proposal.author.actor.value} {proposal.author.name}".strip(),
        reasons=proposal.reasons,
        subject=proposal,
    )


def of_lesson(lesson: Engram) -> InboxItem:
    """Return a lesson as an inbox item."""
    return InboxItem(
        id=lesson.id,
        state=lesson.state,
        action=LEARN,
        what=lesson.text,
        by=lesson.produced_by,
        reasons=(lesson.reason,),
        subject=lesson,
    )
