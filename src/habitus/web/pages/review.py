"""Review: what waits for a person, in one list, each with what it would change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse

from habitus.app import Habitus
from habitus.app.library import comparing
from habitus.app.review import inbox
from habitus.app.review.inbox import InboxItem
from habitus.app.use_cases import review
from habitus.app.use_cases.writing import editable
from habitus.memory.model import Engram
from habitus.skills import trees
from habitus.skills.model import Skill
from habitus.web.api.asking import Opened
from habitus.web.diffs import Compared, drawn
from habitus.web.rendering import Said, fragment, page
from habitus.web.words import counted

router = APIRouter(include_in_schema=False)

_DECIDED = 10  # of the last decisions


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """One card; `text` is what may be edited first, `twins` the skills that say much the same, each beside it."""

    item: InboxItem
    why: str
    made_on: datetime | None
    conversation: str = ""
    new: Skill | None = None  # as it would read, where there is none yet
    changes: tuple[Compared, ...] = ()
    twins: Mapping[str, tuple[Compared, ...]] = field(default_factory=dict)
    text: str | None = None
    trial: tuple[Mapping[str, str], ...] = ()  # rows: input, recorded, draft, compared


@router.get("/inbox")
def show(request: Request, habitus: Opened) -> HTMLResponse:
    return _shown(request, habitus)


def _shown(request: Request, habitus: Habitus, said: Said | None = None) -> HTMLResponse:
    groups = inbox.together(habitus.finder, inbox.waiting(habitus))
    views = [[_view(habitus, item) for item in group] for group in groups]
    return page(
        request,
        "review.html",
        said=said,
        groups=views,
        decided=inbox.decided(habitus.review, _DECIDED),
        elsewhere=habitus.review.is_elsewhere,
    )


def _view(habitus: Habitus, item: InboxItem) -> View:
    subject = item.subject
    if isinstance(subject, Engram):
        conversation = subject.evidence.session
        return View(item=item, why="", made_on=subject.created_on, conversation=conversation, text=subject.text)
    change = subject.change
    if review.is_hidden(habitus, subject):
        why, conversation = subject.author.reason, subject.conversation
        return View(item=item, why=why, made_on=subject.made_on, conversation=conversation)
    text = editable(change.tree)[1].decode("utf-8", "replace") if change.tree else None
    beside = comparing.twins(habitus.skills, subject)
    return View(
        item=item,
        why=subject.author.reason,
        made_on=subject.made_on,
        conversation=subject.conversation,
        new=trees.parse(change.name, change.tree).skill if subject.is_new else None,
        changes=drawn(comparing.proposed(habitus.review, subject)),
        twins={name: drawn(changes) for name, changes in beside.items()},
        text=text,
        trial=subject.trial,
    )


@router.get("/inbox/effect/{id}")
def effect(habitus: Opened, id: str) -> HTMLResponse:
    """What approving a change would do to the last requests; the page asks for it when the card is looked at."""
    return fragment("review_effect.html", replay=review.effect(habitus, review.OneItem(id=id)))


@router.post("/inbox/{id}/approve")
def approve(request: Request, habitus: Opened, id: str) -> HTMLResponse:
    (done,) = review.approve(habitus, review.Approval(ids=(id,))).approved
    text = f"Approved; {done.due_on} carries it out." if done.due_on else "Approved."
    return _shown(request, habitus, Said(text=text, undo=done.undo))


@router.post("/inbox/{id}/reject")
def reject(request: Request, habitus: Opened, id: str, reason: Annotated[str, Form()] = "") -> HTMLResponse:
    (done,) = review.reject(habitus, review.Rejection(ids=(id,), reason=reason)).rejected
    return _shown(request, habitus, Said(text="Turned down; the agent is told why.", undo=done.undo))


@router.post("/inbox/{id}/choose")
def choose(request: Request, habitus: Opened, id: str, others: Annotated[list[str], Form()]) -> HTMLResponse:
    """Take this one of several that say the same; its undo lets all of them wait again."""
    done = review.choose(habitus, review.Choice(id=id, others=tuple(others)))
    said = Said(text=f"Approved; {counted(len(done.turned_down), 'other')} turned down.", undo=done.taken.undo)
    return _shown(request, habitus, said)


@router.post("/inbox/{id}/reopen")
def reopen(request: Request, habitus: Opened, id: str) -> HTMLResponse:
    review.reopen(habitus, review.Reopening(ids=(id,)))
    return _shown(request, habitus, Said(text="It waits for you again."))


@router.post("/inbox/{id}/mend")
def mend(request: Request, habitus: Opened, id: str, text: Annotated[str, Form()]) -> HTMLResponse:
    done = review.edit(habitus, review.NewText(id=id, text=text.replace("\r\n", "\n")))
    said = Said(text="Changed; it still waits for you." if done.changed else "Nothing changed.")
    return _shown(request, habitus, said)
