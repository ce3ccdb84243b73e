"""HabitusMiddleware: procedural memory for an agent of LangChain or LangGraph, each of its runs a turn.

from langchain.agents import create_agent
from habitus import Habitus
from habitus.integrations.langchain import HabitusMiddleware

with Habitus.open() as habitus:
    agent = create_agent(model, tools=[…], middleware=[HabitusMiddleware(habitus, user="ana")])
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired

from habitus import Habitus, HostTurn
from habitus.agent.background import run_in_thread
from habitus.integrations.agent_run import normalize_conversation_id, prepend_context, require_package_version

require_package_version("langchain", "1.3")

from langchain.agents.middleware.types import AgentMiddleware, AgentState, ModelRequest, PrivateStateAttr
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt.tool_node import ToolCallRequest


class HabitusAgentState(AgentState[Any]):
    """The agent's state with the name of the run, which a checkpoint may store."""

    habitus_run: NotRequired[Annotated[str, PrivateStateAttr]]  # type: ignore[valid-type] # its base is not read


@dataclass(kw_only=True, slots=True)
class _LangChainRun:
    name: str
    thread: str
    turn: HostTurn
    # The user's message with the context that was chosen for it.
    asked: HumanMessage | None


class HabitusMiddleware(AgentMiddleware[Any, Any, Any]):
    """Adds skills, lessons and tools to every run, and records it. Put it first in the list.

    A thread of LangGraph (`thread_id`) is a conversation. A run that waits for a person continues its turn.
    """

    state_schema = HabitusAgentState
    tools = ()

    def __init__(
        self,
        habitus: Habitus,
        *,
        user: str | None = None,
        profile: str | Collection[str] = "default",
        source_type: str = "api",
    ) -> None:
        super().__init__()
        self._habitus = habitus
        self._user = user
        self._profile = profile
        self._source_type = source_type
        # By conversation.
        self._runs: dict[str, _LangChainRun] = {}

    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        return {"habitus_run": uuid.uuid4().hex}

    async def abefore_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        return self.before_agent(state, runtime)

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        run = self._get_or_open_run(request)
        try:
            return handler(self._add_habitus_tools_and_context(request, run))
        except Exception:
            self._close_run_after_model_failure(run)
            raise

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        run = await run_in_thread(lambda: self._get_or_open_run(request))
        try:
            return await handler(await run_in_thread(lambda: self._add_habitus_tools_and_context(request, run)))
        except Exception:
            await run_in_thread(lambda: self._close_run_after_model_failure(run))
            raise

    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Keep the context of the request in the history."""
        run = self._find_run(state)
        if run is None or run.asked is None or all(one.id != run.asked.id for one in state["messages"]):
            return None
        asked, run.asked = run.asked, None
        return {"messages": [asked]}

    async def aafter_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return self.after_model(state, runtime)

    def after_agent(self, state: Any, runtime: Any) -> None:
        run = self._find_run(state)
        if run is not None:
            del self._runs[run.thread]
            replies = [one for one in state["messages"] if isinstance(one, AIMessage)]
            run.turn.done(_get_message_text(replies[-1]) if replies else "")

    async def aafter_agent(self, state: Any, runtime: Any) -> None:
        await run_in_thread(lambda: self.after_agent(state, runtime))

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        run = self._find_run(request.state)
        if run is None:
            return handler(request)
        if request.tool is None and run.turn.has(request.tool_call["name"]):
            return _run_habitus_tool(run.turn, request)
        try:
            result = handler(request)
        except GraphBubbleUp:
            # Interrupted to ask a person first; the call has no result yet.
            raise
        except Exception as error:
            _observe_agent_tool_call(run.turn, request, str(error), ok=False)
            raise
        return _observe_result_and_append_nudge(run.turn, request, result)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        run = self._find_run(request.state)
        if run is None:
            return await handler(request)
        turn = run.turn
        if request.tool is None and turn.has(request.tool_call["name"]):
            return await run_in_thread(lambda: _run_habitus_tool(turn, request))
        try:
            result = await handler(request)
        except GraphBubbleUp:
            raise
        except Exception as error:
            await run_in_thread(lambda text=str(error): _observe_agent_tool_call(turn, request, text, ok=False))  # type: ignore[misc] # mypy can't infer it
            raise
        return await run_in_thread(lambda: _observe_result_and_append_nudge(turn, request, result))

    def _find_run(self, state: Any) -> _LangChainRun | None:
        run = self._runs.get(_get_thread_or_run_id(state))
        return run if run is not None and run.name == state.get("habitus_run") else None

    def _get_or_open_run(self, request: ModelRequest[Any]) -> _LangChainRun:
        """Return the run of a request; the first request opens its turn, because it knows the agent's own tools."""
        run, thread = self._find_run(request.state), _get_thread_or_run_id(request.state)
        if run is None:
            asked = next((one for one in reversed(request.messages) if isinstance(one, HumanMessage)), None)
            turn = self._habitus.turn(
                _get_message_text(asked) if asked is not None else "",
                user=self._user,
                conversation=normalize_conversation_id(thread),
                source_type=self._source_type,
                tools=_list_tool_names(request),
            ).open()
            name = request.state.get("habitus_run", "")
            run = _LangChainRun(
                name=name, thread=thread, turn=turn, asked=_build_message_with_context(turn.context, asked)
            )
            self._runs[thread] = run
        return run

    def _add_habitus_tools_and_context(self, request: ModelRequest[Any], run: _LangChainRun) -> ModelRequest[Any]:
        theirs = _list_tool_names(request)
        ours = [
            {"type": "function", "function": tool}
            for tool in run.turn.tools(profile=self._profile)
            if tool["name"] not in theirs
        ]
        said = request.system_message
        system = f"{_get_message_text(said)}\n\n{run.turn.system}" if said is not None else run.turn.system
        messages = [run.asked if run.asked is not None and one.id == run.asked.id else one for one in request.messages]
        return request.override(
            system_message=SystemMessage(content=system), messages=messages, tools=[*request.tools, *ours]
        )

    def _close_run_after_model_failure(self, run: _LangChainRun) -> None:
        """Close the turn after the model failed; a retry is another turn."""
        self._runs.pop(run.thread, None)
        run.turn.close()


