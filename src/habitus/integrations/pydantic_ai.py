"""HabitusCapability: procedural memory for an agent of pydantic-ai, each of its runs a turn.

from pydantic_ai import Agent
from habitus.integrations.pydantic_ai import HabitusCapability

agent = Agent("anthropic:claude-sonnet-5-5", capabilities=[HabitusCapability(user="ana")])
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from habitus import AsyncHostTurn, Habitus
from habitus.agent.background import run_in_thread
from habitus.errors import Invalid
from habitus.integrations.agent_run import normalize_conversation_id, require_package_version

require_package_version("pydantic-ai-slim", "2.66", extra="pydantic-ai")

from pydantic import ValidationError
from pydantic_ai import DeferredToolRequests, ModelRetry, RunContext, ToolDefinition
from pydantic_ai.capabilities import (
    AbstractCapability,
    RawToolArgs,
    ValidatedToolArgs,
    WrapRunHandler,
    WrapToolExecuteHandler,
)
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, SkipToolExecution, ToolFailed
from pydantic_ai.messages import ToolCallPart, UserContent
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.run import AgentRunResult
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

# Our own tools validate their arguments.
_ANY_ARGUMENTS = SchemaValidator(schema=core_schema.any_schema())
_NO_RESULT = (ApprovalRequired, CallDeferred, SkipToolExecution)


@dataclass
class HabitusCapability(AbstractCapability[Any]):
    """Adds skills, lessons and tools to every run, and records it.

    Without `habitus`, the home of the settings is opened for each run and closed after it, which waits for learning.
    Within `async with agent` it stays open from run to run.
    """

    user: str | None = None
    habitus: Habitus | None = None
    # Which of our tools to offer.
    profile: str | Collection[str] = "default"
    source_type: str = "api"
    _shared: _SharedHabitus = field(default_factory=lambda: _SharedHabitus(), repr=False)
    _turn: AsyncHostTurn | None = field(default=None, init=False, repr=False)
    _is_shown: bool = field(default=False, init=False, repr=False)

    async def for_run(self, ctx: RunContext[Any]) -> HabitusCapability:
        return replace(self)

    async def wrap_run(self, ctx: RunContext[Any], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        async with self._shared.open_given_or_shared_habitus(self.habitus) as habitus:
            opening = habitus.turn(
                _get_prompt_text(ctx.prompt),
                user=self.user,
                conversation=normalize_conversation_id(ctx.conversation_id or ""),
                source_type=self.source_type,
                tools=_list_agent_tool_names(ctx),
            )
            async with opening as self._turn:
                result = await handler()
                # Deferred calls are completed in another run.
                if not isinstance(result.output, DeferredToolRequests):
                    await self._turn.done(str(result.output))
            return result

    def get_instructions(self) -> Any:
        def steady(ctx: RunContext[Any]) -> str:
            return self._current_turn.system

        return steady

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Add the chosen context to the request, once; it stays in the history."""
        if not self._is_shown and self._current_turn.context:
            ctx.enqueue(self._current_turn.context)
        self._is_shown = True
        return request_context

    def get_toolset(self) -> AbstractToolset[Any]:
        return _HabitusToolset(self)

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """Observe the results of the agent's own tools; a nudge follows the result."""
        if self._current_turn.has(call.tool_name):
            return await handler(args)
        try:
            result = await handler(args)
        except _NO_RESULT:
            raise
        except Exception as error:
            await self._observe_call_and_enqueue_nudge(ctx, call, str(error), ok=False)
            raise
        await self._observe_call_and_enqueue_nudge(ctx, call, getattr(result, "return_value", result), ok=True)
        return result

    async def on_tool_validate_error(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: RawToolArgs,
        error: ValidationError | ModelRetry,
    ) -> ValidatedToolArgs:
        await self._observe_call_and_enqueue_nudge(ctx, call, str(error), ok=False)
        raise error

    async def _observe_call_and_enqueue_nudge(
        self, ctx: RunContext[Any], call: ToolCallPart, content: object, *, ok: bool
    ) -> None:
        nudge = await self._current_turn.observe(call.tool_name, call.args or "", content, ok)
        if nudge:
            ctx.enqueue(nudge)

    @property
    def _current_turn(self) -> AsyncHostTurn:
        if self._turn is None:
            raise Invalid("No run of the agent is open.", hint="Let pydantic-ai call the capability.")
        return self._turn


class _SharedHabitus:
    """The Habitus of an agent's runs, opened for the first run that needs it and closed after the last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._habitus: Habitus | None = None

    @asynccontextmanager
    async def open_given_or_shared_habitus(self, own: Habitus | None) -> AsyncIterator[Habitus]:
        """Yield the caller's own Habitus, which the caller closes, or the shared one."""
        if own is not None:
            yield own
            return
        habitus = await run_in_thread(self._open_or_share_habitus)
        try:
            yield habitus
        finally:
            await run_in_thread(self._close_habitus_after_last_user)

    def _open_or_share_habitus(self) -> Habitus:
        with self._lock:
            if self._habitus is None:
                self._habitus = Habitus.open()
            self._users += 1
            return self._habitus

    def _close_habitus_after_last_user(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._habitus is not None:
                self._habitus.close()
                self._habitus = None


class _HabitusToolset(AbstractToolset[Any]):
    """The tools of the turn at each step: one created in the run is available in the next.

    Entering it, as `async with agent` does, keeps Habitus open.
    """

    def __init__(self, run: HabitusCapability) -> None:
        self._run = run
        self._entered = AsyncExitStack()

    async def __aenter__(self) -> _HabitusToolset:
        await self._entered.enter_async_context(self._run._shared.open_given_or_shared_habitus(self._run.habitus))
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._entered.aclose()

    @property
    def id(self) -> str:
        return "habitus"

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return {
            tool["name"]: self._build_tool(tool) for tool in self._run._current_turn.tools(profile=self._run.profile)
        }

    def _build_tool(self, tool: dict[str, Any]) -> ToolsetTool[Any]:
        definition = ToolDefinition(
            name=tool["name"], description=tool["description"], parameters_json_schema=tool["parameters"]
        )
        return ToolsetTool(toolset=self, tool_def=definition, max_retries=0, args_validator=_ANY_ARGUMENTS)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> str:
        result = await self._run._current_turn.run(name, tool_args)
        if not result.outcome.is_ok:
            raise ToolFailed(result.content)
        return result.content


def _get_prompt_text(prompt: str | Sequence[UserContent] | None) -> str:
    if prompt is None or isinstance(prompt, str):
        return prompt or ""
    return "\n".join(part for part in prompt if isinstance(part, str))


def _list_agent_tool_names(ctx: RunContext[Any]) -> set[str]:
    toolsets = ctx.agent.toolsets if ctx.agent is not None else ()
    return {name for one in toolsets if isinstance(one, FunctionToolset) for name in one.tools}
