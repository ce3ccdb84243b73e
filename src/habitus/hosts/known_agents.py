"""Known agents: where each keeps its config, skills and transcripts, and in which format (`known_agents.toml`).

The hooks that Claude Code can run are here too.
"""

from __future__ import annotations

import shlex
import sys
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Any

from habitus.errors import Invalid, NotFound, did_you_mean
from habitus.hosts import hook
from habitus.hosts.config_editing import ConfigEntry, ConfigFormat

# The name of our server in every agent's config.
SERVER_NAME = "habitus"


class ConfigScope(StrEnum):
    """Whether a config applies to the user or to one project."""

    USER = "user"  # in every project of the user
    PROJECT = "project"  # for everyone in this project


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownAgent:
    """An agent and its files.

    A user's paths begin with `~`, a project's are relative to its root; the first existing one counts.
    """

    name: str
    title: str
    format: ConfigFormat = ConfigFormat.JSON
    # Empty if it does not support MCP, as far as known.
    config: Mapping[ConfigScope, tuple[str, ...]] = field(default_factory=dict)
    servers: str = ""  # the key of the mapping of servers
    entry: Mapping[str, Any] = field(default_factory=dict)  # further keys of a server's entry
    command_key: str = "command"
    is_one_list: bool = False  # command and arguments in one list
    versions: tuple[str, tuple[int, ...]] = ("version", (1,))  # a key and its known values
    # The environment variable that moves its folder, and the new paths of its files below that.
    variable: str = ""
    moves: Mapping[str, str] = field(default_factory=dict)
    instructions: Mapping[ConfigScope, str] = field(default_factory=dict)
    skills: Mapping[ConfigScope, str] = field(default_factory=dict)  # the folder we write to
    reads: Mapping[ConfigScope, tuple[str, ...]] = field(
        default_factory=dict
    )  # all folders it reads, in order of precedence
    listing_chars: int = 0  # of all descriptions together; 0 if unknown
    description_chars: int = 0
    # One of these folders exists if the agent is used.
    marks: tuple[str, ...] = ()
    transcripts_in: str = ""
    patterns: tuple[str, ...] = ("**/*.jsonl",)  # of transcripts; the first that matches any counts
    follows_links: bool = True
    hooks: Mapping[ConfigScope, str] = field(default_factory=dict)  # the file with the hooks
    experimental_reasons: Mapping[ConfigScope, str] = field(default_factory=dict)  # why it is experimental
    notes: Mapping[ConfigScope, str] = field(default_factory=dict)  # steps left to the user

    def make_server_entry(self, command: Sequence[str]) -> dict[str, Any]:
        """Return the config entry that starts our server."""
        given: dict[str, Any] = {"command": list(command)} if self.is_one_list else {}
        return {**self.entry, **(given or {self.command_key: command[0], "args": list(command[1:])})}

    def list_skill_folders(self, scope: ConfigScope) -> tuple[str, ...]:
        """Return the folders in which the agent looks for skills; the first one wins."""
        own = (self.skills[scope],) if scope in self.skills else ()
        return self.reads.get(scope, own)

    def has_been_used_on_machine(self, environ: Mapping[str, str], user_home: Path) -> bool:
        """Whether the agent has left files on this machine."""
        return any(self.resolve_path(mark, environ, user_home, user_home).is_dir() for mark in self.marks)

    def find_transcripts(self, environ: Mapping[str, str], user_home: Path) -> Iterator[Path]:
        """Yield the transcripts of the first pattern that matches any."""
        folder = self.resolve_path(self.transcripts_in, environ, user_home, user_home)
        for pattern in self.patterns if folder.is_dir() else ():
            if found := sorted(path for path in folder.glob(pattern) if path.is_file()):
                yield from found
                return

    def resolve_path(self, path: str, environ: Mapping[str, str], user_home: Path, root: Path) -> Path:
        """Return the location of a path from this table on this machine."""
        folder = environ.get(self.variable, "") if self.variable else ""
        for prefix, below in self.moves.items() if folder else ():
            if path == prefix or path.startswith(f"{prefix}/"):
                return Path(folder) / below / path[len(prefix) + 1 :]
        return user_home / path[2:] if path.startswith("~/") else root / path

    def find_config_file(self, scope: ConfigScope, environ: Mapping[str, str], user_home: Path, root: Path) -> Path:
        """Return the first existing config file, or the first possible one; `Invalid` if the scope has none."""
        if scope not in self.config:
            there = ", ".join(self.config)
            raise Invalid(f"{self.title} has no settings for a {scope}.", hint=f"It has them for a {there}.")
        places = [self.resolve_path(one, environ, user_home, root) for one in self.config[scope]]
        return next((place for place in places if place.exists()), places[0])


