"""Connect other agents: write our server, hooks and instructions into their files, and restore them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

from habitus.agent.user_memory import UserProjectMemory
from habitus.app import home_directory
from habitus.app.home import Home
from habitus.errors import Invalid, NotFound, Refused, did_you_mean
from habitus.files import translate_disk_errors, write_atomically
from habitus.hosts import known_agents
from habitus.hosts.config_editing import ConfigEntry, ConfigFormat
from habitus.hosts.connections import AgentConfigEditor, ConfigEditRequest, ConfigFileChange
from habitus.hosts.known_agents import CONNECTABLE_AGENTS, SERVER_NAME, ConfigScope, KnownAgent, get_agent
from habitus.optional_packages import build_missing_error, is_installed, suggest_permanent_install_command
from habitus.resident_process import HOOK_SERVER, request_stop
from habitus.settings import Settings
from habitus.skills.layers.layer import find_project_root
from habitus.text import clean_to_one_line, format_quantity

# The agent whose plugins may bring hooks.
PLUGIN_AGENT = "claude-code"


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionOptions:
    """The scope of a connection, its hooks, and the text of its block of instructions, if any."""

    scope: ConfigScope = ConfigScope.USER
    hooks: Collection[str] = ()
    block: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionPlan:
    """The changes of a connection, one per file; `experimental_reason` is empty if it is not experimental."""

    host: KnownAgent
    scope: ConfigScope
    changes: tuple[ConfigFileChange, ...]

    @property
    def is_unchanged(self) -> bool:
        """Whether the files are already as planned."""
        return not any(change.has_changes for change in self.changes)

    @property
    def experimental_reason(self) -> str:
        return self.host.experimental_reasons.get(self.scope, "")

    @property
    def note(self) -> str:
        return self.host.notes.get(self.scope, "")

    @property
    def undo(self) -> tuple[str, ...]:
        """The arguments of the command that reverts the plan; empty if nothing changes."""
        if self.is_unchanged:
            return ()
        scope = () if self.scope is ConfigScope.USER else ("--scope", self.scope.value)
        is_leaving = not any(change.request.entries for change in self.changes)
        return ("connect" if is_leaving else "disconnect", self.host.name, *scope)


@dataclass(frozen=True, kw_only=True)
class ConfigFileDiff:
    """A config file and its diff, redacted."""

    file: str
    changed: bool
    diff: str  # redacted; empty if nothing changes


@dataclass(frozen=True, kw_only=True)
class ConnectionReport:
    """The plan or result of connecting an agent, for a person to read."""

    agent: str
    title: str
    scope: str
    # Why the connection is experimental; empty if it is not.
    experimental: str
    # A step that the user has to do.
    note: str
    files: Sequence[ConfigFileDiff]
    undo: tuple[str, ...]  # empty if nothing changed
    # The same in a sentence.
    summary: str = ""


def build_connection_report(
    plan: ConnectionPlan, redact: Callable[[str], str], *, undo: tuple[str, ...] = ()
) -> ConnectionReport:
    """Describe the plan; with `undo`, as the result of applying it."""
    return ConnectionReport(
        agent=plan.host.name,
        title=plan.host.title,
        scope=plan.scope.value,
        experimental=plan.experimental_reason,
        note=plan.note,
        files=[
            ConfigFileDiff(
                file=str(one.request.file), changed=one.has_changes, diff=redact(one.diff) if one.has_changes else ""
            )
            for one in plan.changes
        ],
        undo=undo,
        summary=_summarise_plan(plan),
    )


def _summarise_plan(plan: ConnectionPlan) -> str:
    """Return in a sentence what is added to which file, or removed from it."""
    changed = [one for one in plan.changes if one.has_changes]
    if not changed:
        return "Nothing needs to change."
    is_leaving = not any(one.request.entries for one in plan.changes)
    word = "from" if is_leaving else "to"
    parts = [f"{_describe_config_entries(one.entries)} {word} {_shorten_home(one.request.file)}" for one in changed]
    return f"{'Removes' if is_leaving else 'Adds'} {', '.join(parts)}; nothing else changes."


def _describe_config_entries(entries: Sequence[ConfigEntry]) -> str:
    """Return what a file gets: the server, so many hooks, or a block of instructions."""
    hooks = sum("hooks" in one.path for one in entries)
    named = [format_quantity(hooks, "hook")] if hooks else []
    if any(not one.path for one in entries):
        named.insert(0, "a marked block of text")
    if any(one.path and "hooks" not in one.path for one in entries):
        named.insert(0, "our server")
    return " and ".join(named) or "our entries"


def _shorten_home(file: Path) -> str:
    home = Path.home()
    return f"~/{file.relative_to(home)}" if file.is_relative_to(home) else str(file)


def list_agent_hooks_except_refused(
    settings: Settings, environ: Mapping[str, str], agent: str, scope: ConfigScope, refused: Sequence[str]
) -> tuple[known_agents.AgentHook, ...]:
    """Return the hooks that an agent can have without the refused ones; `all` refuses every one.

    An agent runs the hooks of both scopes, so there are none if the other scope has them.
    """
    known = {one.event.lower(): one for one in known_agents.AGENT_HOOKS}
    for name in refused:
        if name.lower() not in (*known, "all"):
            near = did_you_mean(name, [one.event for one in known_agents.AGENT_HOOKS])
            there = ", ".join(one.event for one in known_agents.AGENT_HOOKS)
            raise NotFound(f"There is no hook '{name}'.", hint=near or f"There are: {there}.")
    unwanted, found = {name.lower() for name in refused}, get_agent(agent, CONNECTABLE_AGENTS)
    _refuse_unusable_installation()
    _refuse_hooks_beside_plugin(settings, environ, found)
    if not found.hooks or "all" in unwanted:
        return ()
    others = [
        _build_hooks_config_edit(settings, environ, found, ConnectionOptions(scope=other))
        for other in ConfigScope
        if other is not scope
    ]
    if any(map(AgentConfigEditor(settings.home).is_connected, others)):
        return ()
    return tuple(one for name, one in known.items() if name not in unwanted)


def plan_connection(
    settings: Settings, environ: Mapping[str, str], agent: str, options: ConnectionOptions
) -> ConnectionPlan:
    """Plan a connection without writing anything."""
    found, scope = get_agent(agent, CONNECTABLE_AGENTS), options.scope
    _refuse_unusable_installation()
    if not home_directory.create_home_and_check_writable(settings.home):
        home_directory.raise_home_not_writable(settings.home)
    _refuse_hooks_beside_plugin(settings, environ, found)
    wanted = [_build_server_config_edit(settings, environ, found, scope)]
    if found.hooks:
        wanted.append(_build_hooks_config_edit(settings, environ, found, options))
    if options.block:
        wanted.append(_build_instructions_edit(settings, environ, found, options))
    return _plan_file_changes(settings, found, scope, wanted)


def plan_disconnection(
    settings: Settings, environ: Mapping[str, str], agent: str, scope: ConfigScope
) -> ConnectionPlan:
    """Plan the removal of all our entries; `NotFound` if there are none."""
    found = get_agent(agent, CONNECTABLE_AGENTS)
    every = [
        _build_server_config_edit(settings, environ, found, scope),
        *([_build_hooks_config_edit(settings, environ, found, ConnectionOptions(scope=scope))] if found.hooks else []),
        *(
            [_build_instructions_edit(settings, environ, found, ConnectionOptions(scope=scope))]
            if scope in found.instructions
            else []
        ),
    ]
    connections = AgentConfigEditor(settings.home)
    there = [replace(one, entries=()) for one in every if connections.is_connected(one)]
    if not there:
        raise NotFound(
            f"{found.title} is not connected for this {scope}.", hint=f"See 'habitus connect {agent} --dry-run'."
        )
    return _plan_file_changes(settings, found, scope, there)


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectableAgentStatus:
    """An agent that can be connected; `is_used` if it has files on this machine."""

    name: str
    title: str
    is_used: bool
    is_connected: bool


def list_connectable_agents(settings: Settings, environ: Mapping[str, str]) -> tuple[ConnectableAgentStatus, ...]:
    """Return all agents that can be connected, those of this machine first."""
    connections = AgentConfigEditor(settings.home)
    found = [
        ConnectableAgentStatus(
            name=one.name,
            title=one.title,
            is_used=one.has_been_used_on_machine(environ, settings.user_home),
            is_connected=any(
                connections.is_connected(_build_server_config_edit(settings, environ, one, scope))
                for scope in one.config
            ),
        )
        for one in CONNECTABLE_AGENTS.values()
    ]
    return tuple(sorted(found, key=lambda one: (not one.is_connected, not one.is_used, one.title)))


def write_hook_command_file_or_get_warning(settings: Settings, environ: Mapping[str, str]) -> str:
    """Write the command that our plugin's script runs, if there is a home: a hook makes none in place of a moved one.

    Return a warning instead if `connect` installed the same hooks.
    """
    if not settings.home.is_dir():
        return ""
    file = settings.home / home_directory.PLUGIN_FILE
    found = get_agent(PLUGIN_AGENT)
    wanted = [
        _build_hooks_config_edit(settings, environ, found, ConnectionOptions(scope=scope)) for scope in ConfigScope
    ]
    if any(map(AgentConfigEditor(settings.home).is_connected, wanted)):
        file.unlink(missing_ok=True)
        return f"Habitus is connected already, so its plugin rests: 'habitus disconnect {PLUGIN_AGENT}' or remove it."
    with translate_disk_errors(file):
        write_atomically(
            file,
            "".join(f"{line}\n" for line in known_agents.get_hook_invocation(sys.executable, settings.home)).encode(),
        )
    return ""


def _refuse_unusable_installation() -> None:
    """Refuse to name this installation in an agent's settings if its server can't start, or not for long."""
    if not is_installed("mcp"):
        raise build_missing_error("The server that an agent starts", "mcp")
    if command := suggest_permanent_install_command():
        raise Refused("This Habitus runs from a cache that can be cleared at any time.", hint=f"Run: {command}.")


def _refuse_hooks_beside_plugin(settings: Settings, environ: Mapping[str, str], found: KnownAgent) -> None:
    """Refuse hooks besides our plugin: the agent would be told everything twice."""
    if found.name == PLUGIN_AGENT and (name := find_enabled_plugin(settings, environ)):
        raise Refused(
            f"{found.title} has our plugin already.", hint=f"Remove it first: claude plugin uninstall {name}."
        )


def find_enabled_plugin(settings: Settings, environ: Mapping[str, str]) -> str:
    """Return the name of our plugin if the person's settings of Claude Code enable it; otherwise an empty one."""
    found = get_agent(PLUGIN_AGENT)
    place = found.resolve_path(found.hooks[ConfigScope.USER], environ, settings.user_home, settings.user_home)
    try:
        plugins = json.loads(place.read_bytes()).get("enabledPlugins")
    except (OSError, ValueError, AttributeError):
        return ""
    named = (name for name, is_on in _iterate_items_if_mapping(plugins) if is_on)
    return next((name for name in named if name.startswith(f"{SERVER_NAME}@")), "")


