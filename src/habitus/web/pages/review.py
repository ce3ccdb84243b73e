"""Review: what waits for a person, in one list, each with what it would change."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse

from habitus.app import comparing, inbox
from habitus.app.habitus import Habitus
from habitus.app.inbox import InboxItem
from habitus.app.writing import editable
from habitus.memory.model import Engram
from habitus.web.api.asking import Opened
from habitus.web.pages.skill import Compared, drawn
from habitus.web.rendering import Said, page

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """One card; `text` is what may be edited first."""

    item: InboxItem
    why: str
    made_on: datetime | None
    changes: tuple[Compared, ...] = ()
    text: str | None = None


@router.get("/review")
def show(request: Request, habitus: Opened) -> HTMLResponse:
    return _shown(request, habitus)


def _shown(request: Request, habitus: Habitus, said: Said | None = None) -> HTMLResponse:
    views = [_view(habitus, item) for item in inbox.waiting(habitus)]
    return page(request, "review.html", said=said, views=views)


def _view(habitus: Habitus, item: InboxItem) -> View:
    subject = item.subject
    if isinstance(subject, Engram):
        return View(item=item, why="", made_on=subject.created_on)
    text = editable(subject.change.tree)[1].decode("utf-8", "replace") if subject.change.tree else None
    return View(
        item=item,
        why=subject.author.reason,
        made_on=subject.made_on,
        changes=drawn(comparing.proposed(habitus, subject)),
        text=text,
    )


@router.post("/review/{id}/approve")
def approve(request: Request, habitus: Opened, id: str) -> HTMLResponse:
    (done,) = inbox.approve(habitus, [id])
    return _shown(request, habitus, Said(text="Approved.", undo=done.undo))


@router.post("/review/{id}/reject")
def reject(request: Request, habitus: Opened, id: str, reason: Annotated[str, Form()] = "") -> HTMLResponse:
    inbox.reject(habitus, id, reason)
    return _shown(request, habitus, Said(text="Turned down; the agent is told why."))


@router.post("/review/{id}/mend")
def mend(request: Request, habitus: Opened, id: str, text: Annotated[str, Form()]) -> HTMLResponse:
    content = text.replace("\r\n", "\n").encode("utf-8", "replace")
    _, is_changed = inbox.mend(habitus, id, lambda before, name: nullcontext(content))
    return _shown(request, habitus, Said(text="Changed; it still waits for you." if is_changed else "Nothing changed."))
