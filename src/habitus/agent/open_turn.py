"""A turn between its request and its end, for any loop: prompt, tools, calls, results, nudges, outcome."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from habitus import tracing
from habitus.agent.background import run_in_thread
from habitus.agent.prompts.composer import ConversationServices, PromptComposer
from habitus.agent.prompts.prompt import ComposedPrompt
from habitus.agent.recording.outcomes import MODEL
from habitus.agent.recording.recorder import TurnRecorder
from habitus.agent.stream import Emit, NoticeEvent, NudgeEvent, ToolFinished, ToolProgress, ToolStarted
from habitus.agent.tools.registry import ToolCallContext, ToolRegistry
from habitus.agent.turn_state import TurnState
from habitus.events import (
    AgentEvent,
    Outcome,
    ToolCall,
    ToolResult,
    TurnObserver,
    build_event_from_tool_result,
    build_failed_outcome,
    build_tool_call_event,
)
from habitus.llm.model import PersonMessage, TextContent
from habitus.memory.recall import RecallResult
from habitus.redact import Redactor
from habitus.text import escape_lines_resembling_prompt_marks

log = logging.getLogger(__name__)

# An observer that takes longer is skipped for this round.
_ADVICE_S = 2.0


@dataclass(kw_only=True, eq=False)
class OpenTurn(TurnState):
    """An open turn; needs no model. `open` it, show `system` and `context`, report each call, and always `close` it."""

    parts: ConversationServices
    composer: PromptComposer
    recorder: TurnRecorder
    emit: Emit
    began: float = field(default_factory=time.monotonic)
    system: str = ""  # redacted, as sent
    context: str = ""  # the marked block beside the request
    last_results: list[Outcome] = field(default_factory=list)
    _remembered: RecallResult = field(default_factory=RecallResult)

    def __post_init__(self) -> None:
        self._ids = {"turn": self.id, "session": self.recorder.session}
        self._stretch = tracing.ManualSpan("turn", **self._ids)

    # The opening steps query the database: call them in a thread, in this order.

    def retake_library_snapshot(self) -> None:
        """Take a fresh snapshot of the library."""
        self.parts.view.reset_loaded_and_take_snapshot()

    def refresh_library_and_recall_memory(self) -> None:
        """Refresh the library and recall what memory has for the request."""
        self.retake_library_snapshot()
        self.parts.view.outage.try_write(self.parts.files.refresh_placed_files, "bring the files of skills up to date")
        self.composer.rebuild_session_prompt_if_needed()
        if self.user_input.asking.invoked is not None:
            self.parts.view.record_loaded_skill(self.user_input.asking.invoked, is_asked=False)
        self._remembered = self.composer.recall_lessons_for_request(self.user_input.request)

    def select_skills(self) -> None:
        """Select the skills for the request."""
        with tracing.trace_span("select"):
            self.selection = self.composer.select_skills(self.user_input.request)

    def compose_prompt(self) -> None:
        """Compose the redacted prompt."""
        assert self.selection is not None
        redact = self.parts.view.redactor.redact
        self.composed = self.composer.compose_prompt(self.user_input.request, self.selection, self._remembered)
        self.system = redact(self.composed.prompt.system_text).text
        self.context = redact(self.composed.prompt.context_text).text

    def record_request_in_journal(self) -> None:
        """Record the request in the journal."""
        self.recorder.record_request_in_journal(self)

    async def open(self, *, shows_prompt: bool = True, told: ComposedPrompt | None = None) -> None:
        """Do all the opening steps, for hosts with their own loop.

        Without a prompt, only what the model was `told` already counts as shown.
        """
        if told is not None:
            self.composed, self.context = told, self.parts.view.redactor.redact(told.prompt.context_text).text
        steps = (
            (self.refresh_library_and_recall_memory, self.select_skills, self.compose_prompt)
            if shows_prompt
            else (self.retake_library_snapshot, self.select_skills)
        )
        with self.attach_telemetry():
            for step in (*steps, self.record_request_in_journal):
                await run_in_thread(step)

    @contextmanager
    def attach_telemetry(self) -> Iterator[None]:
        """Attach log lines and spans inside the block to this turn."""
        with tracing.add_log_context(**self._ids), self._stretch.activate():
            yield

    @property
    def redactor(self) -> Redactor:
        return self.parts.view.redactor

    @property
    def outage_reason(self) -> str:
        """Why the database was unavailable in this turn, or empty."""
        return self.parts.view.outage.failure_reason

    @property
    def user_message(self) -> PersonMessage:
        """The user message: the marked block, the attachments and the person's words."""
        context = [TextContent(text=self.context)] if self.context else []
        return PersonMessage(parts=(*context, *self.user_input.parts, TextContent(text=self.user_input.request.text)))

    @property
    def library_snapshot_revision(self) -> int:
        """A counter of library snapshots; when it changes, the tools may have changed."""
        return self.parts.view.revision

    def build_tool_registry(self) -> ToolRegistry:
        """Return the tools the model may call now. May query the database."""
        return self.parts.tools.build_tool_registry(self.user_input.request)

    async def run_tool(self, call: ToolCall, tools: ToolRegistry) -> ToolResult:
        """Run one call, emitting its events and notifying the observers."""
        redactor, person = self.parts.view.redactor, self.parts.person
        # A person's thinking time is subtracted from the tool's.
        began, asked_s = time.monotonic(), person.took_s
        self.emit(ToolStarted(call=call.id, tool=call.name, arguments=redactor.redact_json(call.arguments)))
        self._record_tool_call_event(call, at=self._format_time_now())
        running = ToolCallContext(
            call=call.id,
            turn=self.id,
            round_idx=self.rounds,
            progress=lambda text: self.emit(ToolProgress(call=call.id, text=text)),
            observe=self.record_event_and_notify_observers,
            report=self.set_outcome_reported_by_model,
            redactor=redactor,
            sees_images=self.user_input.asking.sees_images,
        )
        await self.parts.ready()
        with self.attach_telemetry(), tracing.trace_span("tool", tool=call.name):
            result = await tools.run_call(call, running)
        self.record_event_and_notify_observers(
            build_event_from_tool_result(call, result, round_idx=self.rounds, at=self._format_time_now())
        )
        seconds = max(time.monotonic() - began - (person.took_s - asked_s), 0.0)
        self.emit(
            ToolFinished(
                call=call.id,
                tool=call.name,
                outcome=result.outcome,
                content=result.content,
                seconds=seconds,
                made=result.created_files,
            )
        )
        return result

    def record_host_call(self, call: ToolCall, result: ToolResult, *, intent: str = "", is_known: bool = True) -> None:
        """Record a call that the host has run; `is_known` is False if its outcome is unknown."""
        self._record_tool_call_event(call, intent)
        self.record_event_and_notify_observers(
            build_event_from_tool_result(call, result, round_idx=self.rounds, is_known=is_known)
        )
        self.last_results = [result.outcome]

    def _format_time_now(self) -> str:
        return self.parts.clock().isoformat(timespec="milliseconds")

    def _record_tool_call_event(self, call: ToolCall, intent: str = "", at: str = "") -> None:
        args, redactor = call.arguments, self.parts.view.redactor
        self.record_event_and_notify_observers(
            build_tool_call_event(
                call.name, args, intent=intent, round_idx=self.rounds, call_id=call.id, at=at, redactor=redactor
            )
        )

    def record_event_and_notify_observers(self, seen: AgentEvent) -> None:
        """Record an event and pass it to the observers."""
        self.events.append(seen)
        self._notify_observers(lambda observer: observer.observe(seen))

    async def collect_observer_nudges(self) -> list[str]:
        """Return the observers' nudges. One that fails or is too slow is skipped."""
        said: list[str] = []
        for observer in self.parts.observers:
            try:
                said += map(
                    escape_lines_resembling_prompt_marks,
                    await asyncio.wait_for(_await_observer_nudges(observer.list_new_advice()), _ADVICE_S),
                )
            except Exception:
                log.warning("An observer could not advise; the turn goes on.", exc_info=True)
        for nudge in said:
            self.emit(NudgeEvent(text=nudge))
        return said

    def set_reply_and_infer_outcome(self, reply: str, *, may_be_empty: bool = False) -> None:
        """Set the reply, and the outcome by how the turn ended rather than by what the reply claims."""
        self.reply = reply
        bad = [outcome for outcome in self.last_results if not outcome.is_ok]
        if self.is_capped:
            self.outcome = build_failed_outcome("the tool rounds ran out")
        elif not reply.strip() and not may_be_empty:
            self.outcome = build_failed_outcome("the answer was empty")
        elif bad and len(bad) == len(self.last_results):
            self.outcome = build_failed_outcome(f"the last tool call failed: {bad[-1].reason}")

    def set_outcome_reported_by_model(self, outcome: Outcome) -> None:
        """Set the outcome that the model reports about itself."""
        self.outcome, self.judged_by = outcome, MODEL

    def cancel(self) -> None:
        """Mark the turn as cancelled and tell the observers."""
        self.is_cancelled = True
        self._notify_observers(lambda observer: observer.drop_cancelled_turn())

    async def close(self) -> int:
        """Record the turn and start learning; return the number of pending changes.

        In the background it rescans the skill directories, so manual changes show in the next turn.
        """
        self.loaded, self.asked = tuple(self.parts.view.loaded.values()), frozenset(self.parts.view.asked)
        self._add_turn_and_token_metrics()
        with self.attach_telemetry():
            told = await run_in_thread(
                lambda: self.recorder.record_finished_turn(
                    self, can_have_library_news=self.composer.can_have_library_news
                )
            )
        self._stretch.end()
        if not self.is_cancelled:
            self.recorder.let_observers_learn_from_turn(self)
            if self.outcome.is_ok:
                self.composer.mark_library_news_as_told()
        # While the database is down this would only delay the next turn, which tries again.
        if self.outcome.is_ok and not self.is_cancelled and not self.outage_reason:
            self.parts.background.spawn(asyncio.to_thread(self.recorder.credit_skills_and_lessons_of_turn, self))
        for notice in told.notices:
            self.emit(NoticeEvent(text=notice))
        if self.parts.view.is_library_too_large_to_scan and not self.outage_reason:
            self.parts.background.spawn(asyncio.to_thread(self.parts.view.scan_directories_for_manual_changes))
        return told.pending

    def _add_turn_and_token_metrics(self) -> None:
        tracing.add_to_telemetry_counter("turns", outcome=self.outcome.kind.value)
        tracing.add_to_telemetry_counter("tokens", self.usage.input_tokens, direction="input")
        tracing.add_to_telemetry_counter("tokens", self.usage.output_tokens, direction="output")

    def _notify_observers(self, what: Callable[[TurnObserver], None]) -> None:
        for observer in self.parts.observers:
            try:
                what(observer)
            except Exception:
                log.warning("An observer failed; the turn goes on.", exc_info=True)


async def _await_observer_nudges(advice: Awaitable[Sequence[str]]) -> Sequence[str]:
    return await advice
