"""HabitusOpenAIRun: procedural memory for one run of an agent of the OpenAI Agents SDK.

from agents import Runner
from habitus import Habitus
from habitus.integrations.openai_agents import HabitusOpenAIRun

with Habitus.open() as habitus, HabitusOpenAIRun(habitus, agent, question, user="ana") as run:
    result = Runner.run_sync(run.agent, run.input, hooks=run.hooks, run_config=run.config)
"""

from __future__ import annotations

import inspect
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from habitus import Habitus
from habitus.agent.background import run_in_thread
from habitus.integrations.agent_run import AgentRun, prepend_context, require_package_version

require_package_version("openai-agents", "0.19")

from agents import Agent, FunctionTool, RunConfig, RunHooks
from agents.run import CallModelData, ModelInputData

# The SDK returns errors as text that begins like this, unless the tool defines its own.
_FAILURE_PREFIXES = ("An error occurred while running the tool", "An error occurred while parsing tool arguments")


class HabitusOpenAIRun(AgentRun):
    """One run of an OpenAI agent as a turn: pass `agent`, `input`, `hooks` and `config` to a Runner.

    The agent is a copy with our tools; `about` are further arguments of `habitus.turn`. Put your own hooks on the
    agent, and your own configuration into `run_config`.
    """

    def __init__(
        self,
        habitus: Habitus,
        agent: Agent[Any],
        input: str | list[Any],
        *,
        run_config: RunConfig | None = None,
        profile: str | Collection[str] = "default",
        **about: Any,
    ) -> None:
        self._own = {tool.name for tool in agent.tools}
        super().__init__(habitus, _get_last_user_text(input), self._own, profile, about)
        self._given = input
        self._config = run_config or RunConfig()
        self._nudges: list[str] = []
        self.agent = agent.clone(tools=list(agent.tools))
        self.hooks = _HabitusRunHooks(self)
        self.config = replace(self._config, call_model_input_filter=self._add_system_text_and_nudges_to_input)

    @property
    def input(self) -> str | list[Any]:
        """The request, preceded by the context that was chosen for it."""
        context = self.turn.context
        if isinstance(self._given, str):
            return prepend_context(context, self._given)
        return [{"role": "user", "content": context}, *self._given] if context else self._given

    def _attach_to_agent(self) -> None:
        known = {tool.name for tool in self.agent.tools}
        ours = self.turn.tools(profile=self.profile)
        self.agent.tools += [self._build_tool(tool) for tool in ours if tool["name"] not in known]

    def _build_tool(self, tool: dict[str, Any]) -> FunctionTool:
        async def invoke(context: Any, arguments: str) -> str:
            result = await run_in_thread(lambda: self.turn.run(tool["name"], arguments))
            # A tool that was created in the run is available in the next step.
            self._attach_to_agent()
            return result.content

        return FunctionTool(
            name=tool["name"],
            description=tool["description"],
            params_json_schema=tool["parameters"],
            on_invoke_tool=invoke,
            strict_json_schema=False,
        )

    async def _add_system_text_and_nudges_to_input(self, call: CallModelData[Any]) -> ModelInputData:
        """Add the system text and nudges to the model's input, before every call of the model."""
        data = call.model_data
        if self._config.call_model_input_filter is not None:
            given = self._config.call_model_input_filter(call)
            data = await given if inspect.isawaitable(given) else given
        instructions = prepend_context(data.instructions or "", self.turn.system)
        nudges: list[Any] = [{"role": "user", "content": text} for text in self._nudges]
        return ModelInputData(input=[*data.input, *nudges], instructions=instructions)

    async def observe_agent_tool_call_and_keep_nudge(self, name: str, arguments: str, result: object) -> None:
        """Observe a call of the agent's own tool; a nudge stays in the model's input from then on."""
        if name in self._own or not self.turn.has(name):
            ok = not (isinstance(result, str) and result.startswith(_FAILURE_PREFIXES))
            nudge = await run_in_thread(lambda: self.turn.observe(name, arguments, result, ok))
            self._nudges += [nudge] if nudge else []


class _HabitusRunHooks(RunHooks[Any]):
    def __init__(self, run: HabitusOpenAIRun) -> None:
        self._run = run

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: object) -> None:
        await self._run.observe_agent_tool_call_and_keep_nudge(
            tool.name, getattr(context, "tool_arguments", ""), result
        )

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        await run_in_thread(lambda: self._run.turn.done(str(output)))


def _get_last_user_text(input: str | list[Any]) -> str:
    """Return the last text of the user in the input of a run."""
    if isinstance(input, str):
        return input
    said = next((item["content"] for item in reversed(input) if item.get("role") == "user"), "")
    return said if isinstance(said, str) else "\n".join(part.get("text", "") for part in said)
