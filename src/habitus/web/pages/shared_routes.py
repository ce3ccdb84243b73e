"""Routes behind every page: search, the stream of changes, the pause switch and undo."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated
from urllib.parse import quote, urlencode

from fastapi import Form, Request
from fastapi.responses import HTMLResponse, Response

from habitus.access import Access
from habitus.agent.background import run_in_thread
from habitus.app.use_cases import pausing, undoing
from habitus.app.use_cases.overview import search_everything
from habitus.errors import Refused
from habitus.web import site_map
from habitus.web.api.schemas import RequestHome
from habitus.web.data_changes import get_change_watcher
from habitus.web.home_pool import get_home_pool
from habitus.web.rendering import FlashMessage, make_error_notice, render_fragment
from habitus.web.routing import AccessRouter
from habitus.web.streams import make_event_stream_response

router = AccessRouter()
_RESULT_PATHS = {"skill": "/skills", "lesson": "/lessons", "conversation": "/activity"}


@router.get("/find", access=Access.VIEWER)
def render_search_results(request: Request, habitus: RequestHome, q: str = "") -> HTMLResponse:
    """Return matching skills, lessons, conversations and commands for the search dialog."""
    found = [
        (one.kind, f"{_RESULT_PATHS[one.kind]}/{quote(one.id)}", one.title, one.text)
        for one in search_everything(habitus, q=q[:200]).found
    ]
    commands = site_map.find_palette_entries(q, is_admin=request.state.access >= Access.ADMIN)
    if q.strip():
        commands.append((f"/try?{urlencode({'request': q})}", f"Try the request “{q.strip()[:80]}”"))
    return render_fragment("sought.html", found=found, commands=commands)


@router.get("/live", access=Access.VIEWER)
async def stream_changes(request: Request) -> Response:
    """Stream an event after each change of the data by any process; 503 if changes go unnoticed."""
    watcher = get_change_watcher(request)
    if await run_in_thread(watcher.read_data_change_marker) is None:
        return Response(status_code=HTTPStatus.SERVICE_UNAVAILABLE)
    return make_event_stream_response(watcher.iterate_updates_after_changes())


@router.post("/pause", access=Access.ADMIN)
def switch_pause(habitus: RequestHome, on: Annotated[bool, Form()]) -> HTMLResponse:
    """Pause or resume all automatic change and return the switch with its banner."""
    done = (pausing.pause_learning if on else pausing.resume_learning)(habitus)
    text = "Learning is paused: nothing changes automatically." if on else "Learning has resumed."
    said = FlashMessage(text=text, undo=done.undo)
    return render_fragment("pause_swapped.html", said=said, is_paused=on, is_admin=True, oob=True)


@router.post("/undo", access=Access.ADMIN)
def undo_change(request: Request, habitus: RequestHome, undo: Annotated[list[str], Form()]) -> Response:
    """Undo the change that a notice is about, then reload the page."""
    with get_home_pool(request).reopen_home_with_settings_changed_in_block():
        done = undoing.run_undo_command(habitus, undo)
    if done.failures:
        return make_error_notice(done.failures[0], "", HTTPStatus.CONFLICT)
    return Response(status_code=HTTPStatus.NO_CONTENT, headers={"HX-Refresh": "true"})


@router.post("/inbox/undo", access=Access.REVIEWER)
def undo_decision(request: Request, habitus: RequestHome, undo: Annotated[list[str], Form()]) -> Response:
    """Undo a review decision; reviewers may do this without being admins."""
    if undo[:2] != ["review", "reopen"]:
        raise Refused("This is not a review decision.", hint="Ask an admin to undo it.")
    return undo_change(request, habitus, undo)
