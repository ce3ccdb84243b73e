"""A turn of a loop that is not ours: `with habitus.turn(…)`, or the same methods awaited."""

from __future__ import annotations

import asyncio
import json
import reprlib
import secrets
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any

from habitus.agent.background import EventLoopThread, run_in_thread
from habitus.agent.open_turn import OpenTurn
from habitus.agent.prompts.prompt import ComposedPrompt
from habitus.agent.stream import NoticeEvent, ToolProgress, TurnEvent
from habitus.agent.tools.registry import ToolRegistry, truncate_middle_of_result
from habitus.errors import Invalid
from habitus.events import OK, Outcome, ToolCall, ToolResult, build_failed_outcome, build_infrastructure_failure_outcome
from habitus.llm.model import AssistantMessage, ChatMessage, Image, TextContent, ToolResultMessage, ToolSpec
from habitus.text import escape_lines_resembling_prompt_marks, replace_surrogates

Watch = Callable[[str], None]

# The source of an outcome reported by the host.
HOST = "host"
_UNSAID = build_infrastructure_failure_outcome("no feedback")


class HostedTurnRunner:
    """The turn itself. All its coroutines run on one event loop, whichever thread calls."""

    def __init__(self) -> None:
        self.notices: list[str] = []  # messages for the person
        self.is_over = False
        self._watched: dict[str, Watch] = {}  # callbacks for the progress of a call, by id
        self._registry = ToolRegistry()
        self._messages: list[ChatMessage] = []
        self._one_at_a_time = asyncio.Lock()
        self._turn: OpenTurn | None = None

    def collect_notice_or_forward_progress(self, seen: TurnEvent) -> None:
        """Collect notices and forward the progress of watched calls."""
        if isinstance(seen, NoticeEvent):
            self.notices.append(seen.text)
        elif isinstance(seen, ToolProgress) and seen.call in self._watched:
            self._watched[seen.call](seen.text)

    async def open_turn(self, turn: OpenTurn, *, shows_prompt: bool = True, told: ComposedPrompt | None = None) -> None:
        """Open the turn and load its tools."""
        self.notices += turn.user_input.notices
        self._turn = turn
        # A host that shows our prompt tells us which tools it takes; otherwise all count as shown.
        turn.shown_tools = set() if shows_prompt else None
        try:
            await turn.open(shows_prompt=shows_prompt, told=told)
            self._registry = await run_in_thread(turn.build_tool_registry)
        except BaseException:
            await self.end_as_cancelled()
            raise
        self._append_messages(turn.user_message)

    @property
    def turn(self) -> OpenTurn:
        """The open turn; `Invalid` before `open_turn`."""
        if self._turn is None:
            raise Invalid("The turn is not open.", hint="Use it in a 'with' or 'async with' block.")
        return self._turn

    @property
    def context(self) -> str:
        """The marked block, followed by descriptions of the attachments."""
        attached = [part.text for part in self.turn.user_input.parts if isinstance(part, TextContent)]
        return "\n\n".join(text for text in (self.turn.context, *attached) if text)

    @property
    def images(self) -> tuple[Image, ...]:
        return tuple(part for part in self.turn.user_input.parts if isinstance(part, Image))

    def list_tools_and_record_as_shown(self, profile: str | Collection[str]) -> list[ToolSpec]:
        """Return the tools of a profile and record that they were shown."""
        offered = [tool.spec for tool in self._registry.list_tools() if tool.is_in_profile(profile)]
        if self.turn.shown_tools is not None:
            self.turn.shown_tools |= {spec.name for spec in offered}
        return offered

    def has_tool(self, name: str) -> bool:
        """Whether a tool of that name is ours."""
        return self._registry.has_tool(name)

    async def run_tool(
        self, name: str, arguments: Mapping[str, object] | str, watch: Watch = lambda text: None
    ) -> ToolResult:
        """Run one of our tools. Nudges are appended to its result; `watch` receives its progress."""
        call, looks = self._build_call_and_count_round(name, arguments), self.turn.library_snapshot_revision
        self._watched[call.id] = watch
        try:
            result = await self._run_tool_serialized_unless_parallel(call)
        finally:
            del self._watched[call.id]
        self.turn.last_results = [result.outcome]
        if self.turn.library_snapshot_revision != looks:
            # The call may have created a tool.
            self._registry = await run_in_thread(self.turn.build_tool_registry)
        self._append_call_and_result_messages(call, result)
        nudge = await self._collect_observer_nudges_as_text()
        return replace(result, content=f"{result.content}\n\n{nudge}") if nudge else result

    async def _run_tool_serialized_unless_parallel(self, call: ToolCall) -> ToolResult:
        if self._registry.is_parallel(call):
            return await self.turn.run_tool(call, self._registry)
        async with self._one_at_a_time:
            return await self.turn.run_tool(call, self._registry)

    async def record_host_call_and_get_nudge(
        self, name: str, arguments: Mapping[str, object] | str, content: object, ok: bool | None, intent: str
    ) -> str:
        """Record a call run by the host and return a nudge, or "". `ok` is None if its outcome is unknown."""
        call = self._build_call_and_count_round(name, arguments)
        said = self._redact_and_escape_text(_convert_value_to_text(content))
        outcome = build_failed_outcome(said[-500:].strip() or "it failed") if ok is False else OK
        result = truncate_middle_of_result(ToolResult(content=said, outcome=outcome))
        self.turn.record_host_call(call, result, intent=intent, is_known=ok is not None)
        self._append_call_and_result_messages(call, result)
        return await self._collect_observer_nudges_as_text()

    async def end_with_reply(self, reply: str, ok: bool | None, reason: str) -> None:
        """End the turn with a reply. `ok` is the outcome if the host knows it; otherwise it is inferred."""
        if self.is_over:
            # Hosts often call both `done()` and a cleanup handler; only the first one counts.
            return
        turn, said = self.turn, self._redact_and_escape_text(reply)
        if ok is None and turn.judged_by:
            # The model's own report of the outcome stands.
            turn.reply = said
        else:
            turn.set_reply_and_infer_outcome(said, may_be_empty=True)
        if ok is not None:
            turn.outcome = (
                OK if ok else build_failed_outcome(self._redact_and_escape_text(reason) or "the host says so")
            )
            turn.judged_by = HOST
        if said:
            self._append_messages(AssistantMessage(text=said))
        await self._mark_over_and_close_turn()

    async def end_without_reply(self, outcome: Outcome = _UNSAID) -> None:
        """End the turn without a reply, unless it is over already."""
        if self.is_over:
            return
        if outcome is not _UNSAID or not self.turn.judged_by:
            self.turn.outcome = replace(outcome, reason=self._redact_and_escape_text(outcome.reason))
            self.turn.judged_by = ""
        await self._mark_over_and_close_turn()

    async def end_as_cancelled(self) -> None:
        """End a cancelled turn; nothing is learned from it."""
        if not self.is_over:
            self.turn.cancel()
            await self.end_without_reply(build_infrastructure_failure_outcome("cancelled"))

    async def _mark_over_and_close_turn(self) -> None:
        self.is_over = True
        await self.turn.close()

    async def _collect_observer_nudges_as_text(self) -> str:
        return "\n".join(await self.turn.collect_observer_nudges())

    def _build_call_and_count_round(self, name: str, arguments: Mapping[str, object] | str) -> ToolCall:
        if self.is_over:
            raise Invalid("The turn is over.", hint="Begin the next one with habitus.turn(…).")
        self.turn.rounds += 1
        written = replace_surrogates(_convert_value_to_text(arguments))
        return ToolCall(id=f"call-{secrets.token_hex(4)}", name=replace_surrogates(name), arguments=written)

    def _append_call_and_result_messages(self, call: ToolCall, result: ToolResult) -> None:
        kept = replace(call, arguments=self.turn.redactor.redact_json(call.arguments))
        said = ToolResultMessage(call=call.id, tool=call.name, content=result.content, failed=not result.outcome.is_ok)
        self._append_messages(AssistantMessage(calls=(kept,)), said)

    def _append_messages(self, *messages: ChatMessage) -> None:
        self._messages += messages
        self.turn.messages = tuple(self._messages)

    def _redact_and_escape_text(self, text: str) -> str:
        return escape_lines_resembling_prompt_marks(self.turn.redactor.redact(replace_surrogates(text)).text)


