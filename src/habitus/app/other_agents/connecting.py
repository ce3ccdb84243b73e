"""Connect other agents: write our server, hooks and instructions into their files, and restore them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

from habitus.agent.choosing import SessionMemory
from habitus.app import home_directory
from habitus.app.home import Home
from habitus.errors import Invalid, NotFound, Refused, did_you_mean
from habitus.files import disk_errors, write_whole
from habitus.hosts import known_agents
from habitus.hosts.connections import Change, Connections, Wanted
from habitus.hosts.editing import Entry, Format
from habitus.hosts.known_agents import CONNECTED, NAME, Host, Scope, host
from habitus.resident_process import HOOK_SERVER, end_soon
from habitus.settings import Settings
from habitus.skills.layers.layer import project_root
from habitus.text import one_line

# The agent whose plugins may bring hooks.
_WITH_PLUGIN = "claude-code"


@dataclass(frozen=True, kw_only=True, slots=True)
class Wishes:
    """The scope of a connection, its hooks, and the text of its block of instructions, if any."""

    scope: Scope = Scope.USER
    hooks: Collection[str] = ()
    block: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The changes of a connection, one per file; `experimental_reason` is empty if it is not experimental."""

    host: Host
    scope: Scope
    changes: tuple[Change, ...]

    @property
    def is_done(self) -> bool:
        """Whether the files are already as planned."""
        return not any(change.is_one for change in self.changes)

    @property
    def doubt(self) -> str:
        return self.host.doubts.get(self.scope, "")

    @property
    def note(self) -> str:
        return self.host.notes.get(self.scope, "")

    @property
    def undo(self) -> tuple[str, ...]:
        """The arguments of the command that reverts the plan; empty if nothing changes."""
        if self.is_done:
            return ()
        scope = () if self.scope is Scope.USER else ("--scope", self.scope.value)
        is_leaving = not any(change.wanted.entries for change in self.changes)
        return ("connect" if is_leaving else "disconnect", self.host.name, *scope)


@dataclass(frozen=True, kw_only=True)
class ChangedFile:
    """A config file and its diff, redacted."""

    file: str
    changed: bool
    diff: str  # redacted; empty if nothing changes


@dataclass(frozen=True, kw_only=True)
class AgentFiles:
    """The plan or result of connecting an agent, for a person to read."""

    agent: str
    title: str
    scope: str
    # Why the connection is experimental; empty if it is not.
    experimental: str
    # A step that the user has to do.
    note: str
    files: Sequence[ChangedFile]
    undo: tuple[str, ...]  # empty if nothing changed


def describe_plan(planned: Plan, redact: Callable[[str], str], *, undo: tuple[str, ...] = ()) -> AgentFiles:
    """Describe the plan; with `undo`, as the result of applying it."""
    return AgentFiles(
        agent=planned.host.name,
        title=planned.host.title,
        scope=planned.scope.value,
        experimental=planned.doubt,
        note=planned.note,
        files=[
            ChangedFile(file=str(one.wanted.file), changed=one.is_one, diff=redact(one.diff) if one.is_one else "")
            for one in planned.changes
        ],
        undo=undo,
    )


def offered_hooks(
    settings: Settings, environ: Mapping[str, str], agent: str, scope: Scope, refused: Sequence[str]
) -> tuple[known_agents.Hook, ...]:
    """Return the hooks that an agent can have without the refused ones; `all` refuses every one.

    An agent runs the hooks of both scopes, so there are none if the other scope has them.
    """
    known = {one.event.lower(): one for one in known_agents.HOOKS}
    for name in refused:
        if name.lower() not in (*known, "all"):
            near = did_you_mean(name, [one.event for one in known_agents.HOOKS])
            there = ", ".join(one.event for one in known_agents.HOOKS)
            raise NotFound(f"There is no hook '{name}'.", hint=near or f"There are: {there}.")
    unwanted, found = {name.lower() for name in refused}, host(agent, CONNECTED)
    _refuse_beside_plugin(settings, environ, found)
    if not found.hooks or "all" in unwanted:
        return ()
    others = [_hooks(settings, environ, found, Wishes(scope=other)) for other in Scope if other is not scope]
    if any(map(Connections(settings.home).is_connected, others)):
        return ()
    return tuple(one for name, one in known.items() if name not in unwanted)


