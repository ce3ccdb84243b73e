"""Agent programs that solve a task in a temporary home with one skill."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from habitus.errors import Invalid, did_you_mean
from habitus.llm.agents.program import (
    AgentProgram,
    ProgramCall,
    ProgramRequest,
    link_user_files,
    read_json_file,
    write_text_file,
)
from habitus.llm.agents.programs import (
    PROGRAMS,
    QUIET_CLAUDE_ENVIRONMENT,
    build_copilot_call,
    build_opencode_call,
    create_codex_home,
    create_gemini_home,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SolverProgram:
    """An agent program that solves tasks. It has the same tools for every task: a task file grants none."""

    program: AgentProgram
    build_call: Callable[[ProgramRequest], ProgramCall]
    # The folder in its home with the skills it reads.
    skills: str
    # A pattern for the transcripts it writes there.
    transcripts: str
    # Its provider's hosts, for its requests and to renew its sign-in.
    hosts: tuple[str, ...]
    # The file in its home whose token is replaced when it is renewed, so an old copy would sign the person out.
    rotating_credentials: str = ""


def find_solver_program(name: str) -> SolverProgram:
    """Return the solver of a name such as `claude-code` or `claude-code:MODEL`; raise Invalid for an unknown one."""
    if (found := SOLVERS.get(name.partition(":")[0])) is not None:
        return found
    near = did_you_mean(name, SOLVERS)
    raise Invalid(f"'{name}' solves no tasks.", hint=near or f"These do: {', '.join(SOLVERS)}; or leave it to ours.")


def _build_claude_solver_call(question: ProgramRequest) -> ProgramCall:
    own = question.workspace / ".claude"
    link_user_files(question.get_user_folder("CLAUDE_CONFIG_DIR", ".claude"), own, ".credentials.json")
    return ProgramCall(
        arguments=(
            *("-p", "--output-format", "json", "--strict-mcp-config", "--setting-sources", "user"),
            *("--tools", "Skill,Read,Glob,Grep,Write,Edit,Bash", "--allowedTools", "Skill,Bash"),
            *("--permission-mode", "acceptEdits"),
            *question.list_model_options(),
        ),
        stdin=question.prompt,
        environ={**QUIET_CLAUDE_ENVIRONMENT, "HOME": str(question.workspace), "CLAUDE_CONFIG_DIR": str(own)},
    )


_DISABLED_SOLVER_FEATURES = (
    "hooks",
    "apps",
    "plugins",
    "memories",
    "multi_agent",
    "tool_suggest",
    "browser_use",
    "computer_use",
)


def _build_codex_solver_call(question: ProgramRequest) -> ProgramCall:
    own = create_codex_home(question, {"features": dict.fromkeys(_DISABLED_SOLVER_FEATURES, False)})
    sandbox = "danger-full-access" if question.is_boxed else "workspace-write"
    held = ("--skip-git-repo-check", "--ignore-rules", "--sandbox", sandbox)
    return ProgramCall(
        arguments=("exec", "--json", *held, *question.list_model_options(), "-"),
        stdin=question.prompt,
        environ={"HOME": str(question.workspace), "CODEX_HOME": str(own)},
    )


def _build_gemini_solver_call(question: ProgramRequest) -> ProgramCall:
    environ = create_gemini_home(question, {})
    alone = ("--skip-trust", "--approval-mode", "yolo", "-e", "none")
    return ProgramCall(
        arguments=("-p", "", "-o", "json", *alone, *question.list_model_options("-m")),
        stdin=question.prompt,
        environ=environ,
    )


def _build_opencode_solver_call(question: ProgramRequest) -> ProgramCall:
    call = build_opencode_call(question, {"mode": "primary", "permission": {"*": "allow", "webfetch": "deny"}})
    return replace(call, environ={**call.environ, "HOME": str(question.workspace)})


def _build_copilot_solver_call(question: ProgramRequest) -> ProgramCall:
    call = build_copilot_call(question, "--allow-all-tools")
    return replace(call, environ={**call.environ, "HOME": str(question.workspace)})


def _build_pi_solver_call(question: ProgramRequest) -> ProgramCall:
    own = question.workspace / "pi"
    link_user_files(question.get_user_folder("PI_CODING_AGENT_DIR", ".pi/agent"), own, "auth.json", "models.json")
    kept = ("defaultProvider", "defaultModel", "defaultThinkingLevel")
    theirs = read_json_file(question.get_user_folder("PI_CODING_AGENT_DIR", ".pi/agent") / "settings.json")
    write_text_file(own / "settings.json", json.dumps({key: theirs[key] for key in kept if key in theirs}))
    without = ("context-files", "extensions", "prompt-templates", "themes")
    return ProgramCall(
        arguments=(
            *("-p", "--mode", "json", *(f"--no-{each}" for each in without)),
            *("--tools", "read,grep,find,ls,write,edit,bash", *question.list_model_options()),
        ),
        stdin=question.prompt,
        environ={
            "HOME": str(question.workspace),
            "PI_CODING_AGENT_DIR": str(own),
            "PI_OFFLINE": "1",
            "PI_TELEMETRY": "0",
        },
    )


_PROVIDER_HOSTS = (
    *("api.anthropic.com", "api.openai.com", "generativelanguage.googleapis.com", "openrouter.ai", "api.groq.com"),
    *("api.mistral.ai", "api.x.ai", "api.deepseek.com", "api.cerebras.ai"),
)

SOLVERS: Mapping[str, SolverProgram] = {
    one.program.name: one
    for one in (
        SolverProgram(
            program=PROGRAMS["claude-code"],
            build_call=_build_claude_solver_call,
            skills=".claude/skills",
            transcripts=".claude/projects/*/*.jsonl",
            hosts=("api.anthropic.com", "console.anthropic.com", "platform.claude.com"),
            rotating_credentials=".claude/.credentials.json",
        ),
        SolverProgram(
            program=PROGRAMS["codex"],
            build_call=_build_codex_solver_call,
            skills=".agents/skills",
            transcripts="codex/sessions/**/rollout-*.jsonl",
            hosts=("api.openai.com", "chatgpt.com", "auth.openai.com"),
            rotating_credentials="codex/auth.json",
        ),
        SolverProgram(
            program=PROGRAMS["gemini-cli"],
            build_call=_build_gemini_solver_call,
            skills=".gemini/skills",
            transcripts=".gemini/tmp/*/chats/session-*.json*",
            hosts=("generativelanguage.googleapis.com", "cloudcode-pa.googleapis.com", "oauth2.googleapis.com"),
        ),
        SolverProgram(
            program=PROGRAMS["opencode"],
            build_call=_build_opencode_solver_call,
            skills="config/opencode/skills",
            transcripts="data/opencode/opencode*.db",
            hosts=("opencode.ai", "models.dev", *_PROVIDER_HOSTS),
        ),
        SolverProgram(
            program=PROGRAMS["copilot"],
            build_call=_build_copilot_solver_call,
            skills="copilot/skills",
            transcripts="copilot/session-state/*/events.jsonl",
            hosts=("api.github.com", "*.githubcopilot.com"),
        ),
        SolverProgram(
            program=PROGRAMS["pi"],
            build_call=_build_pi_solver_call,
            skills="pi/skills",
            transcripts="pi/sessions/*/*.jsonl",
            hosts=_PROVIDER_HOSTS,
        ),
    )
}
