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
from habitus.hosts.editing import Entry, Format

# The name of our server in every agent's config.
NAME = "habitus"
_UNSEEN = "its files are known from third parties only"


class Scope(StrEnum):
    """Whether a config applies to the user or to one project."""

    USER = "user"  # in every project of the user
    PROJECT = "project"  # for everyone in this project


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """An agent and its files.

    A user's paths begin with `~`, a project's are relative to its root; the first existing one counts.
    """

    name: str
    title: str
    format: Format = Format.JSON
    # Empty if it does not support MCP, as far as known.
    config: Mapping[Scope, tuple[str, ...]] = field(default_factory=dict)
    servers: str = ""  # the key of the mapping of servers
    entry: Mapping[str, Any] = field(default_factory=dict)  # further keys of a server's entry
    command_key: str = "command"
    is_one_list: bool = False  # command and arguments in one list
    versions: tuple[str, tuple[int, ...]] = ("version", (1,))  # a key and its known values
    # The environment variable that moves its folder, and the new paths of its files below that.
    variable: str = ""
    moves: Mapping[str, str] = field(default_factory=dict)
    instructions: Mapping[Scope, str] = field(default_factory=dict)
    skills: Mapping[Scope, str] = field(default_factory=dict)  # the folder we write to
    reads: Mapping[Scope, tuple[str, ...]] = field(default_factory=dict)  # all folders it reads, in order of precedence
    listing_chars: int = 0  # of all descriptions together; 0 if unknown
    description_chars: int = 0
    # One of these folders exists if the agent is used.
    marks: tuple[str, ...] = ()
    transcripts_in: str = ""
    patterns: tuple[str, ...] = ("**/*.jsonl",)  # of transcripts; the first that matches any counts
    follows_links: bool = True
    hooks: Mapping[Scope, str] = field(default_factory=dict)  # the file with the hooks
    doubts: Mapping[Scope, str] = field(default_factory=dict)  # why it is experimental
    notes: Mapping[Scope, str] = field(default_factory=dict)  # steps left to the user

    def server(self, command: Sequence[str]) -> dict[str, Any]:
        """Return the config entry that starts our server."""
        given: dict[str, Any] = {"command": list(command)} if self.is_one_list else {}
        return {**self.entry, **(given or {self.command_key: command[0], "args": list(command[1:])})}

    def folders(self, scope: Scope) -> tuple[str, ...]:
        """Return the folders in which the agent looks for skills; the first one wins."""
        own = (self.skills[scope],) if scope in self.skills else ()
        return self.reads.get(scope, own)

    def is_used(self, environ: Mapping[str, str], user_home: Path) -> bool:
        """Whether the agent has left files on this machine."""
        return any(self.path(mark, environ, user_home, user_home).is_dir() for mark in self.marks)

    def transcripts(self, environ: Mapping[str, str], user_home: Path) -> Iterator[Path]:
        """Yield the transcripts of the first pattern that matches any."""
        folder = self.path(self.transcripts_in, environ, user_home, user_home)
        for pattern in self.patterns if folder.is_dir() else ():
            if found := sorted(path for path in folder.glob(pattern) if path.is_file()):
                yield from found
                return

    def path(self, written: str, environ: Mapping[str, str], user_home: Path, root: Path) -> Path:
        """Return the location of a path from this table on this machine."""
        folder = environ.get(self.variable, "") if self.variable else ""
        for prefix, below in self.moves.items() if folder else ():
            if written == prefix or written.startswith(f"{prefix}/"):
                return Path(folder) / below / written[len(prefix) + 1 :]
        return user_home / written[2:] if written.startswith("~/") else root / written

    def config_file(self, scope: Scope, environ: Mapping[str, str], user_home: Path, root: Path) -> Path:
        """Return the first existing config file, or the first possible one; `Invalid` if the scope has none."""
        if scope not in self.config:
            there = ", ".join(self.config)
            raise Invalid(f"{self.title} has no settings for a {scope}.", hint=f"It has them for a {there}.")
        places = [self.path(one, environ, user_home, root) for one in self.config[scope]]
        return next((place for place in places if place.exists()), places[0])


