"""The user's own coding agent as a model: each request is one headless run of its program, without its own tools."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from pydantic import BaseModel

from habitus.errors import NotFound
from habitus.events import ToolCall
from habitus.llm.agents import running
from habitus.llm.agents.program import AgentProgram
from habitus.llm.agents.programs import PROGRAMS
from habitus.llm.model import (
    AssistantMessage,
    CompletionRequest,
    CompletionResult,
    ProviderError,
    StopReason,
    StreamPiece,
    TextDelta,
    ToolCallStarted,
    UnusableAnswerError,
)
from habitus.llm.structured import ask_structured

# Per round of calls.
_ATTEMPTS = 2


def find_agent_program(name: str) -> AgentProgram | None:
    """Return the program that a model name such as `claude-code` or `claude-code:MODEL` refers to; None for others."""
    return PROGRAMS.get(name.strip().partition(":")[0])


def list_installed_programs(environ: Mapping[str, str]) -> list[AgentProgram]:
    """Return the programs that are installed on this machine."""
    return [program for program in PROGRAMS.values() if shutil.which(program.command, path=environ.get("PATH"))]


def open_agent_model(name: str, environ: Mapping[str, str], patience_s: float) -> AgentProgramModel:
    """Open the model of an agent program; raise NotFound if the program is not installed."""
    program = find_agent_program(name)
    assert program is not None
    if shutil.which(program.command, path=environ.get("PATH")) is None:
        raise NotFound(
            f"{program.title} is not here: no program '{program.command}' on the PATH.",
            hint=f"Install it: {program.install}",
        )
    return AgentProgramModel(program, name.strip(), environ, patience_s)


class AgentProgramModel:
    """A `Model` that starts a program for every request; calls of our tools travel as one JSON answer per round."""

    def __init__(self, program: AgentProgram, name: str, environ: Mapping[str, str], patience_s: float) -> None:
        self.name = name
        self.sees_images = False
        # Only the program knows which model it asks.
        self.context_tokens: int | None = None
        self._program = program
        self._environ = environ
        self._patience_s = patience_s

    async def stream(self, ask: CompletionRequest) -> AsyncGenerator[StreamPiece, None]:
        answer = await (self._ask_program_for_text_and_calls(ask) if ask.tools else self._ask_program_for_text(ask))
        if answer.message.text:
            yield TextDelta(text=answer.message.text)
        for call in answer.message.calls:
            yield ToolCallStarted(tool=call.name)
        yield answer

    async def _ask_program_for_text(self, ask: CompletionRequest) -> CompletionResult:
        system, prompt = running.build_system_prompt_with_answer_schema(ask), running.render_conversation_prompt(ask)
        model = self.name.partition(":")[2]
        said = await running.ask_program(self._program, model, system, prompt, self._environ, self._patience_s)
        return CompletionResult(message=AssistantMessage(text=said.text), stop=StopReason.END, usage=said.usage)

    async def _ask_program_for_text_and_calls(self, ask: CompletionRequest) -> CompletionResult:
        system = running.add_tool_list_to_system_prompt(ask.system, ask.tools)
        try:
            got = await ask_structured(
                self, _TextAndToolCallsAnswer, system=system, messages=ask.messages, attempts=_ATTEMPTS
            )
        except UnusableAnswerError as error:
            fault = ProviderError(f"{error} Try again, or name a stronger model: {self._program.name}:MODEL.")
            fault.usage = error.usage
            raise fault from error
        calls = tuple(
            ToolCall(id="", name=each.tool, arguments=running.to_json(each.arguments)) for each in got.value.calls
        )
        message = AssistantMessage(text=got.value.text, calls=calls)
        return CompletionResult(message=message, stop=StopReason.CALLS if calls else StopReason.END, usage=got.usage)


class _RequestedToolCall(BaseModel):
    tool: str
    arguments: dict[str, Any] = {}


class _TextAndToolCallsAnswer(BaseModel):
    """An answer with text, tool calls, or both."""

    text: str = ""
    calls: list[_RequestedToolCall] = []
