"""Selecting: the skills that a request would get in a session, without one."""

from __future__ import annotations

from dataclasses import replace

from habitus.agent.choosing import choose
from habitus.app.home import Home
from habitus.skills import names
from habitus.skills.gates import GateContext, is_barred
from habitus.skills.listing import Snapshot
from habitus.skills.selection import Request, Selection, User
from habitus.tools.tools import Tools


def select(home: Home, request: Request) -> Selection:
    """With stickiness from the journal, and with the tools that a session has."""
    snapshot = home.skills.snapshot(user=request.user.name)
    return choose(snapshot, request, gates_at(home, snapshot, request.user), home.journal)


def gates_at(home: Home, snapshot: Snapshot, user: User) -> GateContext:
    """What is open to somebody who has the tools of a session."""
    gates = home.gates(user)
    tools = names.BUILT_IN_TOOLS | _code_tools(home.tools, snapshot, replace(gates, tools=names.BUILT_IN_TOOLS))
    return replace(gates, tools=tools)


def _code_tools(tools: Tools, snapshot: Snapshot, gates: GateContext) -> frozenset[str]:
    open_here = {item.name for item in snapshot.with_code if item.summary and not is_barred(item.summary, gates)}
    if not open_here:
        return frozenset()
    return frozenset(tool.name for tool in tools.active(at=snapshot) if tool.name in open_here)