def _convert_value_to_text(content: object) -> str:
    """Convert a tool's arguments or result of any type to text."""
    if isinstance(content, str):
        return content
    if isinstance(content, bytes | bytearray | memoryview):
        return f"[{len(content):,} bytes]"
    try:
        return json.dumps(content, ensure_ascii=False, default=_convert_object_to_str_or_repr)
    except (TypeError, ValueError, RecursionError):
        return reprlib.repr(content)


def _convert_object_to_str_or_repr(thing: object) -> str:
    try:
        return str(thing)
    # The object is the host's, and its `__str__` can raise anything.
    except Exception:
        return reprlib.repr(thing)


TurnOpener = Callable[[], Coroutine[Any, Any, HostedTurnRunner]]
CallArguments = Mapping[str, object] | str


class _HostTurnBase:
    """The read-only part shared by the synchronous and asynchronous turn."""

    def __init__(self, hosted: HostedTurnRunner, loop: EventLoopThread) -> None:
        self._hosted = hosted
        self._loop = loop

    @property
    def id(self) -> str:
        """The id of the turn in the journal; `habitus.outcome(id, …)` judges it later."""
        return self._hosted.turn.id

    @property
    def conversation(self) -> str:
        """The id with which the next turn continues this conversation."""
        return self._hosted.turn.user_input.request.conversation

    @property
    def system(self) -> str:
        """The stable system prompt: identity, profile, rules and the menu of skills."""
        return self._hosted.turn.system

    @property
    def context(self) -> str:
        """The text chosen for this request; put it into the message before the person's words."""
        return self._hosted.context

    @property
    def images(self) -> tuple[Image, ...]:
        """The attached images, for a model that sees them; `context` describes the other attachments."""
        return self._hosted.images

    @property
    def is_judged(self) -> bool:
        """Whether the outcome has been reported explicitly."""
        return bool(self._hosted.turn.judged_by)

    @property
    def notices(self) -> tuple[str, ...]:
        """Messages for the person: redacted secrets, an unavailable database."""
        return tuple(self._hosted.notices)

    def tools(self, form: str = "json", *, profile: str | Collection[str] = "default") -> list[dict[str, Any]]:
        """Return our tools in a provider's format: "anthropic", "openai" or plain "json".

        A profile is "default", "read" or "all", each including the code of skills; a list of names selects exactly
        those.
        """
        return [
            _format_tool_spec_for_provider(spec, form) for spec in self._hosted.list_tools_and_record_as_shown(profile)
        ]

    def has(self, name: str) -> bool:
        """Whether a tool of that name is ours to run."""
        return self._hosted.has_tool(name)