def plan(settings: Settings, environ: Mapping[str, str], agent: str, wishes: Wishes) -> Plan:
    """Plan a connection without writing anything."""
    if not home_directory.can_write(settings.home):
        home_directory.refuse_to_write(settings.home)
    found, scope = host(agent, CONNECTED), wishes.scope
    _refuse_beside_plugin(settings, environ, found)
    wanted = [_server(settings, environ, found, scope)]
    if found.hooks:
        wanted.append(_hooks(settings, environ, found, wishes))
    if wishes.block:
        wanted.append(_block(settings, environ, found, wishes))
    return _plan(settings, found, scope, wanted)


def plan_disconnect(settings: Settings, environ: Mapping[str, str], agent: str, scope: Scope) -> Plan:
    """Plan the removal of all our entries; `NotFound` if there are none."""
    found = host(agent, CONNECTED)
    every = [
        _server(settings, environ, found, scope),
        *([_hooks(settings, environ, found, Wishes(scope=scope))] if found.hooks else []),
        *([_block(settings, environ, found, Wishes(scope=scope))] if scope in found.instructions else []),
    ]
    connections = Connections(settings.home)
    there = [replace(one, entries=()) for one in every if connections.is_connected(one)]
    if not there:
        raise NotFound(
            f"{found.title} is not connected for this {scope}.", hint=f"See 'habitus connect {agent} --dry-run'."
        )
    return _plan(settings, found, scope, there)


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentHere:
    """An agent that can be connected; `is_used` if it has files on this machine."""

    name: str
    title: str
    is_used: bool
    is_connected: bool


def agents_here(settings: Settings, environ: Mapping[str, str]) -> tuple[AgentHere, ...]:
    """Return all agents that can be connected, those of this machine first."""
    connections = Connections(settings.home)
    found = [
        AgentHere(
            name=one.name,
            title=one.title,
            is_used=one.is_used(environ, settings.user_home),
            is_connected=any(connections.is_connected(_server(settings, environ, one, scope)) for scope in one.config),
        )
        for one in CONNECTED.values()
    ]
    return tuple(sorted(found, key=lambda one: (not one.is_connected, not one.is_used, one.title)))


def note_for_plugin(settings: Settings, environ: Mapping[str, str]) -> str:
    """Write the command that our plugin's script runs.

    Return a warning instead if `connect` installed the same hooks.
    """
    file = settings.home / home_directory.PLUGIN
    found = host(_WITH_PLUGIN)
    wanted = [_hooks(settings, environ, found, Wishes(scope=scope)) for scope in Scope]
    if any(map(Connections(settings.home).is_connected, wanted)):
        file.unlink(missing_ok=True)
        return f"Habitus is connected already, so its plugin rests: 'habitus disconnect {_WITH_PLUGIN}' or remove it."
    with disk_errors(file):
        settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(file, "".join(f"{line}\n" for line in known_agents.program(sys.executable, settings.home)).encode())
    return ""


def _refuse_beside_plugin(settings: Settings, environ: Mapping[str, str], found: Host) -> None:
    """Refuse hooks besides our plugin: the agent would be told everything twice."""
    if found.name != _WITH_PLUGIN:
        return
    place = found.path(found.hooks[Scope.USER], environ, settings.user_home, settings.user_home)
    try:
        plugins = json.loads(place.read_bytes()).get("enabledPlugins")
    except (OSError, ValueError, AttributeError):
        return
    if name := next((name for name, is_on in _items(plugins) if name.startswith(f"{NAME}@") and is_on), ""):
        raise Refused(
            f"{found.title} has our plugin already.", hint=f"Remove it first: claude plugin uninstall {name}."
        )


