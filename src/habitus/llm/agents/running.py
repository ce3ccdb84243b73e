"""Runs agent programs: one request in an empty folder, with every failure as one line."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol, assert_never

from habitus import operating_system
from habitus.errors import StorageFailed
from habitus.llm.agents.program import AgentProgram, AgentProgramCommand, AgentProgramPrompt, ProgramOutput
from habitus.llm.agents.programs import CLOUD_VARIABLES
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
from habitus.locks import acquire_lock, try_lock
from habitus.redact import Redactor
from habitus.text import estimate_tokens, load_prompt

_PASSED_VARIABLES = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_", "TZ", "TMPDIR", "XDG_", "DBUS_SESSION_BUS_ADDRESS"),
    *("SSL_CERT_", "NODE_EXTRA_CA_CERTS", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy"),
    "no_proxy",
)
# Without the user's session bus, folders and proxies: the box has its own way out.
_PASSED_INTO_BOX = ("PATH", "LANG", "LC_", "TZ", "TERM")
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
        question = AgentProgramPrompt(system=system, prompt=prompt, model=model, workspace=room, environ=environ)
        call = await asyncio.to_thread(program.build_call, question)
        (empty := room / "empty").mkdir()
        return await run_program_and_parse_answer(program, question, call, empty, patience_s)


_WORKSPACE_PREFIX = "habitus-ask-"
_remove_tree = partial(shutil.rmtree, ignore_errors=True)


@asynccontextmanager
async def temporary_workspace(
    parent: Path | None = None, remove: Callable[[str], None] = _remove_tree
) -> AsyncIterator[Path]:
    """Create a temporary folder that is removed afterwards; folders of killed processes are removed first."""
    parent = parent or Path(tempfile.gettempdir())
    outer, lock = await asyncio.to_thread(_create_locked_workspace, parent, remove)
    try:
        yield _get_writable_folder_of_workspace(outer)
    finally:
        await asyncio.to_thread(remove, str(outer))
        os.close(lock)


def _create_locked_workspace(parent: Path, remove: Callable[[str], None]) -> tuple[Path, int]:
    """Return a new folder and the lock on it, which tells that its process lives."""
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    remove_abandoned_workspaces(parent, remove)
    outer = Path(tempfile.mkdtemp(prefix=_WORKSPACE_PREFIX, dir=parent))
    lock = acquire_lock(outer)
    assert lock is not None, "a new folder is ours"
    _get_writable_folder_of_workspace(outer).mkdir()
    return outer, lock


def _get_writable_folder_of_workspace(outer: Path) -> Path:
    """Return the part of a workspace that a program may write."""
    return outer / "room"


def remove_abandoned_workspaces(parent: Path, remove: Callable[[str], None]) -> None:
    """Remove the folders of killed processes.

    `remove` has to cope with whatever a program in a box can leave.
    """
    for outer in parent.glob(f"{_WORKSPACE_PREFIX}*"):
        with suppress(OSError, StorageFailed):
            # A folder that is being created has no lock for a moment.
            is_new = time.time() - outer.lstat().st_mtime < _SWEEP_AFTER_S
            if is_new or outer.lstat().st_uid != operating_system.get_current_user_id():
                continue
            with try_lock(outer) as lock:
                if lock is not None:
                    remove(str(outer))


_SWEEP_AFTER_S = 60.0


class SandboxCommandWrapper(Protocol):
    """Starts a program inside a box."""

    def wrap_command(self, command: Sequence[str], cwd: Path) -> AbstractAsyncContextManager[SandboxedCommand]: ...


class SandboxedCommand(Protocol):
    """A command inside a box, with the descriptors it inherits and the variables it needs."""

    @property
    def argv(self) -> Sequence[str]: ...

    @property
    def descriptors(self) -> Sequence[int]: ...

    @property
    def environ(self) -> Mapping[str, str]: ...


async def run_program_and_parse_answer(
    program: AgentProgram,
    question: AgentProgramPrompt,
    call: AgentProgramCommand,
    cwd: Path,
    patience_s: float,
    *,
    box: SandboxCommandWrapper | None = None,
) -> ProgramAnswer:
    """Run a program with few of the user's variables, in a box if there is one, and parse its answer."""
    command = [shutil.which(program.command, path=question.environ.get("PATH")) or program.command, *call.arguments]
    is_passed = _is_variable_passed_without_sandbox if box is None else is_variable_passed_into_sandbox
    mine = {key: value for key, value in question.environ.items() if is_passed(program, key)}
    environ = {**mine, **call.environ, "NO_COLOR": "1"}
    if box is None:
        code, written, complaint = await _run_program(program, command, call.stdin, cwd, environ, patience_s)
    else:
        try:
            async with box.wrap_command(command, cwd) as wrapped:
                environ |= wrapped.environ
                code, written, complaint = await _run_program(
                    program, wrapped.argv, call.stdin, cwd, environ, patience_s, wrapped.descriptors
                )
        except OSError as error:
            raise _build_start_failure_error(program, error) from error
    output = await asyncio.to_thread(program.parse_output, written, question)
    if output.problem or code != 0 or not output.text.strip():
        raise _build_program_failure_error(program, output.problem or complaint.strip() or written.strip(), code)
    return ProgramAnswer(text=output.text, usage=_fill_in_missing_usage(program, question, output))


