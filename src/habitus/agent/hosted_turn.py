"""A turn of somebody else's loop, and the door into it: `with habitus.turn(…)`, or the same methods awaited."""

from __future__ import annotations

import asyncio
import json
import reprlib
import secrets
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any

from habitus.agent.background import LoopThread, in_thread
from habitus.agent.open_turn import OpenTurn
from habitus.agent.prompts.prompt import Composed
from habitus.agent.stream import Noticed, ToolProgress, TurnEvent
from habitus.agent.tools.registry import Registry, cap_result
from habitus.errors import Invalid
from habitus.events import OK, Outcome, ToolCall, ToolResult, failure, infra
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
        outcome = failure(said[-500:].strip() or "it failed") if ok is False else OK
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
            turn.outcome = OK if ok else failure(self._sound(reason) or "the host says so")
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


Opening = Callable[[], Coroutine[Any, Any, HostedTurn]]
Given = Mapping[str, object] | str


class _Door:
    def __init__(self, hosted: HostedTurn, loop: LoopThread) -> None:
        self._hosted = hosted
        self._loop = loop

    @property
    def id(self) -> str:
        """Of the turn in the journal: `habitus.outcome(id, …)` judges it later."""
        return self._hosted.turn.id

    @property
    def conversation(self) -> str:
        """The id under which the next turn goes on with this conversation."""
        return self._hosted.turn.said.request.conversation

    @property
    def system(self) -> str:
        """The steady text of the conversation: identity, profile, rules and the menu of skills."""
        return self._hosted.turn.system

    @property
    def context(self) -> str:
        """The text chosen for this request; it belongs into the message, before the person's words."""
        return self._hosted.context

    @property
    def images(self) -> tuple[Image, ...]:
        """The attached images, for a model that sees them; `context` says what else is attached."""
        return self._hosted.images

    @property
    def is_judged(self) -> bool:
        """Whether somebody has said how it went."""
        return bool(self._hosted.turn.judged_by)

    @property
    def notices(self) -> tuple[str, ...]:
        """Sentences the person should read: secrets that were taken out, a database that is away."""
        return tuple(self._hosted.notices)

    def tools(self, form: str = "json", *, profile: str | Collection[str] = "default") -> list[dict[str, Any]]:
        """Our tools as a provider's interface takes them: "anthropic", "openai", or plain "json".

        A profile is "default", "read" or "all", each with the code of skills beside; a list of names is just those.
        """
        return [_in_form(spec, form) for spec in self._hosted.tools(profile)]

    def has(self, name: str) -> bool:
        """Whether a call of that name is ours to run."""
        return self._hosted.has(name)


class HostTurn(_Door):
    """A turn of your own loop. Any thread may call it; each call waits for what it comes to."""

    def run(self, name: str, arguments: Given = "") -> ToolResult:
        """Run one of our tools, with its arguments as the model wrote them or as a mapping."""
        return self._loop.wait(self._hosted.run(name, arguments))

    def observe(self, name: str, arguments: Given, content: object, ok: bool | None = True, *, intent: str = "") -> str:
        """Tell of a call to one of your tools: "", or a line to say beside its result.

        `intent` is what the call was meant to do, where the model declared it; `ok` None where nobody knows.
        """
        return self._loop.wait(self._hosted.observe(name, arguments, content, ok, intent))

    def done(self, reply: str = "", ok: bool | None = None, reason: str = "") -> None:
        """The turn is over, with this reply. Say `ok` only where you know: by a test, a validator, a person."""
        self._loop.wait(self._hosted.done(reply, ok, reason))

    def failed(self, reason: str) -> None:
        """The turn is over, and did not do what was asked."""
        self.done(ok=False, reason=reason)

    def close(self) -> None:
        """The turn is over, and nobody says how it went but perhaps the model; after `done` it changes nothing."""
        self._loop.wait(self._hosted.end())


class AsyncHostTurn(_Door):
    """The same for a loop that is asynchronous."""

    async def run(self, name: str, arguments: Given = "", *, watch: Watch = lambda text: None) -> ToolResult:
        """`watch` hears how the call goes, in another thread."""
        return await self._loop.ask(self._hosted.run(name, arguments, watch))

    async def observe(
        self, name: str, arguments: Given, content: object, ok: bool | None = True, *, intent: str = ""
    ) -> str:
        return await self._loop.ask(self._hosted.observe(name, arguments, content, ok, intent))

    async def done(self, reply: str = "", ok: bool | None = None, reason: str = "") -> None:
        await self._loop.ask(self._hosted.done(reply, ok, reason))

    async def failed(self, reason: str) -> None:
        await self.done(ok=False, reason=reason)

    async def close(self) -> None:
        """The turn is over, and nobody says how it went but perhaps the model; after `done` it changes nothing."""
        await self._loop.ask(self._hosted.end())


class TurnDoor:
    """What `habitus.turn(…)` returns: the way into a turn, by `with` or `async with`; or `open` and the turn's `close`,
    where a block does not fit.

    Whoever leaves it by an exception, or without `done` or `failed`, leaves an outcome that counts for nothing.
    """

    def __init__(self, loop: LoopThread, opening: Opening) -> None:
        self._loop = loop
        self._opening = opening
        self._hosted: HostedTurn | None = None

    def open(self) -> HostTurn:
        """The turn without a block: whoever opens it ends it, by `done`, `failed` or `close`."""
        return self.__enter__()

    async def aopen(self) -> AsyncHostTurn:
        return await self.__aenter__()

    def __getattr__(self, name: str) -> Any:
        if hasattr(HostTurn, name):
            raise Invalid(
                "The turn is not open.", mend="Say 'with habitus.turn(…) as turn:', or 'turn = habitus.turn(…).open()'."
            )
        raise AttributeError(name)

    def __enter__(self) -> HostTurn:
        self._hosted = self._loop.wait(self._opening())
        return HostTurn(self._hosted, self._loop)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.wait(self._leave(error))

    async def __aenter__(self) -> AsyncHostTurn:
        self._hosted = await self._loop.ask(self._opening())
        return AsyncHostTurn(self._hosted, self._loop)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._loop.ask(self._leave(error))

    async def _leave(self, error: BaseException | None) -> None:
        assert self._hosted is not None
        if isinstance(error, KeyboardInterrupt | asyncio.CancelledError):
            await self._hosted.abandon()
        elif error is not None:
            await self._hosted.end(infra(f"{type(error).__name__}: {error}"[:500]))
        else:
            await self._hosted.end()


def _in_form(spec: ToolSpec, form: str) -> dict[str, Any]:
    match form:
        case "json":
            return {"name": spec.name, "description": spec.description, "parameters": dict(spec.parameters)}
        case "anthropic":
            return {"name": spec.name, "description": spec.description, "input_schema": dict(spec.parameters)}
        case "openai":
            return {"type": "function", "function": _in_form(spec, "json")}
    raise Invalid(f"There is no form '{form}' of a tool.", mend="There are: json, anthropic, openai.")
