"""HabitusClaudeRun: procedural memory for one query to the Claude Agent SDK.

from claude_agent_sdk import query
from habitus import Habitus
from habitus.integrations.claude_agent_sdk import HabitusClaudeRun

with Habitus.open() as habitus:
    async with HabitusClaudeRun(habitus, question, user="ana") as run:
        async for message in query(prompt=run.prompt, options=run.options):
            …
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from habitus import Habitus
from habitus.agent.background import run_in_thread
from habitus.errors import Invalid
from habitus.integrations.agent_run import AgentRun, prepend_context, require_package_version

require_package_version("claude-agent-sdk", "0.2.100")

from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, SdkMcpTool, create_sdk_mcp_server

_OURS = "mcp__habitus__"


class HabitusClaudeRun(AgentRun):
    """One query to the Claude Agent SDK as a turn: pass `prompt` and `options` to `query` or to a client.

    `options` are yours plus our tools, hooks and text; `about` are further arguments of `habitus.turn`. Without a
    `conversation`, the session that the options resume is used.
    """

    def __init__(
        self,
        habitus: Habitus,
        prompt: str,
        options: ClaudeAgentOptions | None = None,
        *,
        profile: str | Collection[str] = "default",
        **about: Any,
    ) -> None:
        self._given = options or ClaudeAgentOptions()
        if not isinstance(self._given.mcp_servers, dict):
            raise Invalid("The servers of the options are a file.", hint="Give them as a mapping of names to servers.")
        about.setdefault("conversation", self._given.resume or self._given.session_id or "")
        super().__init__(habitus, prompt, self._given.allowed_tools, profile, about)
        self._prompt = prompt

    @property
    def prompt(self) -> str:
        """The request, preceded by the context that was chosen for it."""
        return prepend_context(self.turn.context, self._prompt)

    @property
    def options(self) -> ClaudeAgentOptions:
        """The given options with our tools, hooks and system text added."""
        given = self._given
        hooks: dict[Any, list[HookMatcher]] = dict(given.hooks or {})
        ours: dict[str, Any] = {
            "PostToolUse": self._observe_tool_result_hook,
            "PostToolUseFailure": self._observe_tool_result_hook,
            "Stop": self._end_turn_with_last_message,
        }
        for event, hook in ours.items():
            hooks[event] = [*hooks.get(event, ()), HookMatcher(hooks=[hook])]
        server = create_sdk_mcp_server(
            "habitus", tools=[self._build_tool(one) for one in self.turn.tools(profile=self.profile)]
        )
        servers: Any = given.mcp_servers
        if not isinstance(servers, dict):
            raise Invalid("The servers are in a file.", hint="Give ClaudeAgentOptions(mcp_servers={…}), not a path.")
        return replace(
            given,
            hooks=hooks,
            system_prompt=_extend_system_prompt(given.system_prompt, self.turn.system),
            mcp_servers={**servers, "habitus": server},
            allowed_tools=[*given.allowed_tools, "mcp__habitus"],
        )

    def _build_tool(self, spec: dict[str, Any]) -> SdkMcpTool[Any]:
        async def run(arguments: dict[str, Any]) -> dict[str, Any]:
            result = await run_in_thread(lambda: self.turn.run(spec["name"], arguments))
            return {"content": [{"type": "text", "text": result.content}], "is_error": not result.outcome.is_ok}

        return SdkMcpTool(
            name=spec["name"], description=spec["description"], input_schema=spec["parameters"], handler=run
        )

    async def _observe_tool_result_hook(self, event: Any, call: str | None, context: Any) -> dict[str, Any]:
        """Observe the result of another tool; a nudge is returned beside it."""
        # Our own tools observe themselves.
        if event["tool_name"].startswith(_OURS):
            return {}
        failed = event["hook_event_name"] == "PostToolUseFailure"
        content = event["error"] if failed else event["tool_response"]
        nudge = await run_in_thread(
            lambda: self.turn.observe(event["tool_name"], event["tool_input"], content, not failed)
        )
        said = {"hookEventName": event["hook_event_name"], "additionalContext": nudge}
        return {"hookSpecificOutput": said} if nudge else {}

    async def _end_turn_with_last_message(self, event: Any, call: str | None, context: Any) -> dict[str, Any]:
        await run_in_thread(lambda: self.turn.done(event.get("last_assistant_message", "")))
        return {}


def _extend_system_prompt(given: Any, ours: str) -> Any:
    match given:
        case None | str():
            return prepend_context(given or "", ours)
        case {"type": "preset"}:
            return {**given, "append": prepend_context(given.get("append", ""), ours)}
        case {"type": "custom"}:
            return {**given, "prompt": prepend_context(given["prompt"], ours)}
    raise Invalid("The system prompt of the options is a file.", hint="Give it as a text or as a preset.")
