"""REST for what waits for a person: look at it, approve it, turn it down, take one of several, or mend it first."""

from __future__ import annotations

from contextlib import nullcontext

from fastapi import APIRouter
from pydantic import Field

from habitus.app import json_of
from habitus.app.library import comparing
from habitus.app.operation.once import Attempt, once
from habitus.app.review import inbox, replaying
from habitus.app.review.inbox import Decided
from habitus.skills.review import Proposal, ProposalState
from habitus.web.api.answers import Undo, Waiting, answer, many, page_of
from habitus.web.api.asking import After, Body, Json, Limit, Line, OnceKey, Opened, Reason, Words, paged, told

router = APIRouter(prefix="/review", tags=["review"])


Approved = answer("Approved", base=Waiting, version=int | None, undo=Undo)
Rejected = answer("Rejected", base=Waiting, undo=Undo)
Chosen = answer("Chosen", taken=Approved, turned_down=many(Rejected))
Mended = answer("Mended", base=Waiting, changed=bool)
WaitingPage = page_of("proposals", Waiting, groups=list[list[int | str]])
WaitingWhole = answer("WaitingWhole", base=Waiting, diff=str, alike=list[str])


class Text(Body):
    text: Words


class Others(Body):
    others: tuple[Line, ...] = Field(min_length=1, max_length=100, description="Those to turn down.")


@router.get("", response_model=WaitingPage, response_model_exclude_unset=True)
def list_waiting(habitus: Opened, decided: bool = False, limit: Limit = 100, after: After = "") -> Json:
    """What waits and why: changes of skills by number, lessons by id; with `decided`, what was decided too.

    `groups` has those of all that wait which are best decided together: changes of one skill, or new ones that say
    much the same.
    """
    found = inbox.waiting(habitus, with_decided=decided)
    around, page = paged("what waits", found, lambda item: item.id, limit, after)
    undecided = [item for item in found if item.state == ProposalState.WAITING]
    groups = [
        [item.subject.id for item in group] for group in inbox.together(habitus.finder, undecided) if len(group) > 1
    ]
    return {"proposals": [told(json_of.waiting(item)) for item in page], "groups": groups, **around}


@router.get("/{id}", response_model=WaitingWhole, response_model_exclude_unset=True)
def show(habitus: Opened, id: str) -> Json:
    """One of them, with what approving it would change, and the skills that say much the same."""
    found = inbox.get(habitus, id)
    alike = list(comparing.twins(habitus.skills, found.subject)) if isinstance(found.subject, Proposal) else []
    answer: Json = told(json_of.waiting(found) | {"diff": inbox.diff(habitus.review, found), "alike": alike})
    return answer


@router.post("/{id}/approve", response_model=Approved, response_model_exclude_unset=True)
def approve(habitus: Opened, id: str) -> Json:
    """Carry it out, or let the lesson in."""
    (done,) = inbox.approve(habitus, [id])
    return _approved(done)


def _approved(done: Decided) -> Json:
    answer: Json = told(json_of.waiting(done.item) | {"version": done.version, "undo": done.undo})
    return answer


@router.post("/{id}/reject", response_model=Rejected, response_model_exclude_unset=True)
def reject(habitus: Opened, id: str, wanted: Reason) -> Json:
    """Turn it down; the agent that proposed it sees the reason."""
    return _rejected(inbox.reject(habitus, id, wanted.reason))


def _rejected(done: Decided) -> Json:
    answer: Json = told(json_of.waiting(done.item) | {"undo": done.undo})
    return answer


@router.post("/{id}/choose", response_model=Chosen, response_model_exclude_unset=True)
def choose(habitus: Opened, id: str, wanted: Others, key: OnceKey = "") -> Json:
    """Of several that say the same approve this one, and turn the others down."""

    def make(_: Attempt) -> Json:
        taken, *others = inbox.choose(habitus, id, wanted.others)
        return {"taken": _approved(taken), "turned_down": [_rejected(one) for one in others]}

    return once(habitus, key, ["choose", id, *wanted.others], make)


@router.post("/{id}/reopen", response_model=Waiting, response_model_exclude_unset=True)
def reopen(habitus: Opened, id: str) -> Json:
    """Let a change wait again that was decided; what approving it did is taken back."""
    answer: Json = told(json_of.waiting(inbox.reopen(habitus, id)))
    return answer


@router.get("/effect/{id}", response_model=replaying.Replay)
def effect(habitus: Opened, id: str) -> Json:
    """What approving a change would do to the last requests: which would get the skill, and what loses its place."""
    answer: Json = told(replaying.replay(habitus, inbox.change(habitus, id)))
    return answer


@router.put("/{id}/text", response_model=Mended, response_model_exclude_unset=True)
def mend(habitus: Opened, id: str, wanted: Text) -> Json:
    """Change the text of a proposal before it is approved: its main file, whole."""
    content = wanted.text.encode("utf-8", "replace")
    item, is_changed = inbox.mend(habitus, id, lambda before, name: nullcontext(content))
    return {**told(json_of.waiting(item)), "changed": is_changed}
