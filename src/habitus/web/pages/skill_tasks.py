"""The tasks of one skill, on its page: add one, tick those that were found or drafted."""

from __future__ import annotations

from typing import Annotated

from fastapi import Form, Request
from fastapi.responses import HTMLResponse

from habitus.access import Access
from habitus.app.operating import job_kinds, jobs
from habitus.app.tasks.mining import TaskMiningSourceKind
from habitus.app.use_cases import review, tasks
from habitus.text import format_quantity
from habitus.web.api.schemas import RequestHome
from habitus.web.pages.skill import render_skill_page
from habitus.web.rendering import FlashMessage
from habitus.web.routing import AccessRouter

router = AccessRouter()


@router.post("/skills/{name}/tasks", access=Access.ADMIN)
def add_task(
    request: Request, habitus: RequestHome, name: str, asked: Annotated[str, Form()], expect: Annotated[str, Form()]
) -> HTMLResponse:
    """Add a task: a request with what a good answer contains."""
    done = tasks.add_task(habitus, tasks.AddTaskRequest(name=name, request=asked.strip(), expect=(expect.strip(),)))
    return render_skill_page(request, habitus, name, "improve", said=FlashMessage(text="Task added.", undo=done.undo))


@router.post("/skills/{name}/tasks/mine", access=Access.ADMIN)
def mine_tasks(
    request: Request,
    habitus: RequestHome,
    name: str,
    ids: Annotated[list[str] | None, Form()] = None,
    source: Annotated[TaskMiningSourceKind, Form()] = TaskMiningSourceKind.SESSIONS,
) -> HTMLResponse:
    """List accepted requests or variants that could become tasks, or add those that were ticked."""
    if ids:
        added = tasks.mine_tasks(habitus, source, skill=name, only=tuple(ids), apply=True).found
        (proposal,) = {str(one.proposal) for one in added}
        # Who ticked them has seen what is asked and what decides: that is the review.
        review.approve_items(habitus, ids=(proposal,))
        said = FlashMessage(text=f"{format_quantity(len(added), 'task')} added.", undo=("review", "reopen", proposal))
        return render_skill_page(request, habitus, name, "improve", said=said)
    found = tasks.mine_tasks(habitus, source, skill=name).found
    is_varied = source is TaskMiningSourceKind.VARIANTS
    none = (
        "No task whose answer can be recomputed." if is_varied else "No recurring requests with an accepted result yet."
    )
    nothing = None if found else FlashMessage(text=none)
    return render_skill_page(request, habitus, name, "improve", said=nothing, mined=found, source=source)


@router.post("/skills/{name}/tasks/drafts", access=Access.ADMIN)
def start_task_drafting(request: Request, habitus: RequestHome, name: str) -> HTMLResponse:
    """Queue the drafting of tasks, which appear on this page to be ticked."""
    job_kinds.add_job(habitus.settings, jobs.open_job_queue(habitus), "draft-tasks", {"skill": name})
    said = FlashMessage(text="Queued for the next free worker; the drafts will appear here to be ticked.")
    return render_skill_page(request, habitus, name, "improve", said=said)


@router.post("/skills/{name}/tasks/pending", access=Access.ADMIN)
def approve_ticked_tasks(
    request: Request,
    habitus: RequestHome,
    name: str,
    proposal: Annotated[int, Form()],
    ids: Annotated[list[str] | None, Form()] = None,
) -> HTMLResponse:
    """Approve the ticked tasks of a proposal; without a tick it is rejected."""
    if ids:
        review.approve_items(habitus, ids=(str(proposal),), only=tuple(ids))
    else:
        review.reject_items(habitus, ids=(str(proposal),), reason="no task was ticked")
    said = FlashMessage(
        text=f"{format_quantity(len(ids or ()), 'task')} added.", undo=("review", "reopen", str(proposal))
    )
    return render_skill_page(request, habitus, name, "improve", said=said)
