"""Other agents on this machine: list them, preview, connect and disconnect, and import their skills."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from habitus.access import Access
from habitus.app.home import Home
from habitus.app.library import updating
from habitus.app.library.updating import ImportOptions, TakenIn
from habitus.app.other_agents import connecting
from habitus.app.other_agents.connecting import AgentFiles, AgentHere, Plan, Wishes
from habitus.app.use_cases.declaration import Nothing, argument, option, use_case
from habitus.errors import NotFound, Refused
from habitus.hosts.known_agents import CONNECTED, HOSTS, Host, Scope, host
from habitus.settings import Settings
from habitus.skills.layers.layer import USER
from habitus.skills.names import canonical

# Sources of requests that belong to Habitus itself.
_OWN = ("api", "cli", "repl", "web")
_AGENT = f"One of: {', '.join(CONNECTED)}."


@dataclass(frozen=True, kw_only=True)
class HeardAgent:
    """An agent that is connected on this machine or has sent requests; `name` is its source type in the journal."""

    name: str
    title: str
    is_connected: bool
    last_heard: datetime | None


@dataclass(frozen=True, kw_only=True)
class AgentsHere:
    """The agents that can be connected, and those that are connected or have sent requests."""

    agents: Sequence[AgentHere]
    heard: Sequence[HeardAgent]


@use_case("", route="GET /agents", access=Access.VIEWER, example=Nothing())
def list_agents(home: Home, wanted: Nothing) -> AgentsHere:
    """Return the agents that can be connected, installed ones first, and when each agent was last seen."""
    agents = connecting.agents_here(home.settings, os.environ)
    return AgentsHere(agents=agents, heard=heard_agents(home, home.journal.last_heard()))


def heard_agents(home: Home, heard: Mapping[str, datetime]) -> list[HeardAgent]:
    """Return agents that are connected or have sent requests, most recent first; `last_seen` maps names to times."""
    connected = [one.name for one in connecting.agents_here(home.settings, os.environ) if one.is_connected]
    names = dict.fromkeys([*connected, *(name for name in heard if name not in _OWN)])
    agents = [
        HeardAgent(
            name=name,
            title=HOSTS[name].title if name in HOSTS else "Agents by MCP" if name == "mcp" else name,
            is_connected=name in connected,
            last_heard=heard.get(name),
        )
        for name in names
    ]
    # Agents that never sent a request come last.
    return sorted(agents, key=lambda one: (one.last_heard is None, -(one.last_heard or home.clock()).timestamp()))


@dataclass(frozen=True, kw_only=True)
class OneAgent:
    agent: str = argument(_AGENT)


@dataclass(frozen=True, kw_only=True)
class AgentChange:
    agent: str = argument(_AGENT)
    leaving: bool = option("What disconnecting would change.", default=False)


@use_case("", route="GET /agents/{agent}/changes", access=Access.ADMIN, example=AgentChange(agent="claude-code"))
def changes(home: Home, wanted: AgentChange) -> AgentFiles:
    """Preview what connecting an agent, or disconnecting it, would change in its files; nothing is written."""
    return connecting.describe_plan(_plan(home.settings, wanted.agent, leaving=wanted.leaving), home.redact)


@use_case("", route="POST /agents/{agent}/connect", access=Access.ADMIN, example=OneAgent(agent="claude-code"))
def connect(home: Home, wanted: OneAgent) -> AgentFiles:
    """Add our server to an agent's configuration, and our hooks if it supports them; only for the home's owner."""
    return _carry_out(home, _plan(home.settings, wanted.agent, leaving=False))


@use_case("", route="POST /agents/{agent}/disconnect", access=Access.ADMIN, example=OneAgent(agent="claude-code"))
def disconnect(home: Home, wanted: OneAgent) -> AgentFiles:
    """Remove everything of ours from an agent's files; only for the home's owner."""
    return _carry_out(home, _plan(home.settings, wanted.agent, leaving=True))


@dataclass(frozen=True, kw_only=True)
class AgentFolder:
    """A folder with an agent's skills on this machine; `new` counts the names that you don't have yet."""

    agent: str
    title: str
    folder: str
    skills: int
    new: int


@dataclass(frozen=True, kw_only=True)
class AgentFolders:
    folders: Sequence[AgentFolder]


@use_case("", route="GET /agents/folders", access=Access.ADMIN, example=Nothing())
def list_folders(home: Home, wanted: Nothing) -> AgentFolders:
    """Return the folders on this machine in which agents keep skills of their own."""
    known = {item.name for item in home.skills.snapshot().listing if item.layer == USER}
    found = dict[Path, AgentFolder]()
    for one in HOSTS.values():
        folder = _folder(home.settings, one)
        names = [path.parent.name for path in folder.glob("*/SKILL.md")] if folder else []
        # Several agents may read one folder; it is listed for the first of them.
        if folder and names and folder not in found:
            new = sum(canonical(name) not in known for name in names)
            found[folder] = AgentFolder(agent=one.name, title=one.title, folder=str(folder), skills=len(names), new=new)
    return AgentFolders(folders=list(found.values()))


@use_case("", route="POST /agents/{agent}/import", access=Access.ADMIN, example=OneAgent(agent="claude-code"))
def take_in(home: Home, wanted: OneAgent) -> TakenIn:
    """Import the skills from an agent's own folder; only for the home's owner."""
    _refuse_guest(home.settings)
    found = host(wanted.agent)
    if (folder := _folder(home.settings, found)) is None:
        raise NotFound(f"{found.title} has no folder of skills here.", hint="")
    return updating.take_in(home, folder, (), USER, ImportOptions())


def _folder(settings: Settings, one: Host) -> Path | None:
    """Return the agent's own skill folder, or None if it has none here."""
    # Folders of other agents that it also reads are left out: those agents list them.
    user, own = settings.user_home, one.skills.get(Scope.USER)
    folder = None if own is None else one.path(own, os.environ, user, user)
    return folder if folder is not None and folder.is_dir() else None


def _refuse_guest(settings: Settings) -> None:
    if settings.is_guest:
        raise Refused("Only whoever owns this machine's home may do that.", hint="Ask them to do it.")


def _plan(settings: Settings, agent: str, *, leaving: bool) -> Plan:
    _refuse_guest(settings)
    scope = Scope.USER
    if leaving:
        return connecting.plan_disconnect(settings, os.environ, agent, scope)
    hooks = [one.event for one in connecting.offered_hooks(settings, os.environ, agent, scope, ())]
    return connecting.plan(settings, os.environ, agent, Wishes(scope=scope, hooks=hooks))


def _carry_out(home: Home, planned: Plan) -> AgentFiles:
    connecting.carry_out(home.settings, planned)
    return connecting.describe_plan(planned, home.redact, undo=planned.undo)