def _get_thread_or_run_id(state: Any) -> str:
    """Return the conversation: LangGraph's thread, or the run itself."""
    configured = get_config().get("configurable", {}).get("thread_id")
    return str(configured) if configured else str(state.get("habitus_run", ""))


def _list_tool_names(request: ModelRequest[Any]) -> set[str]:
    named = (
        one.get("name") or one.get("function", {}).get("name") if isinstance(one, dict) else one.name
        for one in request.tools
    )
    return {name for name in named if name}


def _get_message_text(message: BaseMessage) -> str:
    return str(message.text)


def _build_message_with_context(context: str, asked: HumanMessage | None) -> HumanMessage | None:
    if asked is None or not context:
        return None
    if isinstance(asked.content, str):
        return asked.model_copy(update={"content": prepend_context(context, asked.content)})
    return asked.model_copy(update={"content": [{"type": "text", "text": context}, *asked.content]})


def _run_habitus_tool(turn: HostTurn, request: ToolCallRequest) -> ToolMessage:
    call = request.tool_call
    result = turn.run(call["name"], call["args"])
    status = "success" if result.outcome.is_ok else "error"
    return ToolMessage(result.content, tool_call_id=call["id"], name=call["name"], status=status)


def _observe_agent_tool_call(turn: HostTurn, request: ToolCallRequest, content: object, *, ok: bool | None) -> str:
    return turn.observe(request.tool_call["name"], request.tool_call["args"], content, ok)


def _observe_result_and_append_nudge(turn: HostTurn, request: ToolCallRequest, result: Any) -> Any:
    """Observe the result of the agent's own tool, and append a nudge to it."""
    message = result if isinstance(result, ToolMessage) else _find_tool_message_in_command(result)
    if message is None:
        _observe_agent_tool_call(turn, request, result, ok=None)
        return result
    nudge = _observe_agent_tool_call(turn, request, message.content, ok=message.status != "error")
    if nudge and isinstance(message.content, str):
        message.content = f"{message.content}\n\n{nudge}"
    elif nudge:
        message.content = [*message.content, {"type": "text", "text": nudge}]
    return result


def _find_tool_message_in_command(command: Any) -> ToolMessage | None:
    update = getattr(command, "update", None)
    messages: list[AnyMessage] = update.get("messages", []) if isinstance(update, dict) else []
    return next((one for one in messages if isinstance(one, ToolMessage)), None)