class HostTurn(_HostTurnBase):
    """A turn of your own loop. Any thread may call it; each call blocks until its result is there."""

    def run(self, name: str, arguments: CallArguments = "") -> ToolResult:
        """Run one of our tools with arguments as the model wrote them or as a mapping."""
        return self._loop.run_and_wait(self._hosted.run_tool(name, arguments))

    def observe(
        self, name: str, arguments: CallArguments, content: object, ok: bool | None = True, *, intent: str = ""
    ) -> str:
        """Report a call to one of your tools; return "" or a line to show beside its result.

        `intent` is the purpose of the call if the model declared one; `ok` is None if the outcome is unknown.
        """
        return self._loop.run_and_wait(
            self._hosted.record_host_call_and_get_nudge(name, arguments, content, ok, intent)
        )

    def done(self, reply: str = "", ok: bool | None = None, reason: str = "") -> None:
        """End the turn with this reply. Pass `ok` only if you know: from a test, a validator or a person."""
        self._loop.run_and_wait(self._hosted.end_with_reply(reply, ok, reason))

    def failed(self, reason: str) -> None:
        """End the turn as failed."""
        self.done(ok=False, reason=reason)

    def close(self) -> None:
        """End the turn without an outcome of your own; no effect after `done`."""
        self._loop.run_and_wait(self._hosted.end_without_reply())