def _both(text: str) -> dict[Scope, str]:
    return dict.fromkeys(Scope, text)


_CODE = "~/Library/Application Support/Code/User" if sys.platform == "darwin" else "~/.config/Code/User"
_CLINE, _ROO = "globalStorage/saoudrizwan.claude-dev", "globalStorage/rooveterinaryinc.roo-cline"
_IN_GIT = "The file belongs to the project, and names a path of this machine: think before you commit it."

HOSTS: Mapping[str, Host] = {
    host.name: host
    for host in (
        Host(
            name="claude-code",
            title="Claude Code",
            format=Format.JSON,
            config={Scope.USER: ("~/.claude.json",), Scope.PROJECT: (".mcp.json",)},
            servers="mcpServers",
            # Claude Code waits only for servers with alwaysLoad before the first prompt.
            entry={"type": "stdio", "alwaysLoad": True},
            variable="CLAUDE_CONFIG_DIR",
            moves={"~/.claude.json": ".claude.json", "~/.claude": "."},
            instructions={Scope.USER: "~/.claude/CLAUDE.md", Scope.PROJECT: "CLAUDE.md"},
            skills={Scope.USER: "~/.claude/skills", Scope.PROJECT: ".claude/skills"},
            listing_chars=8_000,
            description_chars=1_536,
            marks=("~/.claude",),
            transcripts_in="~/.claude/projects",
            # The user's own hooks do not belong in the file that a team shares.
            hooks={Scope.USER: "~/.claude/settings.json", Scope.PROJECT: ".claude/settings.local.json"},
            notes={Scope.PROJECT: f"{_IN_GIT} Claude Code asks whether you approve of the server."},
        ),
        Host(
            name="codex",
            title="Codex",
            format=Format.TOML,
            config={Scope.USER: ("~/.codex/config.toml",), Scope.PROJECT: (".codex/config.toml",)},
            servers="mcp_servers",
            entry={},
            variable="CODEX_HOME",
            moves={"~/.codex": "."},
            instructions={Scope.USER: "~/.codex/AGENTS.md", Scope.PROJECT: "AGENTS.md"},
            skills={Scope.USER: "~/.agents/skills", Scope.PROJECT: ".agents/skills"},
            listing_chars=8_000,
            description_chars=1_024,
            reads={
                Scope.USER: ("~/.agents/skills", "~/.codex/skills"),
                Scope.PROJECT: (".agents/skills", ".codex/skills"),
            },
            marks=("~/.codex",),
            transcripts_in="~/.codex/sessions",
            patterns=("**/rollout-*.jsonl*",),
            notes={Scope.PROJECT: f"{_IN_GIT} Codex reads it only in projects that you trust."},
        ),
        Host(
            name="cursor",
            title="Cursor",
            format=Format.JSONC,
            config={Scope.USER: ("~/.cursor/mcp.json",), Scope.PROJECT: (".cursor/mcp.json",)},
            servers="mcpServers",
            entry={},
            instructions={Scope.PROJECT: "AGENTS.md"},
            skills={Scope.USER: "~/.cursor/skills", Scope.PROJECT: ".cursor/skills"},
            follows_links=False,
            marks=("~/.cursor",),
            transcripts_in="~/.cursor/projects",
            patterns=("*/agent-transcripts/**/*.jsonl",),
            doubts=_both(_UNSEEN),
            notes=_both("Switch the server on in Cursor's settings."),
        ),
        Host(
            name="gemini-cli",
            title="Gemini CLI",
            format=Format.JSONC,
            config={Scope.USER: ("~/.gemini/settings.json",), Scope.PROJECT: (".gemini/settings.json",)},
            servers="mcpServers",
            entry={},
            versions=("$version", (1, 2)),
            instructions={Scope.USER: "~/.gemini/GEMINI.md", Scope.PROJECT: "GEMINI.md"},
            skills={Scope.USER: "~/.gemini/skills", Scope.PROJECT: ".gemini/skills"},
            reads={
                Scope.USER: ("~/.agents/skills", "~/.gemini/skills"),
                Scope.PROJECT: (".agents/skills", ".gemini/skills"),
            },
            marks=("~/.gemini",),
            transcripts_in="~/.gemini/tmp",
            patterns=("*/chats/session-*.json*",),
            notes={Scope.PROJECT: _IN_GIT},
        ),
        Host(
            name="opencode",
            title="opencode",
            format=Format.JSONC,
            config={
                Scope.USER: ("~/.config/opencode/opencode.json", "~/.config/opencode/opencode.jsonc"),
                Scope.PROJECT: ("opencode.json", "opencode.jsonc"),
            },
            servers="mcp",
            # In milliseconds; 5,000 are too few for our first start.
            entry={"type": "local", "enabled": True, "timeout": 30_000},
            is_one_list=True,
            variable="XDG_CONFIG_HOME",
            moves={"~/.config": "."},
            instructions={Scope.USER: "~/.config/opencode/AGENTS.md", Scope.PROJECT: "AGENTS.md"},
            skills={Scope.USER: "~/.config/opencode/skills", Scope.PROJECT: ".opencode/skills"},
            reads={
                Scope.USER: ("~/.config/opencode/skills", "~/.claude/skills", "~/.agents/skills"),
                Scope.PROJECT: (".opencode/skills", ".claude/skills", ".agents/skills"),
            },
            description_chars=1_024,
            marks=("~/.config/opencode", "~/.local/share/opencode"),
            transcripts_in="~/.local/share/opencode",
            patterns=("opencode.db", "storage/session/**/*.json"),
            notes={Scope.PROJECT: _IN_GIT},
        ),
        Host(
            name="vscode",
            title="VS Code",
            format=Format.JSONC,
            config={Scope.USER: (f"{_CODE}/mcp.json",), Scope.PROJECT: (".vscode/mcp.json",)},
            servers="servers",
            entry={"type": "stdio"},
            instructions={Scope.PROJECT: "AGENTS.md"},
            skills={Scope.USER: "~/.copilot/skills", Scope.PROJECT: ".github/skills"},
            description_chars=1_024,
            marks=(f"{_CODE}/workspaceStorage",),
            transcripts_in=f"{_CODE}/workspaceStorage",
            patterns=("*/chatSessions/*.json*",),
            doubts={Scope.USER: "where its profiles lie is known from third parties only"},
            notes={
                Scope.USER: "VS Code asks whether you trust the server.",
                Scope.PROJECT: f"{_IN_GIT} VS Code asks whether you trust the server.",
            },
        ),
        Host(
            name="copilot",
            title="Copilot CLI",
            config={Scope.USER: ("~/.copilot/mcp-config.json",)},
            servers="mcpServers",
            entry={"type": "local", "tools": ["*"]},
            variable="COPILOT_HOME",
            moves={"~/.copilot": "."},
            skills={Scope.USER: "~/.copilot/skills", Scope.PROJECT: ".github/skills"},
            description_chars=1_024,
            marks=("~/.copilot/session-state",),
            transcripts_in="~/.copilot/session-state",
            patterns=("*/events.jsonl",),
            doubts={Scope.USER: "its settings are known from its documentation only"},
        ),
        Host(
            name="goose",
            title="Goose",
            format=Format.YAML,
            config={Scope.USER: ("~/.config/goose/config.yaml",)},
            servers="extensions",
            entry={"enabled": True, "name": NAME, "type": "stdio", "envs": {}, "timeout": 300},
            command_key="cmd",
            variable="GOOSE_PATH_ROOT",
            moves={"~/.config/goose": "config", "~/.local/share/goose": "data"},
            skills={Scope.USER: "~/.config/goose/skills", Scope.PROJECT: ".goose/skills"},
            marks=("~/.config/goose", "~/.local/share/goose"),
            transcripts_in="~/.local/share/goose/sessions",
            patterns=("sessions.db",),
            doubts={Scope.USER: "its settings are known from its source only"},
        ),
        Host(
            name="pi",
            title="Pi",
            variable="PI_CODING_AGENT_DIR",
            moves={"~/.pi/agent": "."},
            skills={Scope.USER: "~/.pi/agent/skills", Scope.PROJECT: ".pi/skills"},
            marks=("~/.pi/agent",),
            transcripts_in="~/.pi/agent/sessions",
        ),
        Host(
            name="amp",
            title="Amp",
            marks=("~/.local/share/amp",),
            transcripts_in="~/.local/share/amp/threads",
            patterns=("*.json",),
        ),
        Host(
            name="cline",
            title="Cline",
            marks=(f"{_CODE}/{_CLINE}",),
            transcripts_in=f"{_CODE}/{_CLINE}/tasks",
            patterns=("*/api_conversation_history.json",),
        ),
        Host(
            name="roo",
            title="Roo Code",
            marks=(f"{_CODE}/{_ROO}",),
            transcripts_in=f"{_CODE}/{_ROO}/tasks",
            patterns=("*/api_conversation_history.json",),
        ),
        Host(
            name="zed",
            title="Zed",
            marks=("~/.local/share/zed/threads",),
            transcripts_in="~/.local/share/zed/threads",
            patterns=("threads.db",),
        ),
    )
}

