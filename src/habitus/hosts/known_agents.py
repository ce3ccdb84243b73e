"""Known agents as data: where each keeps its config, skills and transcripts, and in which format.

Entries that could not be verified say so. The hooks that Claude Code can run are here too.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from habitus.errors import Invalid, NotFound, did_you_mean
from habitus.hosts import hook
from habitus.hosts.editing import ConfigEntry, ConfigFormat

# The name of our server in every agent's config.
SERVER_NAME = "habitus"
_UNVERIFIED = "its files are known from third parties only"


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

    def is_used(self, environ: Mapping[str, str], user_home: Path) -> bool:
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


def _repeat_for_both_scopes(text: str) -> dict[ConfigScope, str]:
    return dict.fromkeys(ConfigScope, text)


_VSCODE_FOLDER = "~/Library/Application Support/Code/User" if sys.platform == "darwin" else "~/.config/Code/User"
_CLINE, _ROO = "globalStorage/saoudrizwan.claude-dev", "globalStorage/rooveterinaryinc.roo-cline"
_COMMITTED_FILE_NOTE = "The file belongs to the project, and names a path of this machine: think before you commit it."

KNOWN_AGENTS: Mapping[str, KnownAgent] = {
    host.name: host
    for host in (
        KnownAgent(
            name="claude-code",
            title="Claude Code",
            format=ConfigFormat.JSON,
            config={ConfigScope.USER: ("~/.claude.json",), ConfigScope.PROJECT: (".mcp.json",)},
            servers="mcpServers",
            # Claude Code waits only for servers with alwaysLoad before the first prompt.
            entry={"type": "stdio", "alwaysLoad": True},
            variable="CLAUDE_CONFIG_DIR",
            moves={"~/.claude.json": ".claude.json", "~/.claude": "."},
            instructions={ConfigScope.USER: "~/.claude/CLAUDE.md", ConfigScope.PROJECT: "CLAUDE.md"},
            skills={ConfigScope.USER: "~/.claude/skills", ConfigScope.PROJECT: ".claude/skills"},
            listing_chars=8_000,
            description_chars=1_536,
            marks=("~/.claude",),
            transcripts_in="~/.claude/projects",
            # The user's own hooks do not belong in the file that a team shares.
            hooks={ConfigScope.USER: "~/.claude/settings.json", ConfigScope.PROJECT: ".claude/settings.local.json"},
            notes={ConfigScope.PROJECT: f"{_COMMITTED_FILE_NOTE} Claude Code asks whether you approve of the server."},
        ),
        KnownAgent(
            name="codex",
            title="Codex",
            format=ConfigFormat.TOML,
            config={ConfigScope.USER: ("~/.codex/config.toml",), ConfigScope.PROJECT: (".codex/config.toml",)},
            servers="mcp_servers",
            entry={},
            variable="CODEX_HOME",
            moves={"~/.codex": "."},
            instructions={ConfigScope.USER: "~/.codex/AGENTS.md", ConfigScope.PROJECT: "AGENTS.md"},
            skills={ConfigScope.USER: "~/.agents/skills", ConfigScope.PROJECT: ".agents/skills"},
            listing_chars=8_000,
            description_chars=1_024,
            reads={
                ConfigScope.USER: ("~/.agents/skills", "~/.codex/skills"),
                ConfigScope.PROJECT: (".agents/skills", ".codex/skills"),
            },
            marks=("~/.codex",),
            transcripts_in="~/.codex/sessions",
            patterns=("**/rollout-*.jsonl*",),
            notes={ConfigScope.PROJECT: f"{_COMMITTED_FILE_NOTE} Codex reads it only in projects that you trust."},
        ),
        KnownAgent(
            name="cursor",
            title="Cursor",
            format=ConfigFormat.JSONC,
            config={ConfigScope.USER: ("~/.cursor/mcp.json",), ConfigScope.PROJECT: (".cursor/mcp.json",)},
            servers="mcpServers",
            entry={},
            instructions={ConfigScope.PROJECT: "AGENTS.md"},
            skills={ConfigScope.USER: "~/.cursor/skills", ConfigScope.PROJECT: ".cursor/skills"},
            follows_links=False,
            marks=("~/.cursor",),
            transcripts_in="~/.cursor/projects",
            patterns=("*/agent-transcripts/**/*.jsonl",),
            experimental_reasons=_repeat_for_both_scopes(_UNVERIFIED),
            notes=_repeat_for_both_scopes("Switch the server on in Cursor's settings."),
        ),
        KnownAgent(
            name="gemini-cli",
            title="Gemini CLI",
            format=ConfigFormat.JSONC,
            config={ConfigScope.USER: ("~/.gemini/settings.json",), ConfigScope.PROJECT: (".gemini/settings.json",)},
            servers="mcpServers",
            entry={},
            versions=("$version", (1, 2)),
            instructions={ConfigScope.USER: "~/.gemini/GEMINI.md", ConfigScope.PROJECT: "GEMINI.md"},
            skills={ConfigScope.USER: "~/.gemini/skills", ConfigScope.PROJECT: ".gemini/skills"},
            reads={
                ConfigScope.USER: ("~/.agents/skills", "~/.gemini/skills"),
                ConfigScope.PROJECT: (".agents/skills", ".gemini/skills"),
            },
            marks=("~/.gemini",),
            transcripts_in="~/.gemini/tmp",
            patterns=("*/chats/session-*.json*",),
            notes={ConfigScope.PROJECT: _COMMITTED_FILE_NOTE},
        ),
        KnownAgent(
            name="opencode",
            title="opencode",
            format=ConfigFormat.JSONC,
            config={
                ConfigScope.USER: ("~/.config/opencode/opencode.json", "~/.config/opencode/opencode.jsonc"),
                ConfigScope.PROJECT: ("opencode.json", "opencode.jsonc"),
            },
            servers="mcp",
            # In milliseconds; 5,000 are too few for our first start.
            entry={"type": "local", "enabled": True, "timeout": 30_000},
            is_one_list=True,
            variable="XDG_CONFIG_HOME",
            moves={"~/.config": "."},
            instructions={ConfigScope.USER: "~/.config/opencode/AGENTS.md", ConfigScope.PROJECT: "AGENTS.md"},
            skills={ConfigScope.USER: "~/.config/opencode/skills", ConfigScope.PROJECT: ".opencode/skills"},
            reads={
                ConfigScope.USER: ("~/.config/opencode/skills", "~/.claude/skills", "~/.agents/skills"),
                ConfigScope.PROJECT: (".opencode/skills", ".claude/skills", ".agents/skills"),
            },
            description_chars=1_024,
            marks=("~/.config/opencode", "~/.local/share/opencode"),
            transcripts_in="~/.local/share/opencode",
            patterns=("opencode.db", "storage/session/**/*.json"),
            notes={ConfigScope.PROJECT: _COMMITTED_FILE_NOTE},
        ),
        KnownAgent(
            name="vscode",
            title="VS Code",
            format=ConfigFormat.JSONC,
            config={ConfigScope.USER: (f"{_VSCODE_FOLDER}/mcp.json",), ConfigScope.PROJECT: (".vscode/mcp.json",)},
            servers="servers",
            entry={"type": "stdio"},
            instructions={ConfigScope.PROJECT: "AGENTS.md"},
            skills={ConfigScope.USER: "~/.copilot/skills", ConfigScope.PROJECT: ".github/skills"},
            description_chars=1_024,
            marks=(f"{_VSCODE_FOLDER}/workspaceStorage",),
            transcripts_in=f"{_VSCODE_FOLDER}/workspaceStorage",
            patterns=("*/chatSessions/*.json*",),
            experimental_reasons={ConfigScope.USER: "where its profiles lie is known from third parties only"},
            notes={
                ConfigScope.USER: "VS Code asks whether you trust the server.",
                ConfigScope.PROJECT: f"{_COMMITTED_FILE_NOTE} VS Code asks whether you trust the server.",
            },
        ),
        KnownAgent(
            name="copilot",
            title="Copilot CLI",
            config={ConfigScope.USER: ("~/.copilot/mcp-config.json",)},
            servers="mcpServers",
            entry={"type": "local", "tools": ["*"]},
            variable="COPILOT_HOME",
            moves={"~/.copilot": "."},
            skills={ConfigScope.USER: "~/.copilot/skills", ConfigScope.PROJECT: ".github/skills"},
            description_chars=1_024,
            marks=("~/.copilot/session-state",),
            transcripts_in="~/.copilot/session-state",
            patterns=("*/events.jsonl",),
            experimental_reasons={ConfigScope.USER: "its settings are known from its documentation only"},
        ),
        KnownAgent(
            name="goose",
            title="Goose",
            format=ConfigFormat.YAML,
            config={ConfigScope.USER: ("~/.config/goose/config.yaml",)},
            servers="extensions",
            entry={"enabled": True, "name": SERVER_NAME, "type": "stdio", "envs": {}, "timeout": 300},
            command_key="cmd",
            variable="GOOSE_PATH_ROOT",
            moves={"~/.config/goose": "config", "~/.local/share/goose": "data"},
            skills={ConfigScope.USER: "~/.config/goose/skills", ConfigScope.PROJECT: ".goose/skills"},
            marks=("~/.config/goose", "~/.local/share/goose"),
            transcripts_in="~/.local/share/goose/sessions",
            patterns=("sessions.db",),
            experimental_reasons={ConfigScope.USER: "its settings are known from its source only"},
        ),
        KnownAgent(
            name="pi",
            title="Pi",
            variable="PI_CODING_AGENT_DIR",
            moves={"~/.pi/agent": "."},
            skills={ConfigScope.USER: "~/.pi/agent/skills", ConfigScope.PROJECT: ".pi/skills"},
            marks=("~/.pi/agent",),
            transcripts_in="~/.pi/agent/sessions",
        ),
        KnownAgent(
            name="amp",
            title="Amp",
            marks=("~/.local/share/amp",),
            transcripts_in="~/.local/share/amp/threads",
            patterns=("*.json",),
        ),
        KnownAgent(
            name="cline",
            title="Cline",
            marks=(f"{_VSCODE_FOLDER}/{_CLINE}",),
            transcripts_in=f"{_VSCODE_FOLDER}/{_CLINE}/tasks",
            patterns=("*/api_conversation_history.json",),
        ),
        KnownAgent(
            name="roo",
            title="Roo Code",
            marks=(f"{_VSCODE_FOLDER}/{_ROO}",),
            transcripts_in=f"{_VSCODE_FOLDER}/{_ROO}/tasks",
            patterns=("*/api_conversation_history.json",),
        ),
        KnownAgent(
            name="zed",
            title="Zed",
            marks=("~/.local/share/zed/threads",),
            transcripts_in="~/.local/share/zed/threads",
            patterns=("threads.db",),
        ),
    )
}

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
    AgentHook(event="Stop", description="notes where the transcript lies, to learn from later", timeout=2),
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
    _, script, _ = get_hook_program(python, home)
    run: Sequence[str] = (python, "-IS", script, event, str(home), python)
    return f"[ -x {shlex.quote(python)} ] && [ -r {shlex.quote(script)} ] && exec {shlex.join(run)}; exit 0"


def get_hook_program(python: str, home: Path) -> tuple[str, str, str]:
    """Return the interpreter, script and home that a hook is run with."""
    return python, str(Path(hook.__file__)), str(home)
