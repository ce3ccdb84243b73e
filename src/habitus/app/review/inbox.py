"""The inbox: pending changes to skills and pending lessons in one list."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from habitus.app.home import Home, get_user_or_all_memory
from habitus.app.review.reminding import count_pending_items
from habitus.errors import NotFound
from habitus.memory.model import Engram
from habitus.plain_data import convert_to_plain_json
from habitus.skills import trees
from habitus.skills.choosing.skill_finder import DUPLICATE_THRESHOLD, SkillFinder, make_search_document
from habitus.skills.review import Proposal, ProposalState, ReviewQueue

APPROVED = (ProposalState.ACCEPTED, ProposalState.APPLYING, ProposalState.APPROVED)
# The action of approving a lesson, next to the actions of proposals.
LEARN_ACTION = "learn"


@dataclass(frozen=True, kw_only=True, slots=True)
class ReviewInboxItem:
    """A pending or decided item; `subject` is the whole proposal or lesson."""

    id: str
    state: str
    action: str
    title: str
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
                    "by": convert_to_plain_json(proposal.author),
                    "made_on": convert_to_plain_json(proposal.made_on),
                    "decided_on": convert_to_plain_json(proposal.decided_on),
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
                    "by": convert_to_plain_json(engram.produced_by),
                    "conversation": engram.evidence.session,
                    "made_on": convert_to_plain_json(engram.created_on),
                }


def list_pending(
    home: Home, *, with_decided: bool = False, all_users: bool = False, with_contents: bool = True
) -> tuple[ReviewInboxItem, ...]:
    """Return pending proposals, then lessons, each with the reason for review; `with_contents` reads their files."""
    state = None if with_decided else ProposalState.PENDING
    found = home.review.list_proposals_by_state(state, all_hosts=True, with_contents=with_contents)
    # Opening memory is slow, so do it only if lessons are pending.
    has_lessons = all_users or count_pending_items(home) > home.review.count_pending()
    lessons = get_user_or_all_memory(home, all_users).list_pending_lessons() if has_lessons else ()
    return (*map(build_proposal_item, found), *map(build_lesson_item, lessons))


def list_latest_decided_changes(review: ReviewQueue, limit: int) -> tuple[ReviewInboxItem, ...]:
    """Return the changes decided last, most recent first, without their files."""
    states = (*APPROVED, ProposalState.REJECTED)
    found = [
        one for state in states for one in review.list_proposals_by_state(state, with_contents=False, all_hosts=True)
    ]
    dated = sorted(found, key=lambda one: (one.decided_on or one.made_on, one.id), reverse=True)
    return tuple(map(build_proposal_item, dated[:limit]))


def group_related_items(
    finder: SkillFinder, items: Sequence[ReviewInboxItem]
) -> tuple[tuple[ReviewInboxItem, ...], ...]:
    """Group items to decide together: changes to one skill, and new skills that say nearly the same."""
    groups: list[list[ReviewInboxItem]] = []
    near = _map_similar_new_skills(finder, items)
    for item in items:
        # An item may connect groups that were separate so far, so they are merged.
        mine = [group for group in groups if any(_are_related(one, item, near) for one in group)]
        groups = [group for group in groups if group not in mine]
        groups.append([*(one for group in mine for one in group), item])
    order = {item.id: number for number, item in enumerate(items)}
    return tuple(sorted((tuple(group) for group in groups), key=lambda group: order[group[0].id]))


def find_related_items(home: Home, item: ReviewInboxItem) -> tuple[ReviewInboxItem, ...]:
    """Return the other pending items that are best decided with this one; empty for a lesson."""
    if not isinstance(item.subject, Proposal):
        return ()
    others = [one for one in list_pending(home) if one.id != item.id]
    near = _map_similar_new_skills(home.finder, [item, *others], only=item.subject.change.name)
    return tuple(one for one in others if _are_related(item, one, near))


def _are_related(one: ReviewInboxItem, other: ReviewInboxItem, near: Mapping[str, Collection[str]]) -> bool:
    if not (isinstance(one.subject, Proposal) and isinstance(other.subject, Proposal)):
        return False
    first, second = one.subject.change.name, other.subject.change.name
    return one.title == other.title or second in near.get(first, ()) or first in near.get(second, ())


def _map_similar_new_skills(
    finder: SkillFinder, items: Sequence[ReviewInboxItem], only: str = ""
) -> dict[str, set[str]]:
    """Map each new pending skill, or only one, to the others that say nearly the same."""
    changes = [
        item.subject.change for item in items if isinstance(item.subject, Proposal) and item.subject.would_add_skill
    ]
    parsed = {change.name: trees.parse_skill_tree(change.name, change.tree).skill for change in changes}
    skills = [skill for skill in parsed.values() if skill is not None]
    if len(skills) < 2:
        return {}
    supposed = finder.build_hypothetical_searcher(skills)
    asked = [skill for skill in skills if only in ("", skill.name)]
    hits = {skill.name: supposed.find_similar(make_search_document(skill, skill.body)) for skill in asked}
    return {
        name: {hit.id for hit in found if hit.id in parsed and hit.score >= DUPLICATE_THRESHOLD}
        for name, found in hits.items()
    }


def get_inbox_item(home: Home, id: str, *, all_users: bool = False) -> ReviewInboxItem:
    """Return an item by a proposal's number or a lesson's id."""
    # A lesson's id starts with a letter, so the two can't be confused.
    if (number := parse_proposal_number(id)) is not None:
        return build_proposal_item(home.review.get(number))
    try:
        return build_lesson_item(get_user_or_all_memory(home, all_users).get(id))
    except NotFound:
        raise NotFound(f"There is no proposal or lesson '{id}'.", hint="See 'habitus review list'.") from None


def parse_proposal_number(id: str) -> int | None:
    """Return the number of a proposal; None if the id can't be one."""
    # At most nine digits: larger numbers overflow the column in some databases.
    return int(id) if id.isascii() and id.isdigit() and len(id) < 10 else None


def build_proposal_item(proposal: Proposal) -> ReviewInboxItem:
    """Return a proposal as an inbox item."""
    return ReviewInboxItem(
        id=str(proposal.id),
        state=proposal.state,
        action=proposal.change.action,
        title=proposal.address_with_host,
        by=f"{proposal.author.actor.value} {proposal.author.name}".strip(),
        reasons=proposal.reasons,
        subject=proposal,
    )


def build_lesson_item(lesson: Engram) -> ReviewInboxItem:
    """Return a lesson as an inbox item."""
    return ReviewInboxItem(
        id=lesson.id,
        state=lesson.state,
        action=LEARN_ACTION,
        title=lesson.text,
        by=lesson.produced_by,
        reasons=(lesson.reason,),
        subject=lesson,
    )