# Agents whose transcripts can be read.
STUDIED: Mapping[str, Host] = {name: one for name, one in HOSTS.items() if one.transcripts_in}
# Agents that can start our server.
CONNECTED: Mapping[str, Host] = {name: one for name, one in HOSTS.items() if one.config}
# Agents that read folders of skills.
SYNCED: Mapping[str, Host] = {name: one for name, one in HOSTS.items() if one.skills}


def host(name: str, among: Mapping[str, Host] = HOSTS) -> Host:
    """Return an agent by name; `Invalid` if it is not in `among`, `NotFound` if it is unknown."""
    if name in among:
        return among[name]
    there = f"There are: {', '.join(among)}."
    if name in HOSTS:
        raise Invalid(f"We know no way to do that with {HOSTS[name].title}.", hint=there)
    raise NotFound(f"There is no agent '{name}'.", hint=did_you_mean(name, among) or there)


@dataclass(frozen=True, kw_only=True, slots=True)
class Hook:
    """A hook that can be installed; `event` is Claude Code's name for it, `timeout` is in seconds."""

    event: str
    does: str
    timeout: int


# None has a matcher, because VS Code runs these hooks too and ignores matchers.
HOOKS: tuple[Hook, ...] = (
    Hook(event="SessionStart", does="tells it your rules, what is new and what waits for you", timeout=15),
    Hook(event="UserPromptSubmit", does="names lessons and skills that fit what you ask, in 300 tokens", timeout=5),
    Hook(event="PostToolUseFailure", does="tells it what helped the last time a call failed like that", timeout=5),
    Hook(event="Stop", does="notes where the transcript lies, to learn from later", timeout=2),
    Hook(event="SessionEnd", does="notes that the session is over and can be learned from", timeout=1),
)


def entries(events: Collection[str], python: str, home: Path) -> list[Entry]:
    """Return the entries for these hooks in Claude Code's settings."""
    return [
        Entry(
            path=("hooks", one.event),
            value={"hooks": [{"type": "command", "command": command(one.event, python, home), "timeout": one.timeout}]},
            is_item=True,
        )
        for one in HOOKS
        if one.event in events
    ]


def command(event: str, python: str, home: Path) -> str:
    """Return the shell command of a hook.

    It exits with 0 if Habitus was removed meanwhile; Python's own exit code for a missing script, 2, would block the
    agent.
    """
    _, script, _ = program(python, home)
    run: Sequence[str] = (python, "-IS", script, event, str(home), python)
    return f"[ -x {shlex.quote(python)} ] && [ -r {shlex.quote(script)} ] && exec {shlex.join(run)}; exit 0"


def program(python: str, home: Path) -> tuple[str, str, str]:
    """Return the interpreter, script and home that a hook is run with."""
    return python, str(Path(hook.__file__)), str(home)
