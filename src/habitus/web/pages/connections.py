"""Connections: agents on this machine, connected here with the difference shown first; and where skills come from."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from habitus.app import Habitus
from habitus.app.declaring import Nothing
from habitus.app.library.layers import places
from habitus.app.use_cases import agents
from habitus.web.api.asking import Opened
from habitus.web.rendering import Said, fragment, page

router = APIRouter(include_in_schema=False)


@router.get("/connections")
def show(request: Request, habitus: Opened) -> HTMLResponse:
    return _show_page(request, habitus)


def _show_page(request: Request, habitus: Habitus, said: Said | None = None) -> HTMLResponse:
    listed = agents.list_agents(habitus, Nothing())
    found, known = listed.agents, {one.name for one in listed.agents if one.is_used or one.is_connected}
    return page(
        request,
        "connections.html",
        said=said,
        here=[one for one in found if one.name in known],
        others=[one for one in found if one.name not in known],
        last_heard={one.name: one.last_heard for one in listed.heard},
        elsewhere=[one for one in listed.heard if one.name not in known],
        places=places(habitus.skills),
        is_owner=not habitus.settings.is_guest,
    )


@router.get("/connections/{agent}/changes")
def changes(habitus: Opened, agent: str, leaving: bool = False) -> HTMLResponse:
    """What would change in an agent's files, before anything does."""
    plan = agents.changes(habitus, agents.AgentChange(agent=agent, leaving=leaving))
    return fragment("connection_changes.html", plan=plan, leaving=leaving)


@router.post("/connections/{agent}/connect")
def connect(request: Request, habitus: Opened, agent: str) -> HTMLResponse:
    done = agents.connect(habitus, agents.OneAgent(agent=agent))
    text = " ".join(part for part in (f"{done.title} is connected. Start it anew.", done.note) if part)
    return _show_page(request, habitus, Said(text=text))


@router.post("/connections/{agent}/disconnect")
def disconnect(request: Request, habitus: Opened, agent: str) -> HTMLResponse:
    done = agents.disconnect(habitus, agents.OneAgent(agent=agent))
    return _show_page(request, habitus, Said(text=f"{done.title} is disconnected; its files are as they were."))
