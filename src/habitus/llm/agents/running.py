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
from habitus.llm.agents.program import Call, Output, Program, Question, link, read_json, write_text
from habitus.llm.agents.programs import CLAUDE_QUIET, PROGRAMS, codex_home, copilot_call, gemini_home, opencode_call
from habitus.llm.model import (
    Answered,
    Ask,
    Asked,
    ContextOverflow,
    Message,
    ProviderFault,
    Returned,
    Text,
    ToolSpec,
    Usage,
)
from habitus.llm.prices import price
from habitus.redact import Redactor
from habitus.text import prompt_text, tokens

_KEPT = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_", "TZ", "TMPDIR", "XDG_", "DBUS_SESSION_BUS_ADDRESS"),
    *("SSL_CERT_", "NODE_EXTRA_CA_CERTS", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy"),
    "no_proxy",
)
# Characters of a program's error message.
_LONGEST = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """The answer of a program, with its usage."""

    text: str
    usage: Usage


async def run(
    program: Program, model: str, system: str, prompt: str, environ: Mapping[str, str], patience_s: float
) -> Said:
    """Ask a program once; raise a one-line ProviderError with a hint on any failure."""
    async with throw_away_room() as room:
        question = Question(system=system, prompt=prompt, model=model, room=room, environ=environ)
        call = await asyncio.to_thread(program.ask, question)
        (empty := room / "empty").mkdir()
        return await start(program, question, call, empty, patience_s)


@asynccontextmanager
async def throw_away_room() -> AsyncIterator[Path]:
    """Create a temporary folder that is removed afterwards."""
    room = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="habitus-ask-"))
    try:
        yield room
    finally:
        await asyncio.to_thread(shutil.rmtree, room, ignore_errors=True)


async def start(program: Program, question: Question, call: Call, cwd: Path, patience_s: float) -> Said:
    """Run a program with few of the user's variables, and parse its answer."""
    code, written, complaint = await _run_program(program, call, cwd, question.environ, patience_s)
    output = await asyncio.to_thread(program.read, written, question)
    if output.problem or code != 0 or not output.text.strip():
        raise _fault(program, output.problem or complaint.strip() or written.strip(), code)
    return Said(text=output.text, usage=_usage(program, question, output))


async def _run_program(
    program: Program, call: Call, cwd: Path, environ: Mapping[str, str], patience_s: float
) -> tuple[int, str, str]:
    kept = (*_KEPT, *program.variables)
    mine = {key: value for key, value in environ.items() if _is_kept(key, kept)}
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
        raise _not_started(program, error) from error
    try:
        async with asyncio.timeout(patience_s):
            written, complaint = await process.communicate(call.stdin.encode())
    except TimeoutError:
        hint = "Set model_silence higher, or name a faster model."
        raise ProviderFault(f"{program.title} gave no answer in {patience_s:g} seconds. {hint}") from None
    finally:
        await _end_process(process)
    return process.returncode or 0, written.decode("utf-8", "replace"), complaint.decode("utf-8", "replace")


def _is_kept(variable: str, kept: tuple[str, ...]) -> bool:
    return any(variable.startswith(each) if each.endswith("_") else variable == each for each in kept)


