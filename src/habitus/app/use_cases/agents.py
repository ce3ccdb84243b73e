"""Other agents on this machine: list them, preview, connect and disconnect, and import their skills."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated

from habitus.access import Access
from habitus.app.home import Home
from habitus.app.library import importing
from habitus.app.other_agents import connecting
from habitus.app.use_cases.declaration import argument, option, use_case
from habitus.errors import NotFound
from habitus.hosts.known_agents import CONNECTABLE_AGENTS, KNOWN_AGENTS, ConfigScope, KnownAgent, get_agent
from habitus.settings import Settings
from habitus.skills.layers.layer import USER_LAYER
from habitus.skills.names import canonicalize_name

# Sources of requests that belong to Habitus itself.
_OWN_SOURCE_TYPES = ("api", "cli", "repl", "web")
_AGENT_FILES = "which files of other agents are read and changed"
_AGENT_HELP = f"One of: {', '.join(CONNECTABLE_AGENTS)}."


@dataclass(frozen=True, kw_only=True)
class AgentActivity:
    """An agent that is connected on this machine or has sent requests; `name` is its source type in the journal."""

    name: str
    title: str
    is_connected: bool
    last_seen_on: datetime | None


@dataclass(frozen=True, kw_only=True)
class ListAgentsResult:
    """The agents that can be connected, and those that are connected or have sent requests."""

    agents: Sequence[connecting.ConnectableAgentStatus]
    activity: Sequence[AgentActivity]


@use_case("", route="GET /agents", access=Access.VIEWER)
def list_agents(home: Home) -> ListAgentsResult:
    """Return the agents that can be connected, installed ones first, and when each agent was last seen."""
    agents = connecting.list_connectable_agents(home.settings, os.environ)
    return ListAgentsResult(
        agents=agents, activity=list_agent_activity(home, home.journal.get_last_request_time_by_agent_kind())
    )


def list_agent_activity(home: Home, last_seen: Mapping[str, datetime]) -> list[AgentActivity]:
    """Return agents that are connected or have sent requests, most recent first; `last_seen` maps names to times."""
    connected = [one.name for one in connecting.list_connectable_agents(home.settings, os.environ) if one.is_connected]
    names = dict.fromkeys([*connected, *(name for name in last_seen if name not in _OWN_SOURCE_TYPES)])
    agents = [
        AgentActivity(
            name=name,
            title=KNOWN_AGENTS[name].title if name in KNOWN_AGENTS else "Agents by MCP" if name == "mcp" else name,
            is_connected=name in connected,
            last_seen_on=last_seen.get(name),
        )
        for name in names
    ]
    # Agents that never sent a request come last.
    return sorted(agents, key=lambda one: (one.last_seen_on is None, -(one.last_seen_on or home.clock()).timestamp()))


@use_case("", route="GET /agents/{agent}/changes", access=Access.ADMIN, example={"agent": "claude-code"})
def preview_agent_changes(
    home: Home,
    agent: Annotated[str, argument(_AGENT_HELP)],
    disconnecting: Annotated[bool, option("Preview disconnecting instead of connecting.")] = False,
) -> connecting.ConnectionReport:
    """Preview what connecting an agent, or disconnecting it, would change in its files; nothing is written."""
    return connecting.build_connection_report(
        _plan_agent_connection_change(home, agent, disconnecting=disconnecting), home.redact
    )


@use_case("", route="POST /agents/{agent}/connect", access=Access.ADMIN, example={"agent": "claude-code"})
def connect_agent(home: Home, agent: Annotated[str, argument(_AGENT_HELP)]) -> connecting.ConnectionReport:
    """Add our server to an agent's configuration, and our hooks if it supports them; only for the home's owner."""
    return _apply_agent_connection_plan(home, _plan_agent_connection_change(home, agent, disconnecting=False))


@use_case("", route="POST /agents/{agent}/disconnect", access=Access.ADMIN, example={"agent": "claude-code"})
def disconnect_agent(home: Home, agent: Annotated[str, argument(_AGENT_HELP)]) -> connecting.ConnectionReport:
    """Remove everything of ours from an agent's files; only for the home's owner."""
    return _apply_agent_connection_plan(home, _plan_agent_connection_change(home, agent, disconnecting=True))


@dataclass(frozen=True, kw_only=True)
class AgentSkillFolder:
    """A folder with an agent's skills on this machine; `new` counts the names that you don't have yet."""

    agent: str
    title: str
    folder: str
    skills: int
    new: int


@dataclass(frozen=True, kw_only=True)
class ListAgentSkillFoldersResult:
    folders: Sequence[AgentSkillFolder]


@use_case("", route="GET /agents/folders", access=Access.ADMIN)
def list_agent_skill_folders(home: Home) -> ListAgentSkillFoldersResult:
    """Return the folders on this machine in which agents keep skills of their own; only for the home's owner."""
    home.host.files.require_access(_AGENT_FILES)
    known = {item.name for item in home.skills.snapshot().listing if item.layer == USER_LAYER}
    found = dict[Path, AgentSkillFolder]()
    for one in KNOWN_AGENTS.values():
        folder = _find_own_skill_folder_of_agent(home.settings, one)
        names = [path.parent.name for path in folder.glob("*/SKILL.md")] if folder else []
        # Several agents may read one folder; it is listed for the first of them.
        if folder and names and folder not in found:
            new = sum(canonicalize_name(name) not in known for name in names)
            found[folder] = AgentSkillFolder(
                agent=one.name, title=one.title, folder=str(folder), skills=len(names), new=new
            )
    return ListAgentSkillFoldersResult(folders=list(found.values()))


@use_case("", route="POST /agents/{agent}/import", access=Access.ADMIN, example={"agent": "claude-code"})
def import_agent_skills(home: Home, agent: Annotated[str, argument(_AGENT_HELP)]) -> importing.ImportResult:
    """Import the skills from an agent's own folder; only for the home's owner."""
    home.host.files.require_access(_AGENT_FILES)
    found = get_agent(agent)
    if (folder := _find_own_skill_folder_of_agent(home.settings, found)) is None:
        raise NotFound(f"{found.title} has no folder of skills here.", hint="")
    return importing.import_skills(home, folder, (), USER_LAYER, importing.ImportOptions())


def _find_own_skill_folder_of_agent(settings: Settings, one: KnownAgent) -> Path | None:
    """Return the agent's own skill folder, or None if it has none here."""
    # Folders of other agents that it also reads are left out: those agents list them.
    user, own = settings.user_home, one.skills.get(ConfigScope.USER)
    folder = None if own is None else one.resolve_path(own, os.environ, user, user)
    return folder if folder is not None and folder.is_dir() else None


def _plan_agent_connection_change(home: Home, agent: str, *, disconnecting: bool) -> connecting.ConnectionPlan:
    home.host.files.require_access(_AGENT_FILES)
    settings, scope = home.settings, ConfigScope.USER
    if disconnecting:
        return connecting.plan_disconnection(settings, os.environ, agent, scope)
    hooks = [one.event for one in connecting.list_agent_hooks_except_refused(settings, os.environ, agent, scope, ())]
    return connecting.plan_connection(
        settings, os.environ, agent, connecting.ConnectionOptions(scope=scope, hooks=hooks)
    )


def _apply_agent_connection_plan(home: Home, planned: connecting.ConnectionPlan) -> connecting.ConnectionReport:
    connecting.apply_connection_plan(home.settings, planned)
    return connecting.build_connection_report(planned, home.redact, undo=planned.undo)