def _iterate_items_if_mapping(value: object) -> Iterable[tuple[str, object]]:
    return value.items() if isinstance(value, dict) else ()


def render_instructions(rules: Sequence[str]) -> str:
    """Return the text of the block: the guidance, followed by the rules, if any."""
    guidance = resources.files("habitus.hosts").joinpath("prompts", "block.md").read_text(encoding="utf-8").strip()
    listed = "\n".join(["### Rules", "", *(f"- {clean_to_one_line(rule)}" for rule in rules)]) if rules else ""
    return "\n\n".join(part for part in (guidance, listed) if part)


def list_standing_rules(home: Home) -> list[str]:
    """Return the rules that apply to every request, as lines of a prompt."""
    memory = UserProjectMemory(cortex=home.memory, user=home.settings.user, project=home.project)
    return [home.redact(note.prompt_line) for note in memory.recall_profile_and_rules().rules]


def apply_connection_plan(settings: Settings, plan: ConnectionPlan) -> None:
    """Write the planned changes."""
    connections = AgentConfigEditor(settings.home)
    for change in plan.changes:
        connections.apply_change(change)
    if not any(change.request.entries for change in plan.changes):
        # If other hooks still need the daemon, they start a new one.
        request_stop(settings.home, HOOK_SERVER)


def list_original_config_backups(settings: Settings, plan: ConnectionPlan) -> tuple[Path, ...]:
    """Return the files with the original contents."""
    connections = AgentConfigEditor(settings.home)
    return tuple(connections.backup_path(change.request.file) for change in plan.changes if change.clean is not None)