_VSCODE_FOLDER = "~/Library/Application Support/Code/User" if sys.platform == "darwin" else "~/.config/Code/User"
_COMMITTED_FILE_NOTE = "The file belongs to the project, and names a path of this machine: think before you commit it."


def _load_known_agents() -> dict[str, KnownAgent]:
    text = files("habitus.hosts").joinpath("known_agents.toml").read_text("utf-8")
    text = text.replace("{vscode}", _VSCODE_FOLDER).replace("{committed}", _COMMITTED_FILE_NOTE)
    return {name: _build_known_agent(name, given) for name, given in tomllib.loads(text).items()}


def _build_known_agent(name: str, given: dict[str, Any]) -> KnownAgent:
    """Build an agent from its table: lists are tuples, except in the entry that is written as it is."""
    fields = {key: value if key == "entry" else _convert_lists_to_tuples(value) for key, value in given.items()}
    scoped = {key: {ConfigScope(scope): each for scope, each in fields.get(key, {}).items()} for key in _BY_SCOPE}
    return KnownAgent(name=name, **fields | scoped | {"format": ConfigFormat(given.get("format", "json"))})


def _convert_lists_to_tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _convert_lists_to_tuples(each) for key, each in value.items()}
    return tuple(map(_convert_lists_to_tuples, value)) if isinstance(value, list) else value


_BY_SCOPE = ("config", "instructions", "skills", "reads", "hooks", "experimental_reasons", "notes")
KNOWN_AGENTS: Mapping[str, KnownAgent] = _load_known_agents()
# Agents whose transcripts can be read.
STUDIED_AGENTS: Mapping[str, KnownAgent] = {name: one for name, one in KNOWN_AGENTS.items() if one.transcripts_in}
# Agents that can start our server.
CONNECTABLE_AGENTS: Mapping[str, KnownAgent] = {name: one for name, one in KNOWN_AGENTS.items() if one.config}
# Agents that read folders of skills.
SYNCED_AGENTS: Mapping[str, KnownAgent] = {name: one for name, one in KNOWN_AGENTS.items() if one.skills}


def get_agent(name: str, among: Mapping[str, KnownAgent] = KNOWN_AGENTS) -> KnownAgent:
    """Return an agent by name; `Invalid` if it is not in `among`, `NotFound` if it is unknown."""
    if name in among:
        return among[name]
    there = f"There are: {', '.join(among)}."
    if name in KNOWN_AGENTS:
        raise Invalid(f"We know no way to do that with {KNOWN_AGENTS[name].title}.", hint=there)
    raise NotFound(f"There is no agent '{name}'.", hint=did_you_mean(name, among) or there)


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentHook:
    """A hook that can be installed; `event` is Claude Code's name for it, `timeout` is in seconds."""

    event: str
    description: str
    timeout: int


# None has a matcher, because VS Code runs these hooks too and ignores matchers.
AGENT_HOOKS: tuple[AgentHook, ...] = (
    AgentHook(event="SessionStart", description="tells it your rules, recent lessons and pending reviews", timeout=15),
    AgentHook(event="UserPromptSubmit", description="suggests matching lessons and skills, in 300 tokens", timeout=5),
    AgentHook(
        event="PostToolUseFailure", description="tells it what helped the last time a call failed like that", timeout=5
    ),
    AgentHook(event="Stop", description="records the path of the transcript, to learn from later", timeout=2),
    AgentHook(event="SessionEnd", description="notes that the session is over and can be learned from", timeout=1),
)


def make_hook_entries(events: Collection[str], python: str, home: Path) -> list[ConfigEntry]:
    """Return the entries for these hooks in Claude Code's settings."""
    return [
        ConfigEntry(
            path=("hooks", one.event),
            value={
                "hooks": [
                    {"type": "command", "command": make_hook_command(one.event, python, home), "timeout": one.timeout}
                ]
            },
            is_item=True,
        )
        for one in AGENT_HOOKS
        if one.event in events
    ]


def make_hook_command(event: str, python: str, home: Path) -> str:
    """Return the shell command of a hook.

    It exits with 0 if Habitus was removed meanwhile; Python's own exit code for a missing script, 2, would block the
    agent.
    """
    _, script, _ = get_hook_invocation(python, home)
    run: Sequence[str] = (python, "-IS", script, event, str(home), python)
    return f"[ -x {shlex.quote(python)} ] && [ -r {shlex.quote(script)} ] && exec {shlex.join(run)}; exit 0"


def get_hook_invocation(python: str, home: Path) -> tuple[str, str, str]:
    """Return the interpreter, script and home that a hook is run with."""
    return python, str(Path(hook.__file__)), str(home)
