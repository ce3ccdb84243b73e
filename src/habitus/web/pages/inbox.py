"""Inbox: the pending items in a list, one of them open beside it; its files are loaded when opened."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Depends, Form, Query, Request
from fastapi.responses import HTMLResponse

from habitus.access import Access
from habitus.app import Habitus
from habitus.app.library import content
from habitus.app.review import inbox
from habitus.app.use_cases import review
from habitus.app.use_cases.writing import get_main_file_path_and_content
from habitus.errors import NotFound, Refused, UserError
from habitus.memory.model import Engram
from habitus.skills import trees
from habitus.skills.model import Skill
from habitus.skills.review import Proposal, ProposalState
from habitus.text import format_quantity
from habitus.web import inbox_labels
from habitus.web.api.schemas import RequestHome
from habitus.web.rendering import FlashMessage, build_diff_rows, render_fragment, render_page
from habitus.web.routing import AccessRouter

router = AccessRouter()

# The last decisions that are listed.
_MAX_DECISIONS = 10
# Rows of the list before more are requested.
_PAGE_SIZE = 100
# Files of a proposal before more are requested.
_MAX_FILES = 50
# Lines of a new file, and rows of a diff, before more are requested.
_MAX_FILE_LINES, _MAX_DIFF_ROWS = 1000, 400
# The longest new skill that is rendered as a page; its file shows the rest.
_MAX_PREVIEW_CHARS = 20_000

StartOffset = Annotated[int, Query(ge=0, le=10_000_000)]


@dataclass(frozen=True, kw_only=True, slots=True)
class InboxFilters:
    """The part of the inbox that is shown: of one kind, from one origin; empty means any."""

    kind: str = ""
    origin: str = ""
    limit: int = _PAGE_SIZE

    def matches(self, item: inbox.ReviewInboxItem) -> bool:
        """Whether an item passes the filters."""
        return (not self.kind or inbox_labels.get_item_kind(item) == self.kind) and (
            not self.origin or inbox_labels.get_item_origin(item) == self.origin
        )

    def build_url_query(self, **changed: object) -> str:
        """Return the filters as the query of an address, with these changes."""
        given = {"kind": self.kind, "origin": self.origin, "limit": self.limit, **changed}
        kept = {key: value for key, value in given.items() if value and (key, value) != ("limit", _PAGE_SIZE)}
        return f"?{urlencode(kept)}" if kept else ""


def parse_filters(
    kind: str = "", origin: str = "", limit: Annotated[int, Query(ge=1, le=2000)] = _PAGE_SIZE
) -> InboxFilters:
    """Return the filters in the address."""
    return InboxFilters(kind=kind if kind in inbox_labels.KINDS else "", origin=origin[:200], limit=limit)


_NO_FILTERS = InboxFilters()
FilterQuery = Annotated[InboxFilters, Depends(parse_filters)]


@dataclass(frozen=True, kw_only=True, slots=True)
class InboxItemPageData:
    """Everything shown about one item; `text` can be edited before approval."""

    item: inbox.ReviewInboxItem
    why: str
    made_on: datetime | None
    conversation: str = ""
    # The skill as it would read, if the proposal adds one.
    new_skill: Skill | None = None
    files: Sequence[content.FileChange] = ()
    similar_skills: Sequence[str] = ()
    text: str | None = None
    # Rows with the keys input, recorded, draft and compared.
    trial: tuple[Mapping[str, str], ...] = ()
    needs_other_reviewer: bool = False
    # What approving it compares in use, in words.
    comparison: str = ""


@router.get("/inbox", access=Access.VIEWER)
def show_inbox(request: Request, habitus: RequestHome, filters: FilterQuery) -> HTMLResponse:
    return _render_inbox(request, habitus, filters=filters)


@router.get("/inbox/{id}", access=Access.VIEWER)
def show_inbox_item(request: Request, habitus: RequestHome, id: str, filters: FilterQuery) -> HTMLResponse:
    return _render_inbox(request, habitus, opened=inbox.get_inbox_item(habitus, id), filters=filters)


def _render_inbox(
    request: Request,
    habitus: Habitus,
    said: FlashMessage | None = None,
    opened: inbox.ReviewInboxItem | None = None,
    filters: InboxFilters = _NO_FILTERS,
) -> HTMLResponse:
    """Return the inbox with the given item open, or on a wide screen the first."""
    everything = inbox.list_pending(habitus, with_contents=False)
    found = [item for item in everything if filters.matches(item)]
    first = opened or (inbox.get_inbox_item(habitus, found[0].id) if found else None)
    return render_page(
        request,
        "inbox.html",
        required_access=Access.REVIEWER,
        said=said,
        items=found[: filters.limit],
        total=len(found),
        kinds=Counter(map(inbox_labels.get_item_kind, everything)),
        origins=Counter(map(inbox_labels.get_item_origin, everything)),
        filters=filters,
        is_open=opened is not None,
        view=None if first is None else _build_item_details(habitus, first),
        decided=inbox.list_latest_decided_changes(habitus.review, _MAX_DECISIONS),
        elsewhere=habitus.review.is_on_other_host,
        most_files=_MAX_FILES,
        next_limit=filters.limit + _PAGE_SIZE,
    )


def _build_item_details(habitus: Habitus, item: inbox.ReviewInboxItem) -> InboxItemPageData:
    """Return the details of an item; only admins see the content of tasks that examine a skill."""
    subject = item.subject
    if isinstance(subject, Engram):
        conversation = subject.evidence.session
        return InboxItemPageData(
            item=item, why="", made_on=subject.created_on, conversation=conversation, text=subject.text
        )
    change = subject.change
    if review.are_proposal_files_hidden(habitus.settings, subject):
        why, conversation = subject.author.reason, subject.conversation
        return InboxItemPageData(item=item, why=why, made_on=subject.made_on, conversation=conversation)
    is_waiting = subject.state is ProposalState.PENDING
    new = trees.parse_skill_tree(change.name, change.tree).skill if subject.would_add_skill else None
    return InboxItemPageData(
        item=item,
        why=subject.author.reason,
        made_on=subject.made_on,
        conversation=subject.conversation,
        new_skill=new,
        files=_list_file_changes(habitus, subject),
        similar_skills=tuple(content.diff_proposal_with_near_duplicates(habitus.skills, subject)),
        text=get_main_file_path_and_content(change.tree)[1].decode("utf-8", "replace")
        if change.tree and is_waiting
        else None,
        trial=subject.trial,
        needs_other_reviewer=habitus.review.needs_other_approver(subject),
        comparison=review.describe_comparison_started_by_approval(habitus.settings.evidence, item),
    )


@router.get("/inbox/{id}/files", access=Access.VIEWER)
def list_proposal_files(habitus: RequestHome, id: str, start: StartOffset = 0) -> HTMLResponse:
    """Return the next file names of a proposal."""
    found = _list_file_changes(habitus, _get_readable_proposal(habitus, id))
    return render_fragment("inbox_files.html", id=id, files=found, start=start, most_files=_MAX_FILES)


@router.get("/inbox/{id}/file", access=Access.VIEWER)
def show_proposal_file(
    habitus: RequestHome, id: str, path: str, beside: str = "", start: StartOffset = 0
) -> HTMLResponse:
    """Return one file of a proposal as a diff to the current file, or to that of a similar skill."""
    proposal = _get_readable_proposal(habitus, id)
    found = _list_file_changes(habitus, proposal, beside)
    change = next((one for one in found if one.path == path), None)
    if change is None:
        raise NotFound(f"There is no file '{path}' in this proposal.", hint="Reload the page.")
    is_new = change.is_text and not change.before
    lines = (change.after or "").splitlines() if is_new else []
    rows = build_diff_rows(change.before or "", change.after or "") if change.is_text and not is_new else ()
    end = start + (_MAX_FILE_LINES if is_new else _MAX_DIFF_ROWS)
    return render_fragment(
        "inbox_file.html",
        id=id,
        change=change,
        beside=beside,
        lines=lines[start:end],
        rows=rows[start:end],
        next=end,
        left=max(0, len(lines) + len(rows) - end),
    )


def _get_readable_proposal(habitus: Habitus, id: str) -> Proposal:
    """Return a proposal; raise `NotFound` for a lesson and `Refused` for hidden tasks."""
    subject = inbox.get_inbox_item(habitus, id).subject
    if isinstance(subject, Engram):
        raise NotFound(f"'{id}' is a lesson; it has no files.", hint="")
    if review.are_proposal_files_hidden(habitus.settings, subject):
        raise Refused("Only admins can read the tasks that examine a skill.", hint="")
    return subject


def _list_file_changes(habitus: Habitus, proposal: Proposal, beside: str = "") -> Sequence[content.FileChange]:
    if beside:
        found = content.diff_proposal_with_near_duplicates(habitus.skills, proposal).get(beside, ())
    else:
        found = content.list_file_changes_of_proposal(habitus.review, proposal)
    return content.filter_changes_user_may_read(found, is_admin=habitus.settings.is_admin)


@router.get("/inbox/effect/{id}", access=Access.VIEWER)
def show_expected_effect(habitus: RequestHome, id: str) -> HTMLResponse:
    """Return how approval would change recent selections; the page polls until that is computed."""
    return render_fragment("inbox_effect.html", id=id, replay=review.preview_effect(habitus, id=id))


@router.get("/inbox/alike/{id}", access=Access.VIEWER)
def show_similar_items(habitus: RequestHome, id: str) -> HTMLResponse:
    """Return pending items that say much the same, with a choice of this one."""
    item = inbox.get_inbox_item(habitus, id)
    may_approve = isinstance(item.subject, Proposal) and not habitus.review.needs_other_approver(item.subject)
    return render_fragment(
        "inbox_alike.html", id=id, alike=inbox.find_related_items(habitus, item), may_approve=may_approve
    )


@router.post("/inbox/bulk", access=Access.REVIEWER)
def decide_selected_items(
    request: Request,
    habitus: RequestHome,
    filters: FilterQuery,
    act: Annotated[str, Form()],
    ids: Annotated[list[str] | None, Form()] = None,
    reason: Annotated[str, Form()] = "",
) -> HTMLResponse:
    """Approve or reject the selected items, or with `all-…` every one that passes the filters; one undo for all."""
    chosen = ids or []
    if act.startswith("all-"):
        pending = inbox.list_pending(habitus, with_contents=False)
        chosen = [item.id for item in pending if filters.matches(item)]
    said = _approve_or_reject_items(habitus, chosen, reason, is_approved="approve" in act)
    # Of a kind that is decided as a whole, nothing is left to show.
    left = _NO_FILTERS if act.startswith("all-") else filters
    return _render_inbox(request, habitus, said, filters=left)


def _approve_or_reject_items(habitus: Habitus, ids: Sequence[str], reason: str, *, is_approved: bool) -> FlashMessage:
    """Decide each item by itself, so that one which can't be decided does not stop the others."""
    done: list[review.ReviewDecisionResult] = []
    refused = ""
    for id in ids:
        try:
            if is_approved:
                done += review.approve_items(habitus, ids=(id,)).approved
            else:
                done += review.reject_items(habitus, ids=(id,), reason=reason).rejected
        except UserError as error:
            refused = refused or error.message
    if not done:
        return FlashMessage(text=refused or "Select some items first.", is_bad=True)
    text = f"{'Approved' if is_approved else 'Rejected'}: {format_quantity(len(done), 'item')}."
    if left := len(ids) - len(done):
        text += f" {format_quantity(left, 'item')} could not be decided: {refused}"
    return FlashMessage(text=text, undo=_merge_undo_commands([one.undo for one in done]))


