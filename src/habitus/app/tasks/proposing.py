"""Proposed tasks: mined, drafted or varied ones do nothing until a person has ticked them in the review queue."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date

from habitus.app.home import Home, refuse_change_if_unwritable_or_paused
from habitus.app.tasks.storing import load_tasks, parse_proposed_tasks
from habitus.errors import Invalid, NotFound
from habitus.files import build_tree_file
from habitus.skills import trees
from habitus.skills.model import ActorKind, Author
from habitus.skills.proposals import Proposal, ProposalAction, ProposalState, SkillChange
from habitus.skills.review import ReviewQueue
from habitus.tasks.checks import describe_check
from habitus.tasks.files import serialize_tasks
from habitus.tasks.model import VARIANT_MARK, Task, get_task_family

_NUMBERS = re.compile(r"\d{1,6}(?:-\d{1,6})?")


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskCandidate:
    """A task to tick, with the evidence for it; `proposal` is its id once it is pending review."""

    skill: str
    task: Task
    evidence: tuple[str, ...]
    asked_on: str = ""  # the day of the request that it came from; none if it is drafted or varied
    proposal: int | None = None

    @property
    def reasons(self) -> tuple[str, ...]:
        """The evidence, and whose variant it is: a family counts as one task."""
        family = get_task_family(self.task.id)
        return (*self.evidence, *([] if family == self.task.id else [f"a variant of '{family}': both count as one"]))

    @property
    def criterion(self) -> str:
        """What decides whether it was done, in words."""
        return " and ".join(map(describe_check, self.task.checks))


def propose_tasks(home: Home, found: Sequence[TaskCandidate], *, source: str, reason: str) -> list[TaskCandidate]:
    """Put the candidates into the review queue, those of one skill in one proposal."""
    author = Author(actor=ActorKind.JOB, name=source, reason=reason)
    refuse_change_if_unwritable_or_paused(home, author)
    ids = {skill: _propose_skill_tasks(home, skill, found, author) for skill in {one.skill for one in found}}
    return [replace(one, proposal=ids[one.skill]) for one in found]


def _propose_skill_tasks(home: Home, skill: str, found: Sequence[TaskCandidate], author: Author) -> int:
    mined = [one for one in found if one.skill == skill]
    tree = {trees.TASKS_FILE: build_tree_file(serialize_tasks([one.task for one in mined]).encode())}
    details = {
        "tasks": [one.task.id for one in mined],
        "evidence": {one.task.id: list(one.evidence) for one in mined},
        "asked_on": {one.task.id: one.asked_on for one in mined},
    }
    change = SkillChange(
        action=ProposalAction.TASKS, name=skill, layer=home.skills.find(skill).layer, tree=tree, details=details
    )
    # Whoever reads the inbox reads the reasons; the other lines quote requests, for those who may read tasks.
    reasons = list(dict.fromkeys(line for one in mined for line in one.evidence[:1]))
    return home.review.propose(change, author, reasons, conversation=mined[0].task.origin.conversation).id


def list_known_task_ids(home: Home, skill: str) -> set[str]:
    """Return the ids of the skill's tasks and of those that were ever proposed, without the families of variants."""
    proposals = home.review.list_proposals_by_state(None, with_contents=False)
    current = (one for one in proposals if one.state is not ProposalState.STALE)
    proposed = (id for one in current for id in one.change.details.get("tasks", ()))
    return {id.rpartition(VARIANT_MARK)[2] for id in (*proposed, *(task.id for task in load_tasks(home, skill)))}


def list_pending_tasks(home: Home, skill: str) -> list[TaskCandidate]:
    """Return the tasks of a skill that are pending review, the oldest first."""
    name = home.skills.find(skill).name
    pending = [
        one
        for one in home.review.list_proposals_by_state(ProposalState.PENDING)
        if one.change.action is ProposalAction.TASKS
    ]
    return [
        TaskCandidate(
            skill=name,
            task=task,
            evidence=tuple(one.change.details.get("evidence", {}).get(task.id, one.reasons)),
            asked_on=one.change.details.get("asked_on", {}).get(task.id, ""),
            proposal=one.id,
        )
        for one in pending
        if one.change.name == name
        for task in parse_proposed_tasks(one.change)
    ]


def describe_months_of_requests(found: Sequence[TaskCandidate]) -> str:
    """Return the months in which tasks were asked, such as "October 2026"; empty if no day is known."""
    days = sorted(one.asked_on for one in found if one.asked_on)
    months = [f"{date.fromisoformat(day):%B %Y}" for day in (days[:1] + days[-1:])]
    return " to ".join(dict.fromkeys(months))


def parse_task_id_selection(wanted: Iterable[str], ids: Sequence[str]) -> list[str]:
    """Return the ids that are named, or numbered from 1 as in "1-5,8", or "all". Raises `NotFound` for others."""
    picked: dict[str, None] = {}
    for part in (part.strip() for each in wanted for part in ([each] if each in ids else each.split(","))):
        first, _, last = part.partition("-")
        numbers = range(int(first), int(last or first) + 1) if _NUMBERS.fullmatch(part) else range(0)
        if part in ids:
            picked[part] = None
        elif part == "all":
            picked |= dict.fromkeys(ids)
        elif len(numbers) and numbers[0] >= 1 and numbers[-1] <= len(ids):
            picked |= dict.fromkeys(ids[numbers[0] - 1 : numbers[-1]])
        else:
            raise NotFound(
                f"There is no task '{part}' among {len(ids)}.", hint="Give ids, or numbers as 1-5,8, or all."
            )
    return [id for id in ids if id in picked]


def drop_unselected_tasks_from_proposal(review: ReviewQueue, proposal: Proposal, wanted: Collection[str]) -> None:
    """Drop the other tasks of a pending proposal."""
    if proposal.change.action is not ProposalAction.TASKS:
        raise Invalid(f"Proposal {proposal.id} adds no tasks to pick from.", hint="Approve it without --only.")
    proposed = parse_proposed_tasks(proposal.change)
    ids = parse_task_id_selection(wanted, [task.id for task in proposed])
    kept = serialize_tasks(task for task in proposed if task.id in ids)
    review.edit_proposed_file(proposal.id, trees.TASKS_FILE, kept.encode())
