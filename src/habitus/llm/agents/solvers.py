"""Programs that solve a task themselves, as data: how each is started in a throw-away home with one skill.

Of the person it has the sign-in and the choice of a model; no server, hook, plugin or memory of theirs comes along.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from habitus.errors import Invalid, did_you_mean
from habitus.llm.agents.program import Call, Program, Question, link, read_json, write_text
from habitus.llm.agents.programs import CLAUDE_QUIET, PROGRAMS, codex_home, copilot_call, gemini_home, opencode_call


@dataclass(frozen=True, kw_only=True, slots=True)
class SolverProgram:
    """`ask` is given whether files may be written and commands run in the folder of the task."""

    program: Program
    ask: Callable[[Question, bool], Call]
    skills: str  # the folder of its home with the skills that it reads
    transcripts: str  # a pattern for what it writes down there
    powers: str  # what holds its commands in
    is_experimental: bool = True  # until a real binary was tried


def solver_named(name: str) -> SolverProgram:
    """The program that a name means: `claude-code`, or `claude-code:MODEL`."""
    if (found := SOLVERS.get(name.partition(":")[0])) is not None:
        return found
    near = did_you_mean(name, SOLVERS)
    raise Invalid(f"'{name}' solves no tasks.", mend=near or f"These do: {', '.join(SOLVERS)}; or leave it to ours.")


def _start_claude(question: Question, may_act: bool) -> Call:
    own = question.room / ".claude"
    link(question.folder("CLAUDE_CONFIG_DIR", ".claude"), own, ".credentials.json")
    tools = ("Skill", "Read", "Glob", "Grep", *(("Write", "Edit", "Bash") if may_act else ()))
    allowed = ("Skill", *(("Bash",) if may_act else ()))
    return Call(
        arguments=(
            *("-p", "--output-format", "json", "--strict-mcp-config", "--setting-sources", "user"),
            *("--tools", ",".join(tools), "--allowedTools", ",".join(allowed)),
            *(("--permission-mode", "acceptEdits") if may_act else ()),
            *question.options(),
        ),
        stdin=question.prompt,
        environ={**CLAUDE_QUIET, "HOME": str(question.room), "CLAUDE_CONFIG_DIR": str(own)},
    )


_CODEX_OFF = ("hooks", "apps", "plugins", "memories", "multi_agent", "tool_suggest", "browser_use", "computer_use")


def _start_codex(question: Question, may_act: bool) -> Call:
    own = codex_home(question, {"features": dict.fromkeys(_CODEX_OFF, False)})
    held = ("--skip-git-repo-check", "--ignore-rules", "--sandbox", "workspace-write" if may_act else "read-only")
    return Call(
        arguments=("exec", "--json", *held, *question.options(), "-"),
        stdin=question.prompt,
        environ={"HOME": str(question.room), "CODEX_HOME": str(own)},
    )


def _start_gemini(question: Question, may_act: bool) -> Call:
    environ = gemini_home(question, {} if may_act else {"tools": {"exclude": ["run_shell_command", "write_file"]}})
    alone = ("--skip-trust", "--approval-mode", "yolo", "-e", "none")
    return Call(
        arguments=("-p", "", "-o", "json", *alone, *question.options("-m")), stdin=question.prompt, environ=environ
    )


def _start_opencode(question: Question, may_act: bool) -> Call:
    refused = {} if may_act else {"edit": "deny", "bash": "deny"}
    call = opencode_call(question, {"mode": "primary", "permission": {"*": "allow", "webfetch": "deny", **refused}})
    return replace(call, environ={**call.environ, "HOME": str(question.room)})


def _start_copilot(question: Question, may_act: bool) -> Call:
    tools = () if may_act else ("--deny-tool", "shell", "--deny-tool", "write")
    call = copilot_call(question, "--allow-all-tools", *tools)
    return replace(call, environ={**call.environ, "HOME": str(question.room)})


def _start_pi(question: Question, may_act: bool) -> Call:
    own = question.room / "pi"
    link(question.folder("PI_CODING_AGENT_DIR", ".pi/agent"), own, "auth.json", "models.json")
    kept = ("defaultProvider", "defaultModel", "defaultThinkingLevel")
    theirs = read_json(question.folder("PI_CODING_AGENT_DIR", ".pi/agent") / "settings.json")
    write_text(own / "settings.json", json.dumps({key: theirs[key] for key in kept if key in theirs}))
    tools = ("read", "grep", "find", "ls", *(("write", "edit", "bash") if may_act else ()))
    without = ("context-files", "extensions", "prompt-templates", "themes")
    return Call(
        arguments=(
            *("-p", "--mode", "json", *(f"--no-{each}" for each in without)),
            *("--tools", ",".join(tools), *question.options()),
        ),
        stdin=question.prompt,
        environ={"HOME": str(question.room), "PI_CODING_AGENT_DIR": str(own), "PI_OFFLINE": "1", "PI_TELEMETRY": "0"},
    )


_UNHELD = "nothing but its own judgement holds its commands in that folder"

SOLVERS: Mapping[str, SolverProgram] = {
    one.program.name: one
    for one in (
        SolverProgram(
            program=PROGRAMS["claude-code"],
            ask=_start_claude,
            skills=".claude/skills",
            transcripts=".claude/projects/*/*.jsonl",
            powers=_UNHELD,
            is_experimental=False,
        ),
        SolverProgram(
            program=PROGRAMS["codex"],
            ask=_start_codex,
            skills=".agents/skills",
            transcripts="codex/sessions/**/rollout-*.jsonl",
            powers="its own sandbox holds its commands in that folder",
        ),
        SolverProgram(
            program=PROGRAMS["gemini-cli"],
            ask=_start_gemini,
            skills=".gemini/skills",
            transcripts=".gemini/tmp/*/chats/session-*.json*",
            powers=_UNHELD,
        ),
        SolverProgram(
            program=PROGRAMS["opencode"],
            ask=_start_opencode,
            skills="config/opencode/skills",
            transcripts="data/opencode/opencode*.db",
            powers=_UNHELD,
        ),
        SolverProgram(
            program=PROGRAMS["copilot"],
            ask=_start_copilot,
            skills="copilot/skills",
            transcripts="copilot/session-state/*/events.jsonl",
            powers=_UNHELD,
        ),
        SolverProgram(
            program=PROGRAMS["pi"],
            ask=_start_pi,
            skills="pi/skills",
            transcripts="pi/sessions/*/*.jsonl",
            powers=_UNHELD,
        ),
    )
}