async def _run_program(
    program: AgentProgram,
    command: Sequence[str],
    stdin: str,
    cwd: Path,
    environ: Mapping[str, str],
    patience_s: float,
    descriptors: Sequence[int] = (),
) -> tuple[int, str, str]:
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=cwd,
            env=environ,
            pass_fds=descriptors,
            # A process group of its own, to kill the program's children with it.
            start_new_session=True,
        )
    except OSError as error:
        raise _build_start_failure_error(program, error) from error
    try:
        async with asyncio.timeout(patience_s):
            written, complaint = await process.communicate(stdin.encode())
    except TimeoutError:
        hint = "Set model_silence higher, or name a faster model."
        raise ProviderError(f"{program.title} gave no answer in {patience_s:g} seconds. {hint}") from None
    finally:
        await _kill_process_group(process)
    return process.returncode or 0, written.decode("utf-8", "replace"), complaint.decode("utf-8", "replace")


def is_variable_passed_into_sandbox(program: AgentProgram, variable: str) -> bool:
    """Return whether a program may have a variable of the user's in its box."""
    own = (each for each in program.variables if each not in CLOUD_VARIABLES)
    return _is_variable_name_or_prefix_listed(variable, (*_PASSED_INTO_BOX, *own))


def _is_variable_passed_without_sandbox(program: AgentProgram, variable: str) -> bool:
    return _is_variable_name_or_prefix_listed(variable, (*_PASSED_VARIABLES, *program.variables))


def _is_variable_name_or_prefix_listed(variable: str, kept: tuple[str, ...]) -> bool:
    return any(variable.startswith(each) if each.endswith("_") else variable == each for each in kept)


async def _kill_process_group(process: asyncio.subprocess.Process) -> None:
    """Kill the program with everything it started."""
    with suppress(ProcessLookupError, PermissionError):
        operating_system.kill_process_tree(process.pid)
    await process.wait()


def _build_start_failure_error(program: AgentProgram, error: OSError) -> ProviderError:
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


def _build_program_failure_error(program: AgentProgram, problem: str, code: int) -> ProviderError:
    said = _shorten_error_output_to_line(problem) or f"nothing, with exit code {code}"
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


def _shorten_error_output_to_line(problem: str) -> str:
    lines = [line for line in problem.splitlines() if line.strip()]
    line = " ".join(Redactor().redact(" ".join(lines[-5:])[: _MAX_ERROR_CHARACTERS * 8]).text.split())
    return (line if len(line) <= _MAX_ERROR_CHARACTERS else line[: _MAX_ERROR_CHARACTERS - 1] + "…").rstrip(".")


def _fill_in_missing_usage(program: AgentProgram, question: AgentProgramPrompt, output: ProgramOutput) -> TokenUsage:
    """Return the reported usage; missing token counts are estimated, and a missing cost comes from the price list."""
    counted = TokenUsage(
        input_tokens=estimate_tokens(question.prompt_with_system_prompt), output_tokens=estimate_tokens(output.text)
    )
    usage = output.usage if output.usage is not None else counted
    if usage.cost is not None:
        return usage
    return replace(usage, cost=compute_price(usage, question.model or output.model, provider=program.price_provider))


_NO_IMAGE = "[An image, which can't be shown here.]"


def build_system_prompt_with_answer_schema(ask: CompletionRequest) -> str:
    """Return the system prompt, with the schema of the answer if there is one."""
    if ask.schema is None:
        return ask.system
    return f"{ask.system}\n\n{load_prompt('llm', 'agent-one-json').format(schema=to_json(dict(ask.schema)))}".strip()


def add_tool_list_to_system_prompt(system: str, tools: tuple[ToolSpec, ...]) -> str:
    """Return the system prompt with a list of the tools that the answer may call."""
    listed = [{"tool": one.name, "description": one.description, "arguments": dict(one.parameters)} for one in tools]
    return f"{system}\n\n{load_prompt('llm', 'agent-calls').format(tools=chr(10).join(map(to_json, listed)))}".strip()


def render_conversation_prompt(ask: CompletionRequest) -> str:
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
                {"id": call.id, "tool": call.name, "arguments": _parse_call_arguments(call.arguments)} for call in calls
            ]
            return to_json({"text": text, "calls": asked})
        case ToolResultMessage(call=call, tool=tool, content=content, failed=failed, images=images):
            shown = "\n".join([content, *[_NO_IMAGE] * len(images)])
            return f"{tool} ({call}){' failed' if failed else ''}:\n{shown}"
        case never:
            assert_never(never)


def _parse_call_arguments(arguments: str) -> object:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