def _plan_file_changes(
    settings: Settings, found: KnownAgent, scope: ConfigScope, wanted: Sequence[ConfigEditRequest]
) -> ConnectionPlan:
    connections = AgentConfigEditor(settings.home)
    changes = [
        connections.plan_change(one)
        for one in wanted
        if one.entries or connections.has_recorded_change_of_file(one.file)
    ]
    return ConnectionPlan(host=found, scope=scope, changes=tuple(changes))


def _build_server_config_edit(
    settings: Settings, environ: Mapping[str, str], found: KnownAgent, scope: ConfigScope
) -> ConfigEditRequest:
    root = find_project_root(settings.cwd)
    return ConfigEditRequest(
        agent=found.name,
        file=_resolve_symbolic_link(found.find_config_file(scope, environ, settings.user_home, root)),
        format=found.format,
        entries=(
            ConfigEntry(
                path=(found.servers, SERVER_NAME), value=found.make_server_entry(_make_mcp_server_command(settings))
            ),
        ),
        versions=found.versions,
        is_private=scope is ConfigScope.USER,
    )


def _build_hooks_config_edit(
    settings: Settings, environ: Mapping[str, str], found: KnownAgent, wishes: ConnectionOptions
) -> ConfigEditRequest:
    file = found.resolve_path(found.hooks[wishes.scope], environ, settings.user_home, find_project_root(settings.cwd))
    entries = known_agents.make_hook_entries(wishes.hooks, sys.executable, settings.home)
    return ConfigEditRequest(
        agent=found.name, file=_resolve_symbolic_link(file), format=ConfigFormat.JSON, entries=tuple(entries)
    )


