"""A turn between its request and its end, for any loop: prompt, tools, calls, results, nudges, outcome."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from habitus import tracing
from habitus.agent.background import in_thread
from habitus.agent.prompts.composer import Composer, Parts
from habitus.agent.prompts.prompt import Composed
from habitus.agent.recorder import MODEL, TurnRecorder, TurnState
from habitus.agent.stream import Emit, Noticed, Nudged, ToolFinished, ToolProgress, ToolStarted
from habitus.agent.tools.registry import Registry, Running
from habitus.events import Event, Outcome, ToolCall, ToolResult, TurnObserver, call_returned, failure, tool_called
from habitus.llm.model import Asked, Text
from habitus.memory.recall import Recall
from habitus.redact import Redactor
from habitus.text import block

log = logging.getLogger(__name__)

# An observer that takes longer is skipped for this round.
_ADVICE_S = 2.0


@dataclass(kw_only=True, eq=False)
class OpenTurn(TurnState):
    """An open turn; needs no model. `open` it, show `system` and `context`, report each call, and always `close` it."""

    parts: Parts
    composer: Composer
    recorder: TurnRecorder
    emit: Emit
    began: float = field(default_factory=time.monotonic)
    system: str = ""  # redacted, as sent
    context: str = ""  # the marked block beside the request
    last_results: list[Outcome] = field(default_factory=list)
    _remembered: Recall = field(default_factory=Recall)

    def __post_init__(self) -> None:
        self._ids = {"turn": self.id, "session": self.recorder.session}
        self._stretch = tracing.Stretch("turn", **self._ids)

    # The opening steps query the database: call them in a thread, in this order.

    def look(self) -> None:
        """Take a fresh snapshot of the library."""
        self.parts.view.begin()

    def recall(self) -> None:
        """Refresh the library and recall what memory has for the request."""
        self.look()
        self.parts.view.outage.safely(self.parts.files.refresh, "bring the files of skills up to date")
        self.composer.refresh()
        if self.said.asking.invoked is not None:
            self.parts.view.note_loaded(self.said.asking.invoked, is_asked=False)
        self._remembered = self.composer.recall(self.said.request)

    def select(self) -> None:
        """Select the skills for the request."""
        with tracing.span("select"):
            self.selection = self.composer.select(self.said.request)

    def compose(self) -> None:
        """Compose the redacted prompt."""
        assert self.selection is not None
        redact = self.parts.view.redactor.redact
        self.composed = self.composer.compose(self.said.request, self.selection, self._remembered)
        self.system = redact(self.composed.prompt.system_text).text
        self.context = redact(self.composed.prompt.context_text).text

    def begin(self) -> None:
        """Record the request in the journal."""
        self.recorder.begin(self)

    async def open(self, *, shows_prompt: bool = True, told: Composed | None = None) -> None:
        """Do all the opening steps, for hosts with their own loop.

        Without a prompt, only what the model was `told` already counts as shown.
        """
        if told is not None:
            self.composed, self.context = told, self.parts.view.redactor.redact(told.prompt.context_text).text
        steps = (self.recall, self.select, self.compose) if shows_prompt else (self.look, self.select)
        with self.trace():
            for step in (*steps, self.begin):
                await in_thread(step)

    @contextmanager
    def trace(self) -> Iterator[None]:
        """Attach log lines and spans inside the block to this turn."""
        with tracing.about(**self._ids), self._stretch.within():
            yield

    @property
    def redactor(self) -> Redactor:
        return self.parts.view.redactor

    @property
    def trouble(self) -> str:
        """Why the database was unavailable in this turn, or empty."""
        return self.parts.view.outage.trouble

    @property
    def message(self) -> Asked:
        """The user message: the marked block, the attachments and the person's words."""
        context = [Text(text=self.context)] if self.context else []
        return Asked(parts=(*context, *self.said.parts, Text(text=self.said.request.text)))

    @property
    def looks(self) -> int:
        """A counter of library snapshots; when it changes, the tools may have changed."""
        return self.parts.view.looks

    def tools(self) -> Registry:
        """Return the tools the model may call now. May query the database."""
        return self.parts.tools.registry(self.said.request)

    async def run(self, call: ToolCall, tools: Registry) -> ToolResult:
        """Run one call, emitting its events and notifying the observers."""
        redactor, person = self.parts.view.redactor, self.parts.person
        # A person's thinking time is subtracted from the tool's.
        began, asked_s = time.monotonic(), person.took_s
        self.emit(ToolStarted(call=call.id, tool=call.name, arguments=redactor.redact_json(call.arguments)))
        self._record_call(call)
        running = Running(
            call=call.id,
            turn=self.id,
            round_idx=self.rounds,
            progress=lambda text: self.emit(ToolProgress(call=call.id, text=text)),
            observe=self.observe,
            report=self.report,
            redactor=redactor,
            sees_images=self.said.asking.sees_images,
        )
        await self.parts.ready()
        with self.trace(), tracing.span("tool", tool=call.name):
            result = await tools.run(call, running)
        self.observe(call_returned(call, result, round_idx=self.rounds))
        seconds = max(time.monotonic() - began - (person.took_s - asked_s), 0.0)
        self.emit(
            ToolFinished(
                call=call.id,
                tool=call.name,
                outcome=result.outcome,
                content=result.content,
                seconds=seconds,
                made=result.made,
            )
        )
        return result

    def saw(self, call: ToolCall, result: ToolResult, *, intent: str = "", is_known: bool = True) -> None:
        """Record a call that the host has run; `is_known` is False if its outcome is unknown."""
        self._record_call(call, intent)
        self.observe(call_returned(call, result, round_idx=self.rounds, is_known=is_known))
        self.last_results = [result.outcome]

    def _record_call(self, call: ToolCall, intent: str = "") -> None:
        args, redactor = call.arguments, self.parts.view.redactor
        self.observe(
            tool_called(call.name, args, intent=intent, round_idx=self.rounds, call_id=call.id, redactor=redactor)
        )

    def observe(self, seen: Event) -> None:
        """Record an event and pass it to the observers."""
        self.events.append(seen)
        self._tell(lambda observer: observer.observe(seen))

    async def advise(self) -> list[str]:
        """Return the observers' nudges. One that fails or is too slow is skipped."""
        said: list[str] = []
        for observer in self.parts.observers:
            try:
                said += map(block, await asyncio.wait_for(_begun(observer.advise()), _ADVICE_S))
            except Exception:
                log.warning("An observer could not advise; the turn goes on.", exc_info=True)
        for nudge in said:
            self.emit(Nudged(text=nudge))
        return said

    def finish(self, reply: str, *, may_be_empty: bool = False) -> None:
        """Set the reply, and the outcome by how the turn ended rather than by what the reply claims."""
        self.reply = reply
        bad = [outcome for outcome in self.last_results if not outcome.is_ok]
        if self.is_capped:
            self.outcome = failure("the tool rounds ran out")
        elif not reply.strip() and not may_be_empty:
            self.outcome = failure("the answer was empty")
        elif bad and len(bad) == len(self.last_results):
            self.outcome = failure(f"the last tool call failed: {bad[-1].reason}")

    def report(self, outcome: Outcome) -> None:
        """Set the outcome that the model reports about itself."""
        self.outcome, self.judged_by = outcome, MODEL

    def cancel(self) -> None:
        """Mark the turn as cancelled and tell the observers."""
        self.is_cancelled = True
        self._tell(lambda observer: observer.cancelled())

    async def close(self) -> int:
        """Record the turn and start learning; return the number of pending changes.

        In the background it rescans the skill directories, so manual changes show in the next turn.
        """
        self.loaded, self.asked = tuple(self.parts.view.loaded.values()), frozenset(self.parts.view.asked)
        self._count()
        with self.trace():
            told = await in_thread(lambda: self.recorder.finish(self, has_news=self.composer.has_news))
        self._stretch.end()
        if not self.is_cancelled:
            self.recorder.teach(self)
            if self.outcome.is_ok:
                self.composer.has_told()
        # While the database is down this would only delay the next turn, which tries again.
        if self.outcome.is_ok and not self.is_cancelled and not self.trouble:
            self.parts.background.spawn(asyncio.to_thread(self.recorder.credit, self))
        for notice in told.notices:
            self.emit(Noticed(text=notice))
        if self.parts.view.is_large and not self.trouble:
            self.parts.background.spawn(asyncio.to_thread(self.parts.view.look_ahead))
        return told.waiting

    def _count(self) -> None:
        tracing.count("turns", outcome=self.outcome.kind.value)
        tracing.count("tokens", self.usage.input_tokens, direction="input")
        tracing.count("tokens", self.usage.output_tokens, direction="output")

    def _tell(self, what: Callable[[TurnObserver], None]) -> None:
        for observer in self.parts.observers:
            try:
                what(observer)
            except Exception:
                log.warning("An observer failed; the turn goes on.", exc_info=True)


async def _begun(advice: Awaitable[Sequence[str]]) -> Sequence[str]:
    return await advice
