"""REST for what waits for a person: look at it, approve it, turn it down, or mend it first."""

from __future__ import annotations

from contextlib import nullcontext

from fastapi import APIRouter

from habitus.app import inbox, json_of, replaying
from habitus.web.api.answers import Undo, Waiting, answer, page_of
from habitus.web.api.asking import After, Body, Json, Limit, Opened, Reason, Words, paged, told

router = APIRouter(prefix="/review", tags=["review"])


Approved = answer("Approved", base=Waiting, version=int | None, undo=Undo)
Rejected = answer("Rejected", base=Waiting, undo=Undo)
Mended = answer("Mended", base=Waiting, changed=bool)


class Text(Body):
    text: Words


@router.get("", response_model=page_of("proposals", Waiting), response_model_exclude_unset=True)
def list_waiting(habitus: Opened, decided: bool = False, limit: Limit = 100, after: After = "") -> Json:
    """What waits and why: changes of skills by number, lessons by id; with `decided`, what was decided too."""
    found = inbox.waiting(habitus, with_decided=decided)
    around, page = paged("what waits", found, lambda item: item.id, limit, after)
    return {"proposals": [told(json_of.waiting(item)) for item in page], **around}


@router.get("/{id}", response_model=answer("WaitingWhole", base=Waiting, diff=str), response_model_exclude_unset=True)
def show(habitus: Opened, id: str) -> Json:
    """One of them, with what approving it would change."""
    found = inbox.get(habitus, id)
    answer: Json = told(json_of.waiting(found) | {"diff": inbox.diff(habitus, found)})
    return answer


@router.post("/{id}/approve", response_model=Approved, response_model_exclude_unset=True)
def approve(habitus: Opened, id: str) -> Json:
    """Carry it out, or let the lesson in."""
    (done,) = inbox.approve(habitus, [id])
    answer: Json = told(json_of.waiting(done.item) | {"version": done.version, "undo": done.undo})
    return answer


@router.post("/{id}/reject", response_model=Rejected, response_model_exclude_unset=True)
def reject(habitus: Opened, id: str, wanted: Reason) -> Json:
    """Turn it down; the agent that proposed it sees the reason."""
    done = inbox.reject(habitus, id, wanted.reason)
    answer: Json = told(json_of.waiting(done.item) | {"undo": done.undo})
    return answer


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