def _items(value: object) -> Iterable[tuple[str, object]]:
    return value.items() if isinstance(value, dict) else ()


def block_text(rules: Sequence[str]) -> str:
    """Return the text of the block: the guidance, followed by the rules, if any."""
    guidance = resources.files("habitus.hosts").joinpath("prompts", "block.md").read_text(encoding="utf-8").strip()
    listed = "\n".join(["### Rules", "", *(f"- {one_line(rule)}" for rule in rules)]) if rules else ""
    return "\n\n".join(part for part in (guidance, listed) if part)


def rules_for_block(home: Home) -> list[str]:
    """Return the rules that apply to every request, as lines of a prompt."""
    memory = SessionMemory(cortex=home.memory, user=home.settings.user, project=home.project)
    return [home.redact(note.line) for note in memory.standing().rules]


def carry_out(settings: Settings, planned: Plan) -> None:
    """Write the planned changes."""
    connections = Connections(settings.home)
    for change in planned.changes:
        connections.carry_out(change)
    if not any(change.wanted.entries for change in planned.changes):
        # If other hooks still need the daemon, they start a new one.
        end_soon(settings.home, HOOK_SERVER)


def backups(settings: Settings, planned: Plan) -> tuple[Path, ...]:
    """Return the files with the original contents."""
    connections = Connections(settings.home)
    return tuple(connections.backup(change.wanted.file) for change in planned.changes if change.clean is not None)


def _plan(settings: Settings, found: Host, scope: Scope, wanted: Sequence[Wanted]) -> Plan:
    connections = Connections(settings.home)
    changes = [connections.plan(one) for one in wanted if one.entries or connections.knows(one.file)]
    return Plan(host=found, scope=scope, changes=tuple(changes))


def _server(settings: Settings, environ: Mapping[str, str], found: Host, scope: Scope) -> Wanted:
    root = project_root(settings.cwd)
    return Wanted(
        agent=found.name,
        file=_real(found.config_file(scope, environ, settings.user_home, root)),
        format=found.format,
        entries=(Entry(path=(found.servers, NAME), value=found.server(_command(settings))),),
        versions=found.versions,
        is_private=scope is Scope.USER,
    )


def _hooks(settings: Settings, environ: Mapping[str, str], found: Host, wishes: Wishes) -> Wanted:
    file = found.path(found.hooks[wishes.scope], environ, settings.user_home, project_root(settings.cwd))
    entries = known_agents.entries(wishes.hooks, sys.executable, settings.home)
    return Wanted(agent=found.name, file=_real(file), format=Format.JSON, entries=tuple(entries))


def _block(settings: Settings, environ: Mapping[str, str], found: Host, wishes: Wishes) -> Wanted:
    if wishes.scope not in found.instructions:
        where = ", ".join(found.instructions) or "none"
        raise Invalid(
            f"{found.title} has no file with instructions for a {wishes.scope} that is known here.",
            hint=f"It has one for: {where}.",
        )
    file = found.path(found.instructions[wishes.scope], environ, settings.user_home, project_root(settings.cwd))
    entry = Entry(path=(), value=wishes.block)
    return Wanted(
        agent=found.name,
        file=_real(file),
        format=Format.BLOCK,
        entries=(entry,),
        is_private=wishes.scope is Scope.USER,
    )


def _real(file: Path) -> Path:
    """Resolve a symbolic link, so its target is written and the link stays."""
    return Path(os.path.realpath(file))


def _command(settings: Settings) -> list[str]:
    """Return the command of our server with its full path, because an agent may have another PATH."""
    script = Path(sys.executable).with_name("habitus")
    program = [str(script)] if script.exists() else [sys.executable, "-m", "habitus"]
    return [*program, *server_words(settings)]


def server_words(settings: Settings) -> list[str]:
    """Return the arguments with which an agent starts our server."""
    is_usual = settings.home == settings.user_home / ".habitus"
    return ["mcp"] if is_usual else ["--home", str(settings.home), "mcp"]