def _merge_undo_commands(commands: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return one command that undoes decisions of the same sort, or nothing for a mixture."""
    names = {command[:2] if command[:1] == ("review",) else command[:1] for command in commands}
    if len(names) != 1:
        return ()
    (name,) = names
    return (*name, *itertools.chain.from_iterable(command[len(name) :] for command in commands))


@router.post("/inbox/{id}/approve", access=Access.REVIEWER)
def approve_item(request: Request, habitus: RequestHome, id: str, filters: FilterQuery) -> HTMLResponse:
    following = _find_next_item_id(habitus, id, filters)
    (done,) = review.approve_items(habitus, ids=(id,)).approved
    text = f"Approved; {done.pending_host} applies it." if done.pending_host else "Approved."
    return _render_next_item(request, habitus, FlashMessage(text=text, undo=done.undo), following, filters)


@router.post("/inbox/{id}/reject", access=Access.REVIEWER)
def reject_item(
    request: Request, habitus: RequestHome, id: str, filters: FilterQuery, reason: Annotated[str, Form()] = ""
) -> HTMLResponse:
    following = _find_next_item_id(habitus, id, filters)
    (done,) = review.reject_items(habitus, ids=(id,), reason=reason).rejected
    subject = done.item.subject
    is_told = isinstance(subject, Proposal) and subject.author.is_automatic
    text = "Rejected; the agent gets your reason." if is_told else "Rejected."
    return _render_next_item(request, habitus, FlashMessage(text=text, undo=done.undo), following, filters)


@router.post("/inbox/{id}/choose", access=Access.REVIEWER)
def choose_among_similar_items(
    request: Request, habitus: RequestHome, id: str, others: Annotated[list[str], Form()]
) -> HTMLResponse:
    """Approve this item and reject the similar ones; undo makes all of them pending again."""
    done = review.choose_proposal(habitus, id=id, others=tuple(others))
    said = FlashMessage(
        text=f"Approved; {format_quantity(len(done.rejected), 'other')} rejected.", undo=done.approved.undo
    )
    return _render_inbox(request, habitus, said)


def _find_next_item_id(habitus: Habitus, id: str, filters: InboxFilters) -> str:
    """Return the id of the next item in the list, or nothing for the last."""
    ids = [item.id for item in inbox.list_pending(habitus, with_contents=False) if filters.matches(item)]
    return next((after for one, after in itertools.pairwise(ids) if one == id), "")


def _render_next_item(
    request: Request, habitus: Habitus, said: FlashMessage, following: str, filters: InboxFilters
) -> HTMLResponse:
    """Return the inbox with the next item open."""
    opened = inbox.get_inbox_item(habitus, following) if following else None
    return _render_inbox(request, habitus, said, opened, filters)


@router.post("/inbox/{id}/reopen", access=Access.REVIEWER)
def reopen_item(request: Request, habitus: RequestHome, id: str) -> HTMLResponse:
    (item,) = review.reopen_proposals(habitus, ids=(id,)).reopened
    return _render_inbox(request, habitus, FlashMessage(text="Pending review again."), item)


@router.post("/inbox/{id}/text", access=Access.REVIEWER)
def edit_item(request: Request, habitus: RequestHome, id: str, text: Annotated[str, Form()]) -> HTMLResponse:
    """Change the text of an item before it is approved."""
    done = review.edit_proposal_text(habitus, id=id, text=text.replace("\r\n", "\n"))
    said = FlashMessage(text="Saved; still pending review." if done.changed else "Nothing changed.")
    return _render_inbox(request, habitus, said, done.item)
