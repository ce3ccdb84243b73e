"""Inbox: the pending items in a list, one of them open beside it; its files are loaded when opened."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import Form, Query, Request
from fastapi.responses import HTMLResponse

from habitus.access import Access
from habitus.app import Habitus
from habitus.app.library import content
from habitus.app.library.content import FileChange
from habitus.app.review import inbox
from habitus.app.review.inbox import InboxItem
from habitus.app.use_cases import review
from habitus.app.use_cases.writing import editable
from habitus.errors import NotFound, Refused
from habitus.memory.model import Engram
from habitus.skills import trees
from habitus.skills.model import Skill
from habitus.skills.review import Proposal, ProposalState
from habitus.text import count_of
from habitus.web.api.requests_and_answers import Opened
from habitus.web.rendering import Said, fragment, page, side_by_side
from habitus.web.routing import Router

router = Router()

# The last decisions that are listed.
_DECIDED = 10
# Rows of the list before more are requested.
_PAGE = 100
# Files of a proposal before more are requested.
_FILES = 50
# Lines of a new file, and rows of a diff, before more are requested.
_LINES, _ROWS = 1000, 400
# The longest new skill that is rendered as a page; its file shows the rest.
_READ = 20_000

Start = Annotated[int, Query(ge=0, le=10_000_000)]


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """Everything shown about one item; `text` can be edited before approval."""

    item: InboxItem
    why: str
    made_on: datetime | None
    conversation: str = ""
    # The skill as it would read, if the proposal adds one.
    new: Skill | None = None
    files: Sequence[FileChange] = ()
    twins: Sequence[str] = ()
    text: str | None = None
    # Rows with the keys input, recorded, draft and compared.
    trial: tuple[Mapping[str, str], ...] = ()
    is_for_somebody_else: bool = False


@router.get("/inbox", access=Access.VIEWER)
def show(request: Request, habitus: Opened, limit: Annotated[int, Query(ge=1, le=500)] = _PAGE) -> HTMLResponse:
    return _show_page(request, habitus, limit=limit)


@router.get("/inbox/{id}", access=Access.VIEWER)
def show_one(request: Request, habitus: Opened, id: str) -> HTMLResponse:
    return _show_page(request, habitus, opened=inbox.get(habitus, id))


def _show_page(
    request: Request, habitus: Habitus, said: Said | None = None, opened: InboxItem | None = None, limit: int = _PAGE
) -> HTMLResponse:
    """Return the inbox with the given item open, or on a wide screen the first."""
    found = inbox.waiting(habitus, with_contents=False)
    first = opened or (inbox.get(habitus, found[0].id) if found else None)
    return page(
        request,
        "inbox.html",
        acts=Access.REVIEWER,
        said=said,
        items=found[:limit],
        total=len(found),
        is_open=opened is not None,
        view=None if first is None else _view(habitus, first),
        decided=inbox.decided_items(habitus.review, _DECIDED),
        elsewhere=habitus.review.is_elsewhere,
        most_files=_FILES,
        limit=limit + _PAGE,
    )


def _view(habitus: Habitus, item: InboxItem) -> View:
    """Return the details of an item; only admins see the content of tasks that examine a skill."""
    subject = item.subject
    if isinstance(subject, Engram):
        conversation = subject.evidence.session
        return View(item=item, why="", made_on=subject.created_on, conversation=conversation, text=subject.text)
    change = subject.change
    if review.is_hidden(habitus.settings, subject):
        why, conversation = subject.author.reason, subject.conversation
        return View(item=item, why=why, made_on=subject.made_on, conversation=conversation)
    is_waiting = subject.state is ProposalState.WAITING
    new = trees.parse(change.name, change.tree).skill if subject.is_new else None
    return View(
        item=item,
        why=subject.author.reason,
        made_on=subject.made_on,
        conversation=subject.conversation,
        new=new,
        files=_files(habitus, subject),
        twins=tuple(content.twins(habitus.skills, subject)),
        text=editable(change.tree)[1].decode("utf-8", "replace") if change.tree and is_waiting else None,
        trial=subject.trial,
        is_for_somebody_else=habitus.review.is_for_somebody_else(subject),
    )


@router.get("/inbox/{id}/files", access=Access.VIEWER)
def files(habitus: Opened, id: str, start: Start = 0) -> HTMLResponse:
    """Return the next file names of a proposal."""
    found = _files(habitus, _proposal(habitus, id))
    return fragment("inbox_files.html", id=id, files=found, start=start, most_files=_FILES)


@router.get("/inbox/{id}/file", access=Access.VIEWER)
def file(habitus: Opened, id: str, path: str, beside: str = "", start: Start = 0) -> HTMLResponse:
    """Return one file of a proposal as a diff to the current file, or to that of a similar skill."""
    proposal = _proposal(habitus, id)
    found = _files(habitus, proposal, beside)
    change = next((one for one in found if one.path == path), None)
    if change is None:
        raise NotFound(f"There is no file '{path}' in it.", hint="Reload the page.")
    is_new = change.is_text and not change.before
    lines = (change.after or "").splitlines() if is_new else []
    rows = side_by_side(change.before or "", change.after or "") if change.is_text and not is_new else ()
    end = start + (_LINES if is_new else _ROWS)
    return fragment(
        "inbox_file.html",
        id=id,
        change=change,
        beside=beside,
        lines=lines[start:end],
        rows=rows[start:end],
        next=end,
        left=max(0, len(lines) + len(rows) - end),
    )


def _proposal(habitus: Habitus, id: str) -> Proposal:
    """Return a proposal; raise `NotFound` for a lesson and `Refused` for hidden tasks."""
    subject = inbox.get(habitus, id).subject
    if isinstance(subject, Engram):
        raise NotFound(f"'{id}' is a lesson; it has no files.", hint="")
    if review.is_hidden(habitus.settings, subject):
        raise Refused("Only an admin reads what a skill is examined by.", hint="")
    return subject


def _files(habitus: Habitus, proposal: Proposal, beside: str = "") -> Sequence[FileChange]:
    if beside:
        found = content.twins(habitus.skills, proposal).get(beside, ())
    else:
        found = content.proposed_changes(habitus.review, proposal)
    return content.readable(found, is_admin=habitus.settings.is_admin)


@router.get("/inbox/effect/{id}", access=Access.VIEWER)
def effect(habitus: Opened, id: str) -> HTMLResponse:
    """Return how approval would change recent selections; the page polls until that is computed."""
    return fragment("inbox_effect.html", id=id, replay=review.effect(habitus, review.OneItem(id=id)))


@router.get("/inbox/alike/{id}", access=Access.VIEWER)
def alike(habitus: Opened, id: str) -> HTMLResponse:
    """Return pending items that say much the same, with a choice of this one."""
    item = inbox.get(habitus, id)
    may_approve = isinstance(item.subject, Proposal) and not habitus.review.is_for_somebody_else(item.subject)
    return fragment("inbox_alike.html", id=id, alike=inbox.alike(habitus, item), may_approve=may_approve)


@router.post("/inbox/{id}/approve", access=Access.REVIEWER)
def approve(request: Request, habitus: Opened, id: str) -> HTMLResponse:
    following = _following(habitus, id)
    (done,) = review.approve(habitus, review.Approval(ids=(id,))).approved
    text = f"Approved; {done.due_on} carries it out." if done.due_on else "Approved."
    return _show_decided(request, habitus, Said(text=text, undo=done.undo), following)


@router.post("/inbox/{id}/reject", access=Access.REVIEWER)
def reject(request: Request, habitus: Opened, id: str, reason: Annotated[str, Form()] = "") -> HTMLResponse:
    following = _following(habitus, id)
    (done,) = review.reject(habitus, review.Rejection(ids=(id,), reason=reason)).rejected
    subject = done.item.subject
    is_told = isinstance(subject, Proposal) and subject.author.is_automatic
    text = "Turned down; the agent is told why." if is_told else "Turned down."
    return _show_decided(request, habitus, Said(text=text, undo=done.undo), following)


@router.post("/inbox/{id}/choose", access=Access.REVIEWER)
def choose(request: Request, habitus: Opened, id: str, others: Annotated[list[str], Form()]) -> HTMLResponse:
    """Approve this item and reject the similar ones; undo makes all of them pending again."""
    done = review.choose(habitus, review.Choice(id=id, others=tuple(others)))
    said = Said(text=f"Approved; {count_of(len(done.turned_down), 'other')} turned down.", undo=done.taken.undo)
    return _show_page(request, habitus, said)


def _following(habitus: Habitus, id: str) -> str:
    """Return the id of the next item in the list, or nothing for the last."""
    ids = [item.id for item in inbox.waiting(habitus, with_contents=False)]
    return next((after for one, after in itertools.pairwise(ids) if one == id), "")


def _show_decided(request: Request, habitus: Habitus, said: Said, following: str) -> HTMLResponse:
    """Return the inbox with the next item open."""
    return _show_page(request, habitus, said, inbox.get(habitus, following) if following else None)


@router.post("/inbox/{id}/reopen", access=Access.REVIEWER)
def reopen(request: Request, habitus: Opened, id: str) -> HTMLResponse:
    (item,) = review.reopen(habitus, review.Reopening(ids=(id,))).reopened
    return _show_page(request, habitus, Said(text="It waits for you again."), item)


@router.post("/inbox/{id}/text", access=Access.REVIEWER)
def hint(request: Request, habitus: Opened, id: str, text: Annotated[str, Form()]) -> HTMLResponse:
    """Change the text of an item before it is approved."""
    done = review.edit(habitus, review.NewText(id=id, text=text.replace("\r\n", "\n")))
    said = Said(text="Changed; it still waits for you." if done.changed else "Nothing changed.")
    return _show_page(request, habitus, said, done.item)