def _build_instructions_edit(
    settings: Settings, environ: Mapping[str, str], found: KnownAgent, wishes: ConnectionOptions
) -> ConfigEditRequest:
    if wishes.scope not in found.instructions:
        where = ", ".join(found.instructions) or "none"
        raise Invalid(
            f"{found.title} has no file with instructions for a {wishes.scope} that is known here.",
            hint=f"It has one for: {where}.",
        )
    file = found.resolve_path(
        found.instructions[wishes.scope], environ, settings.user_home, find_project_root(settings.cwd)
    )
    entry = ConfigEntry(path=(), value=wishes.block)
    return ConfigEditRequest(
        agent=found.name,
        file=_resolve_symbolic_link(file),
        format=ConfigFormat.BLOCK,
        entries=(entry,),
        is_private=wishes.scope is ConfigScope.USER,
    )


def _resolve_symbolic_link(file: Path) -> Path:
    """Resolve a symbolic link, so its target is written and the link stays."""
    return Path(os.path.realpath(file))


def _make_mcp_server_command(settings: Settings) -> list[str]:
    """Return the command of our server with its full path, because an agent may have another PATH."""
    script = Path(sys.executable).with_name("habitus")
    program = [str(script)] if script.exists() else [sys.executable, "-m", "habitus"]
    return [*program, *make_mcp_server_arguments(settings)]


def make_mcp_server_arguments(settings: Settings) -> list[str]:
    """Return the arguments with which an agent starts our server."""
    is_usual = settings.home == settings.user_home / ".habitus"
    return ["mcp"] if is_usual else ["--home", str(settings.home), "mcp"]
