"""HabitusSmolagentsRun: procedural memory for one run of an agent of smolagents.

from habitus import Habitus
from habitus.integrations.smolagents import HabitusSmolagentsRun

with Habitus.open() as habitus, HabitusSmolagentsRun(habitus, agent, task, user="ana") as run:
    answer = agent.run(run.task)
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

from habitus import Habitus, HostTurn
from habitus.integrations.agent_run import AgentRun, prepend_context, require_package_version

require_package_version("smolagents", "1.24")

from smolagents import ActionStep, FinalAnswerStep, MultiStepAgent, Tool
from smolagents.tools import AUTHORIZED_TYPES


class HabitusSmolagentsRun(AgentRun):
    """One run of a smolagents agent as a turn; the agent has our tools and instructions until the block ends.

    A CodeAgent needs its local executor, because the tools work in this process. `about` are further arguments of
    `habitus.turn`.
    """

    def __init__(
        self,
        habitus: Habitus,
        agent: MultiStepAgent,
        task: str,
        *,
        profile: str | Collection[str] = "default",
        **about: Any,
    ) -> None:
        self._own = dict(agent.tools)
        super().__init__(habitus, task, self._own, profile, about)
        self._task = task
        self._agent = agent
        self._instructions = agent.instructions
        self._callbacks = agent.step_callbacks

    @property
    def task(self) -> str:
        """The task, preceded by the context that was chosen for it."""
        return prepend_context(self.turn.context, self._task)

    def _attach_to_agent(self) -> None:
        self._agent.instructions = prepend_context(self._instructions or "", self.turn.system)
        self._agent.step_callbacks = _ObservingStepCallbacks(self)
        self._add_new_habitus_tools()

    def _add_new_habitus_tools(self) -> None:
        for spec in self.turn.tools(profile=self.profile):
            tool = _HabitusTool(self.turn, spec)
            self._agent.tools.setdefault(tool.name, tool)

    def _detach_from_agent(self) -> None:
        self._agent.tools = self._own
        self._agent.instructions = self._instructions
        self._agent.step_callbacks = self._callbacks

    def observe_step(self, step: Any) -> None:
        """Observe a step: calls of the agent's own tools or its code, and the final answer."""
        if isinstance(step, FinalAnswerStep):
            self.turn.done(str(step.output))
        elif isinstance(step, ActionStep):
            said = str(step.error) if step.error else step.observations or ""
            nudges = [
                self.turn.observe(name, arguments, said, step.error is None)
                for name, arguments in _iterate_step_calls(step)
                if name != "final_answer" and not isinstance(self._agent.tools.get(name), _HabitusTool)
            ]
            # A tool that was created in this step is available in the next.
            self._add_new_habitus_tools()
            step.observations = "\n\n".join(text for text in (step.observations, *nudges) if text) or None

    def forward_step_to_agent_callbacks(self, step: Any, **about: Any) -> None:
        """Pass a step on to the callbacks that the agent had before the run."""
        self._callbacks.callback(step, **about)


class _ObservingStepCallbacks:
    """Replaces the agent's callbacks during the run."""

    def __init__(self, run: HabitusSmolagentsRun) -> None:
        self._run = run

    def callback(self, memory_step: Any, **about: Any) -> None:
        self._run.observe_step(memory_step)
        self._run.forward_step_to_agent_callbacks(memory_step, **about)


class _HabitusTool(Tool):
    skip_forward_signature_validation = True
    output_type = "string"

    def __init__(self, turn: HostTurn, spec: dict[str, Any]) -> None:
        self._turn, self._called = turn, spec["name"]
        self.name = re.sub(r"\W", "_", spec["name"])
        self.description = spec["description"]
        parameters = spec["parameters"]
        self.inputs = {
            name: _build_input_schema(schema, is_needed=name in parameters.get("required", ()))
            for name, schema in parameters.get("properties", {}).items()
        }
        super().__init__()

    def forward(self, *values: Any, **arguments: Any) -> str:
        given = {**dict(zip(self.inputs, values, strict=False)), **arguments}
        result = self._turn.run(self._called, {name: value for name, value in given.items() if value is not None})
        if not result.outcome.is_ok:
            raise ValueError(result.content)
        return result.content


def _build_input_schema(schema: dict[str, Any], *, is_needed: bool) -> dict[str, Any]:
    type = schema.get("type", "any")
    known = type if type in AUTHORIZED_TYPES else "any"
    return {
        **schema,
        "type": known,
        "description": schema.get("description", ""),
        **({} if is_needed else {"nullable": True}),
    }


def _iterate_step_calls(step: ActionStep) -> Iterator[tuple[str, Any]]:
    """Yield the calls of a step; a failed one is found only in the model's message."""
    if step.tool_calls:
        yield from ((call.name, call.arguments) for call in step.tool_calls)
    elif step.model_output_message is not None:
        said = step.model_output_message.tool_calls or ()
        yield from ((call.function.name, call.function.arguments) for call in said)
