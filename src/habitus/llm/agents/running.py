"""Runs agent programs: one request in an empty folder with every failure as one line, and programs that solve a task in
a temporary home with one skill.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import assert_never

from habitus.errors import Invalid, did_you_mean
from habitus.llm.agents.program import (
    AgentProgram,
    ProgramCall,
    ProgramOutput,
    ProgramRequest,
    link_files,
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
from habitus.llm.model import (
    AssistantMessage,
    ChatMessage,
    CompletionRequest,
    ContextOverflowError,
    PersonMessage,
    ProviderError,
    TextContent,
    TokenUsage,
    ToolResultMessage,
    ToolSpec,
)
from habitus.llm.prices import compute_price
from habitus.redact import Redactor
from habitus.text import estimate_token_count, load_prompt

_PASSED_VARIABLES = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_", "TZ", "TMPDIR", "XDG_", "DBUS_SESSION_BUS_ADDRESS"),
    *("SSL_CERT_", "NODE_EXTRA_CA_CERTS", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy"),
    "no_proxy",
)
# Characters of a program's error message.
_MAX_ERROR_CHARACTERS = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgramAnswer:
    """The answer of a program, with its usage."""

    text: str
    usage: TokenUsage


async def ask_program(
    program: AgentProgram, model: str, system: str, prompt: str, environ: Mapping[str, str], patience_s: float
) -> ProgramAnswer:
    """Ask a program once; raise a one-line ProviderError with a hint on any failure."""
    async with temporary_workspace() as room:
        question = ProgramRequest(system=system, prompt=prompt, model=model, workspace=room, environ=environ)
        call = await asyncio.to_thread(program.build_call, question)
        (empty := room / "empty").mkdir()
        return await run_call(program, question, call, empty, patience_s)


@asynccontextmanager
async def temporary_workspace() -> AsyncIterator[Path]:
    """Create a temporary folder that is removed afterwards."""
    room = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="habitus-ask-"))
    try:
        yield room
    finally:
        await asyncio.to_thread(shutil.rmtree, room, ignore_errors=True)


async def run_call(
    program: AgentProgram, question: ProgramRequest, call: ProgramCall, cwd: Path, patience_s: float
) -> ProgramAnswer:
    """Run a program with few of the user's variables, and parse its answer."""
    code, written, complaint = await _run_program(program, call, cwd, question.environ, patience_s)
    output = await asyncio.to_thread(program.parse_output, written, question)
    if output.problem or code != 0 or not output.text.strip():
        raise _explain_failure(program, output.problem or complaint.strip() or written.strip(), code)
    return ProgramAnswer(text=output.text, usage=_complete_usage(program, question, output))


async def _run_program(
    program: AgentProgram, call: ProgramCall, cwd: Path, environ: Mapping[str, str], patience_s: float
) -> tuple[int, str, str]:
    kept = (*_PASSED_VARIABLES, *program.variables)
    mine = {key: value for key, value in environ.items() if _is_passed_variable(key, kept)}
    try:
        process = await asyncio.create_subprocess_exec(
            shutil.which(program.command, path=environ.get("PATH")) or program.command,
            *call.arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=cwd,
            env={**mine, **call.environ, "NO_COLOR": "1"},
            # A process group of its own, to kill the program's children with it.
            start_new_session=True,
        )
    except OSError as error:
        raise _explain_start_failure(program, error) from error
    try:
        async with asyncio.timeout(patience_s):
            written, complaint = await process.communicate(call.stdin.encode())
    except TimeoutError:
        hint = "Set model_silence higher, or name a faster model."
        raise ProviderError(f"{program.title} gave no answer in {patience_s:g} seconds. {hint}") from None
    finally:
        await _kill_process_group(process)
    return process.returncode or 0, written.decode("utf-8", "replace"), complaint.decode("utf-8", "replace")


def _is_passed_variable(variable: str, kept: tuple[str, ...]) -> bool:
    return any(variable.startswith(each) if each.endswith("_") else variable == each for each in kept)


