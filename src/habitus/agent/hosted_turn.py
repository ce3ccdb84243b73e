"""A turn of somebody else's loop: what it is shown, calls of ours and of theirs, and how it ended."""

from __future__ import annotations

import asyncio
import json
import reprlib
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from habitus.agent.background import in_thread
from habitus.agent.open_turn import OpenTurn
from habitus.agent.prompt import Composed
from habitus.agent.stream import Noticed, ToolProgress, TurnEvent
from habitus.agent.tools.registry import Registry, cap_result
from habitus.errors import Invalid
from habitus.events import OK, Outcome, ToolCall, ToolResult, failed, infra
from habitus.llm.model import Answered, Image, Message, Returned, Text, ToolSpec
from habitus.text import block, encodable

Watch = Callable[[str], None]

HOST = "host"  # the source of what whoever runs the loop says of a turn
_UNSAID = infra("nobody said how it went")


class HostedTurn:
    """Runs on one event loop, whoever calls: its coroutines are awaited there and nowhere else."""

    def __init__(self) -> None:
        self.notices: list[str] = []  # what the person should know
        self.is_over = False
        self._watched: dict[str, Watch] = {}  # calls whose progress somebody wants to hear of
        self._registry = Registry()
        self._messages: list[Message] = []
        self._one_at_a_time = asyncio.Lock()
        self._turn: OpenTurn | None = None

    def emit(self, seen: TurnEvent) -> None:
        if isinstance(seen, Noticed):
            self.notices.append(seen.text)
        elif isinstance(seen, ToolProgress) and seen.call in self._watched:
            self._watched[seen.call](seen.text)

    async def begin(self, turn: OpenTurn, *, shows_prompt: bool = True, told: Composed | None = None) -> None:
        self.notices += turn.said.notices
        self._turn = turn
        turn.shown_tools = set() if shows_prompt else None  # a loop that shows our prompt says which tools it takes
        try:
            await turn.open(shows_prompt=shows_prompt, told=told)
            self._registry = await in_thread(turn.tools)
        except BaseException:
            await self.abandon()
            raise
        self._keep(turn.message)

    @property
    def turn(self) -> OpenTurn:
        if self._turn is None:
            raise Invalid("The turn is not open.", mend="Use it in a 'with' or 'async with' block.")
        return self._turn

    @property
    def context(self) -> str:
        """The marked block, and in words what is attached."""
        attached = [part.text for part in self.turn.said.parts if isinstance(part, Text)]
        return "\n\n".join(text for text in (self.turn.context, *attached) if text)

    @property
    def images(self) -> tuple[Image, ...]:
        return tuple(part for part in self.turn.said.parts if isinstance(part, Image))

    def tools(self, profile: str | Collection[str]) -> list[ToolSpec]:
        offered = [tool.spec for tool in self._registry.all_tools() if tool.is_in(profile)]
        if self.turn.shown_tools is not None:
            self.turn.shown_tools |= {spec.name for spec in offered}
        return offered

    def has(self, name: str) -> bool:
        return self._registry.knows(name)

    async def run(
        self, name: str, arguments: Mapping[str, object] | str, watch: Watch = lambda text: None
    ) -> ToolResult:
        """One call of ours. What the observers have to say stands below its result; `watch` hears how it goes."""
        call, looks = self._record_call(name, arguments), self.turn.looks
        self._watched[call.id] = watch
        try:
            result = await self._ran(call)
        finally:
            del self._watched[call.id]
        self.turn.last_results = [result.outcome]
        if self.turn.looks != looks:
            self._registry = await in_thread(self.turn.tools)  # it may have made one
        self._record_result(call, result)
        nudge = await self._advice()
        return replace(result, content=f"{result.content}\n\n{nudge}") if nudge else result

    async def _ran(self, call: ToolCall) -> ToolResult:
        if self._registry.is_parallel(call):
            return await self.turn.run(call, self._registry)
        async with self._one_at_a_time:
            return await self.turn.run(call, self._registry)

    async def observe(
        self, name: str, arguments: Mapping[str, object] | str, content: object, ok: bool | None, intent: str
    ) -> str:
        """A call that somebody else has run; what to say beside its result. Nobody knows how it went: `ok` None."""
        call = self._record_call(name, arguments)
        said = self._sound(_as_text(content))
        outcome = failed(said[-500:].strip() or "it failed") if ok is False else OK
        result = cap_result(ToolResult(content=said, outcome=outcome))
        self.turn.saw(call, result, intent=intent, is_known=ok is not None)
        self._record_result(call, result)
        return await self._advice()

    async def done(self, reply: str, ok: bool | None, reason: str) -> None:
        """The host has its reply; how it went, it may know (`ok`), or else the signals tell as in our own session."""
        if self.is_over:
            return  # whoever ends it twice is not heard
        turn, said = self.turn, self._sound(reply)
        if ok is None and turn.judged_by:
            turn.reply = said  # the model's own word stands
        else:
            turn.finish(said, may_be_empty=True)
        if ok is not None:
            turn.outcome = OK if ok else failed(self._sound(reason) or "the host says so")
            turn.judged_by = HOST
        if said:
            self._keep(Answered(text=said))
        await self._close()

    async def end(self, outcome: Outcome = _UNSAID) -> None:
        """The loop has left it, with or without a reason."""
        if self.is_over:
            return
        if outcome is not _UNSAID or not self.turn.judged_by:
            self.turn.outcome = replace(outcome, reason=self._sound(outcome.reason))
            self.turn.judged_by = ""
        await self._close()

    async def abandon(self) -> None:
        """It was cancelled: nothing of it teaches."""
        if not self.is_over:
            self.turn.cancel()
            await self.end(infra("cancelled"))

    async def _close(self) -> None:
        self.is_over = True
        await self.turn.close()

    async def _advice(self) -> str:
        return "\n".join(await self.turn.advise())

    def _record_call(self, name: str, arguments: Mapping[str, object] | str) -> ToolCall:
        if self.is_over:
            raise Invalid("The turn is over.", mend="Begin the next one with habitus.turn(…).")
        self.turn.rounds += 1
        written = encodable(_as_text(arguments))
        return ToolCall(id=f"call-{secrets.token_hex(4)}", name=encodable(name), arguments=written)

    def _record_result(self, call: ToolCall, result: ToolResult) -> None:
        kept = replace(call, arguments=self.turn.redactor.redact_json(call.arguments))
        said = Returned(call=call.id, tool=call.name, content=result.content, failed=not result.outcome.is_ok)
        self._keep(Answered(calls=(kept,)), said)

    def _keep(self, *messages: Message) -> None:
        self._messages += messages
        self.turn.messages = tuple(self._messages)

    def _sound(self, text: str) -> str:
        return block(self.turn.redactor.redact(encodable(text)).text)


def _as_text(content: object) -> str:
    """Whatever a tool of theirs was given or returned, in words."""
    if isinstance(content, str):
        return content
    if isinstance(content, bytes | bytearray | memoryview):
        return f"[{len(content):,} bytes]"
    try:
        return json.dumps(content, ensure_ascii=False, default=_in_words)
    except (TypeError, ValueError, RecursionError):
        return reprlib.repr(content)


def _in_words(thing: object) -> str:
    try:
        return str(thing)
    except Exception:  # theirs, and it can do anything
        return reprlib.repr(thing)
