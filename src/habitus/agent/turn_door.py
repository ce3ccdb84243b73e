"""The door into a turn for any loop: `with habitus.turn(…)`, or `async with` and the same methods awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from types import TracebackType
from typing import Any

from habitus.agent.hosted_turn import HostedTurn, Watch
from habitus.agent.loop_thread import LoopThread
from habitus.errors import Invalid
from habitus.events import ToolResult, infra
from habitus.llm.model import Image, ToolSpec

Opening = Callable[[], Awaitable[HostedTurn]]
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
        """What was chosen for this request; it belongs into the message, before the person's words."""
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
        """What the person should know: secrets that were taken out, a database that is away."""
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
        self._hosted = self._loop.wait(self._open())
        return HostTurn(self._hosted, self._loop)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.wait(self._leave(error))

    async def __aenter__(self) -> AsyncHostTurn:
        self._hosted = await self._loop.ask(self._open())
        return AsyncHostTurn(self._hosted, self._loop)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._loop.ask(self._leave(error))

    async def _open(self) -> HostedTurn:
        return await self._opening()

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