async def _kill_process_group(process: asyncio.subprocess.Process) -> None:
    """Kill the program with everything it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def _explain_start_failure(program: AgentProgram, error: OSError) -> ProviderError:
    if error.errno == errno.E2BIG:
        return ContextOverflowError(f"The request is longer than a command line of {program.title} can be.")
    if isinstance(error, FileNotFoundError):
        return ProviderError(f"{program.title} is not here any more. Install it: {program.install}")
    return ProviderError(f"{program.title} can't be started: {error.strerror}. Try it by hand: {program.command}")


_SIGN_IN = re.compile(
    r"not logged in|/login|log ?in\b|sign(?:ed)? ?in|unauthori[sz]ed|\b401\b|\bauth\b|authenticat|api[ _-]?key|expired"
    r"|credential",
    re.IGNORECASE,
)
_LIMIT = re.compile(
    r"\b429\b|\b529\b|rate.?limit|limit (?:reached|exceeded)|(?:usage|retry|\bhit your) limit|quota"
    r"|out of credit|credit balance|overloaded",
    re.IGNORECASE,
)
_OVERFLOW = re.compile(r"prompt is too long|context (?:length|window)|too many tokens|input token count", re.IGNORECASE)
_OPTION = re.compile(r"unknown (?:option|argument)|unexpected argument|unrecognized (?:option|argument)", re.IGNORECASE)
_MODEL = re.compile(r"model\b.{0,80}(?:not found|not exist|not supported|unknown|invalid)|unknown model", re.IGNORECASE)


def _explain_failure(program: AgentProgram, problem: str, code: int) -> ProviderError:
    said = _shorten_to_line(problem) or f"nothing, with exit code {code}"
    if _OVERFLOW.search(said):
        return ContextOverflowError(f"The request is larger than {program.title} can read: {said}.")
    for pattern, what, hint in (
        (_LIMIT, "has reached a limit", "Wait until it is over, or set another model."),
        (_OPTION, "does not know an option that is needed", f"Bring it up to date: {program.install}"),
        (_MODEL, "has no such model", f"Name another: {program.name}:MODEL, or {program.name} for its own choice."),
        (_SIGN_IN, "is not signed in, or no longer", f"Sign in: {program.sign_in}."),
    ):
        if pattern.search(said):
            return ProviderError(f"{program.title} {what}: {said}. {hint}")
    return ProviderError(f"{program.title} gave no answer: {said}. Try it by hand: {program.command}")


def _shorten_to_line(problem: str) -> str:
    lines = [line for line in problem.splitlines() if line.strip()]
    line = " ".join(Redactor().redact(" ".join(lines[-5:])[: _MAX_ERROR_CHARACTERS * 8]).text.split())
    return (line if len(line) <= _MAX_ERROR_CHARACTERS else line[: _MAX_ERROR_CHARACTERS - 1] + "…").rstrip(".")


def _complete_usage(program: AgentProgram, question: ProgramRequest, output: ProgramOutput) -> TokenUsage:
    """Return the reported usage; missing token counts are estimated, and a missing cost comes from the price list."""
    counted = TokenUsage(
        input_tokens=estimate_token_count(question.full_prompt), output_tokens=estimate_token_count(output.text)
    )
    usage = output.usage if output.usage is not None else counted
    if usage.cost is not None:
        return usage
    return replace(usage, cost=compute_price(usage, question.model or output.model, provider=program.price_provider))


_NO_IMAGE = "[An image, which can't be shown here.]"


def build_system_prompt(ask: CompletionRequest) -> str:
    """Return the system prompt, with the schema of the answer if there is one."""
    if ask.schema is None:
        return ask.system
    return f"{ask.system}\n\n{load_prompt('llm', 'agent-one-json').format(schema=to_json(dict(ask.schema)))}".strip()


def add_tools_to_prompt(system: str, tools: tuple[ToolSpec, ...]) -> str:
    """Return the system prompt with a list of the tools that the answer may call."""
    listed = [{"tool": one.name, "description": one.description, "arguments": dict(one.parameters)} for one in tools]
    return f"{system}\n\n{load_prompt('llm', 'agent-calls').format(tools=chr(10).join(map(to_json, listed)))}".strip()


def build_prompt(ask: CompletionRequest) -> str:
    """Return a single request as it is; a longer conversation with the role of each message."""
    if len(ask.messages) == 1 and isinstance(ask.messages[0], PersonMessage):
        return _render_message(ask.messages[0])
    return "\n\n".join(
        [
            *(f"<{_get_role_tag(one)}>\n{_render_message(one)}\n</{_get_role_tag(one)}>" for one in ask.messages),
            load_prompt("llm", "agent-go-on"),
        ]
    )


def _get_role_tag(message: ChatMessage) -> str:
    match message:
        case PersonMessage():
            return "asked"
        case AssistantMessage():
            return "you-answered"
        case ToolResultMessage():
            return "result"
        case never:
            assert_never(never)


def _render_message(message: ChatMessage) -> str:
    match message:
        case PersonMessage(parts=parts):
            return "\n\n".join(part.text if isinstance(part, TextContent) else _NO_IMAGE for part in parts)
        case AssistantMessage(text=text, calls=()):
            return text
        case AssistantMessage(text=text, calls=calls):
            asked = [
                {"id": call.id, "tool": call.name, "arguments": _parse_arguments(call.arguments)} for call in calls
            ]
            return to_json({"text": text, "calls": asked})
        case ToolResultMessage(call=call, tool=tool, content=content, failed=failed, images=images):
            shown = "\n".join([content, *[_NO_IMAGE] * len(images)])
            return f"{tool} ({call}){' failed' if failed else ''}:\n{shown}"
        case never:
            assert_never(never)


def _parse_arguments(arguments: str) -> object:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


@dataclass(frozen=True, kw_only=True, slots=True)
class SolverProgram:
    """An agent program that solves tasks; `build_call` is told whether it may write files and run commands."""

    program: AgentProgram
    build_call: Callable[[ProgramRequest, bool], ProgramCall]
    # The folder in its home with the skills it reads.
    skills: str
    # A pattern for the transcripts it writes there.
    transcripts: str
    powers: str = "nothing but its own judgement holds its commands in that folder"
    # Until a real binary was tried.
    is_experimental: bool = True


def find_solver(name: str) -> SolverProgram:
    """Return the solver of a name such as `claude-code` or `claude-code:MODEL`; raise Invalid for an unknown one."""
    if (found := SOLVERS.get(name.partition(":")[0])) is not None:
        return found
    near = did_you_mean(name, SOLVERS)
    raise Invalid(f"'{name}' solves no tasks.", hint=near or f"These do: {', '.join(SOLVERS)}; or leave it to ours.")


def _build_claude_solver_call(question: ProgramRequest, may_act: bool) -> ProgramCall:
    own = question.workspace / ".claude"
    link_files(question.get_user_folder("CLAUDE_CONFIG_DIR", ".claude"), own, ".credentials.json")
    tools = ("Skill", "Read", "Glob", "Grep", *(("Write", "Edit", "Bash") if may_act else ()))
    allowed = ("Skill", *(("Bash",) if may_act else ()))
    return ProgramCall(
        arguments=(
            *("-p", "--output-format", "json", "--strict-mcp-config", "--setting-sources", "user"),
            *("--tools", ",".join(tools), "--allowedTools", ",".join(allowed)),
            *(("--permission-mode", "acceptEdits") if may_act else ()),
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


def _build_codex_solver_call(question: ProgramRequest, may_act: bool) -> ProgramCall:
    own = create_codex_home(question, {"features": dict.fromkeys(_DISABLED_SOLVER_FEATURES, False)})
    held = ("--skip-git-repo-check", "--ignore-rules", "--sandbox", "workspace-write" if may_act else "read-only")
    return ProgramCall(
        arguments=("exec", "--json", *held, *question.list_model_options(), "-"),
        stdin=question.prompt,
        environ={"HOME": str(question.workspace), "CODEX_HOME": str(own)},
    )


def _build_gemini_solver_call(question: ProgramRequest, may_act: bool) -> ProgramCall:
    environ = create_gemini_home(
        question, {} if may_act else {"tools": {"exclude": ["run_shell_command", "write_file"]}}
    )
    alone = ("--skip-trust", "--approval-mode", "yolo", "-e", "none")
    return ProgramCall(
        arguments=("-p", "", "-o", "json", *alone, *question.list_model_options("-m")),
        stdin=question.prompt,
        environ=environ,
    )


def _build_opencode_solver_call(question: ProgramRequest, may_act: bool) -> ProgramCall:
    refused = {} if may_act else {"edit": "deny", "bash": "deny"}
    call = build_opencode_call(
        question, {"mode": "primary", "permission": {"*": "allow", "webfetch": "deny", **refused}}
    )
    return replace(call, environ={**call.environ, "HOME": str(question.workspace)})


def _build_copilot_solver_call(question: ProgramRequest, may_act: bool) -> ProgramCall:
    tools = () if may_act else ("--deny-tool", "shell", "--deny-tool", "write")
    call = build_copilot_call(question, "--allow-all-tools", *tools)
    return replace(call, environ={**call.environ, "HOME": str(question.workspace)})


def _build_pi_solver_call(question: ProgramRequest, may_act: bool) -> ProgramCall:
    own = question.workspace / "pi"
    link_files(question.get_user_folder("PI_CODING_AGENT_DIR", ".pi/agent"), own, "auth.json", "models.json")
    kept = ("defaultProvider", "defaultModel", "defaultThinkingLevel")
    theirs = read_json_file(question.get_user_folder("PI_CODING_AGENT_DIR", ".pi/agent") / "settings.json")
    write_text_file(own / "settings.json", json.dumps({key: theirs[key] for key in kept if key in theirs}))
    tools = ("read", "grep", "find", "ls", *(("write", "edit", "bash") if may_act else ()))
    without = ("context-files", "extensions", "prompt-templates", "themes")
    return ProgramCall(
        arguments=(
            *("-p", "--mode", "json", *(f"--no-{each}" for each in without)),
            *("--tools", ",".join(tools), *question.list_model_options()),
        ),
        stdin=question.prompt,
        environ={
            "HOME": str(question.workspace),
            "PI_CODING_AGENT_DIR": str(own),
            "PI_OFFLINE": "1",
            "PI_TELEMETRY": "0",
        },
    )


SOLVERS: Mapping[str, SolverProgram] = {
    one.program.name: one
    for one in (
        SolverProgram(
            program=PROGRAMS["claude-code"],
            build_call=_build_claude_solver_call,
            skills=".claude/skills",
            transcripts=".claude/projects/*/*.jsonl",
            is_experimental=False,
        ),
        SolverProgram(
            program=PROGRAMS["codex"],
            build_call=_build_codex_solver_call,
            skills=".agents/skills",
            transcripts="codex/sessions/**/rollout-*.jsonl",
            powers="its own sandbox holds its commands in that folder",
        ),
        SolverProgram(
            program=PROGRAMS["gemini-cli"],
            build_call=_build_gemini_solver_call,
            skills=".gemini/skills",
            transcripts=".gemini/tmp/*/chats/session-*.json*",
        ),
        SolverProgram(
            program=PROGRAMS["opencode"],
            build_call=_build_opencode_solver_call,
            skills="config/opencode/skills",
            transcripts="data/opencode/opencode*.db",
        ),
        SolverProgram(
            program=PROGRAMS["copilot"],
            build_call=_build_copilot_solver_call,
            skills="copilot/skills",
            transcripts="copilot/session-state/*/events.jsonl",
        ),
        SolverProgram(
            program=PROGRAMS["pi"],
            build_call=_build_pi_solver_call,
            skills="pi/skills",
            transcripts="pi/sessions/*/*.jsonl",
        ),
    )
}