async def _end_process(process: asyncio.subprocess.Process) -> None:
    """Kill the program with everything it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def _not_started(program: Program, error: OSError) -> ProviderFault:
    if error.errno == errno.E2BIG:
        return ContextOverflow(f"The request is longer than a command line of {program.title} can be.")
    if isinstance(error, FileNotFoundError):
        return ProviderFault(f"{program.title} is not here any more. Install it: {program.install}")
    return ProviderFault(f"{program.title} can't be started: {error.strerror}. Try it by hand: {program.command}")


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


def _fault(program: Program, problem: str, code: int) -> ProviderFault:
    said = _one_line(problem) or f"nothing, with exit code {code}"
    if _OVERFLOW.search(said):
        return ContextOverflow(f"The request is larger than {program.title} can read: {said}.")
    for pattern, what, hint in (
        (_LIMIT, "has reached a limit", "Wait until it is over, or set another model."),
        (_OPTION, "does not know an option that is needed", f"Bring it up to date: {program.install}"),
        (_MODEL, "has no such model", f"Name another: {program.name}:MODEL, or {program.name} for its own choice."),
        (_SIGN_IN, "is not signed in, or no longer", f"Sign in: {program.sign_in}."),
    ):
        if pattern.search(said):
            return ProviderFault(f"{program.title} {what}: {said}. {hint}")
    return ProviderFault(f"{program.title} gave no answer: {said}. Try it by hand: {program.command}")


def _one_line(problem: str) -> str:
    lines = [line for line in problem.splitlines() if line.strip()]
    line = " ".join(Redactor().redact(" ".join(lines[-5:])[: _LONGEST * 8]).text.split())
    return (line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…").rstrip(".")


def _usage(program: Program, question: Question, output: Output) -> Usage:
    """Return the reported usage; missing token counts are estimated, and a missing cost comes from the price list."""
    counted = Usage(input_tokens=tokens(question.both), output_tokens=tokens(output.text))
    usage = output.usage if output.usage is not None else counted
    if usage.cost is not None:
        return usage
    return replace(usage, cost=price(usage, question.model or output.model, provider=program.prices_of))


_NO_IMAGE = "[An image, which can't be shown here.]"


def system_of(ask: Ask) -> str:
    """Return the system prompt, with the schema of the answer if there is one."""
    if ask.schema is None:
        return ask.system
    return f"{ask.system}\n\n{prompt_text('llm', 'agent-one-json').format(schema=as_json(dict(ask.schema)))}".strip()


def with_tools(system: str, tools: tuple[ToolSpec, ...]) -> str:
    """Return the system prompt with a list of the tools that the answer may call."""
    listed = [{"tool": one.name, "description": one.description, "arguments": dict(one.parameters)} for one in tools]
    return f"{system}\n\n{prompt_text('llm', 'agent-calls').format(tools=chr(10).join(map(as_json, listed)))}".strip()


def prompt_of(ask: Ask) -> str:
    """Return a single request as it is; a longer conversation with the role of each message."""
    if len(ask.messages) == 1 and isinstance(ask.messages[0], Asked):
        return _words(ask.messages[0])
    return "\n\n".join(
        [*(f"<{_who(one)}>\n{_words(one)}\n</{_who(one)}>" for one in ask.messages), prompt_text("llm", "agent-go-on")]
    )


def _who(message: Message) -> str:
    match message:
        case Asked():
            return "asked"
        case Answered():
            return "you-answered"
        case Returned():
            return "result"
        case never:
            assert_never(never)


def _words(message: Message) -> str:
    match message:
        case Asked(parts=parts):
            return "\n\n".join(part.text if isinstance(part, Text) else _NO_IMAGE for part in parts)
        case Answered(text=text, calls=()):
            return text
        case Answered(text=text, calls=calls):
            asked = [
                {"id": call.id, "tool": call.name, "arguments": _parse_arguments(call.arguments)} for call in calls
            ]
            return as_json({"text": text, "calls": asked})
        case Returned(call=call, tool=tool, content=content, failed=failed, images=images):
            shown = "\n".join([content, *[_NO_IMAGE] * len(images)])
            return f"{tool} ({call}){' failed' if failed else ''}:\n{shown}"
        case never:
            assert_never(never)


def _parse_arguments(arguments: str) -> object:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


@dataclass(frozen=True, kw_only=True, slots=True)
class SolverProgram:
    """An agent program that solves tasks; `build_call` is told whether it may write files and run commands."""

    program: Program
    ask: Callable[[Question, bool], Call]
    # The folder in its home with the skills it reads.
    skills: str
    # A pattern for the transcripts it writes there.
    transcripts: str
    powers: str = "nothing but its own judgement holds its commands in that folder"
    # Until a real binary was tried.
    is_experimental: bool = True


def solver_named(name: str) -> SolverProgram:
    """Return the solver of a name such as `claude-code` or `claude-code:MODEL`; raise Invalid for an unknown one."""
    if (found := SOLVERS.get(name.partition(":")[0])) is not None:
        return found
    near = did_you_mean(name, SOLVERS)
    raise Invalid(f"'{name}' solves no tasks.", hint=near or f"These do: {', '.join(SOLVERS)}; or leave it to ours.")


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


SOLVERS: Mapping[str, SolverProgram] = {
    one.program.name: one
    for one in (
        SolverProgram(
            program=PROGRAMS["claude-code"],
            ask=_start_claude,
            skills=".claude/skills",
            transcripts=".claude/projects/*/*.jsonl",
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
        ),
        SolverProgram(
            program=PROGRAMS["opencode"],
            ask=_start_opencode,
            skills="config/opencode/skills",
            transcripts="data/opencode/opencode*.db",
        ),
        SolverProgram(
            program=PROGRAMS["copilot"],
            ask=_start_copilot,
            skills="copilot/skills",
            transcripts="copilot/session-state/*/events.jsonl",
        ),
        SolverProgram(
            program=PROGRAMS["pi"],
            ask=_start_pi,
            skills="pi/skills",
            transcripts="pi/sessions/*/*.jsonl",
        ),
    )
}