class AsyncHostTurn(_HostTurnBase):
    """The same for an asynchronous loop."""

    async def run(self, name: str, arguments: CallArguments = "", *, watch: Watch = lambda text: None) -> ToolResult:
        """Run one of our tools; `watch` receives its progress in another thread."""
        return await self._loop.run_async(self._hosted.run_tool(name, arguments, watch))

    async def observe(
        self, name: str, arguments: CallArguments, content: object, ok: bool | None = True, *, intent: str = ""
    ) -> str:
        """Report a call to one of your tools; return "" or a line to show beside its result."""
        return await self._loop.run_async(
            self._hosted.record_host_call_and_get_nudge(name, arguments, content, ok, intent)
        )

    async def done(self, reply: str = "", ok: bool | None = None, reason: str = "") -> None:
        """End the turn with this reply."""
        await self._loop.run_async(self._hosted.end_with_reply(reply, ok, reason))

    async def failed(self, reason: str) -> None:
        """End the turn as failed."""
        await self.done(ok=False, reason=reason)

    async def close(self) -> None:
        """End the turn without an outcome of your own; no effect after `done`."""
        await self._loop.run_async(self._hosted.end_without_reply())


class TurnContextManager:
    """Returned by `habitus.turn(…)`: opens a turn with `with`, `async with`, or `open` and the turn's `close`.

    Leaving the block by an exception, or without `done` or `failed`, records an outcome that counts for nothing.
    """

    def __init__(self, loop: EventLoopThread, opening: TurnOpener) -> None:
        self._loop = loop
        self._opening = opening
        self._hosted: HostedTurnRunner | None = None

    def open(self) -> HostTurn:
        """Open the turn without a block; end it with `done`, `failed` or `close`."""
        return self.__enter__()

    async def aopen(self) -> AsyncHostTurn:
        """Open the turn without a block, asynchronously."""
        return await self.__aenter__()

    # A common mistake is to use the turn without opening it, so that error names the fix.
    def __getattr__(self, name: str) -> Any:
        if hasattr(HostTurn, name):
            raise Invalid(
                "The turn is not open.", hint="Say 'with habitus.turn(…) as turn:', or 'turn = habitus.turn(…).open()'."
            )
        raise AttributeError(name)

    def __enter__(self) -> HostTurn:
        self._hosted = self._loop.run_and_wait(self._opening())
        return HostTurn(self._hosted, self._loop)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._loop.run_and_wait(self._end_turn_after_block(error))

    async def __aenter__(self) -> AsyncHostTurn:
        self._hosted = await self._loop.run_async(self._opening())
        return AsyncHostTurn(self._hosted, self._loop)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._loop.run_async(self._end_turn_after_block(error))

    async def _end_turn_after_block(self, error: BaseException | None) -> None:
        assert self._hosted is not None
        if isinstance(error, KeyboardInterrupt | asyncio.CancelledError):
            await self._hosted.end_as_cancelled()
        elif error is not None:
            await self._hosted.end_without_reply(
                build_infrastructure_failure_outcome(f"{type(error).__name__}: {error}"[:500])
            )
        else:
            await self._hosted.end_without_reply()


def _format_tool_spec_for_provider(spec: ToolSpec, form: str) -> dict[str, Any]:
    match form:
        case "json":
            return {"name": spec.name, "description": spec.description, "parameters": dict(spec.parameters)}
        case "anthropic":
            return {"name": spec.name, "description": spec.description, "input_schema": dict(spec.parameters)}
        case "openai":
            return {"type": "function", "function": _format_tool_spec_for_provider(spec, "json")}
    raise Invalid(f"There is no form '{form}' of a tool.", hint="There are: json, anthropic, openai.")
