"""One turn, from top to bottom: recall, select, compose, ask, act, advise, finish."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, replace

from habitus import tracing
from habitus.agent.background import run_in_thread
from habitus.agent.history import MessageHistory
from habitus.agent.open_turn import OpenTurn
from habitus.agent.prompts import prompt
from habitus.agent.stream import Emit, NoticeEvent, ReplyDelta, TurnResult
from habitus.agent.tools.registry import ToolRegistry
from habitus.events import EventKind, ToolCall, ToolResult, build_event, build_infrastructure_failure_outcome
from habitus.llm.model import (
    AssistantMessage,
    CompletionRequest,
    CompletionResult,
    ContextOverflowError,
    Model,
    PersonMessage,
    ProviderError,
    StopReason,
    TextContent,
    TextDelta,
    ToolResultMessage,
    ToolSpec,
    estimate_message_tokens,
)
from habitus.redact import Redactor
from habitus.text import estimate_tokens, replace_surrogates

# A loop that has not converged by now is usually going in circles.
MAX_ROUNDS = 25
# Tokens of one answer; doubled when a tool call did not fit.
_FIRST_ROOM = 8192
_MOST_ROOM = 65536


@dataclass(kw_only=True, slots=True)
class _TurnLoopState:
    """The running turn with the model and the conversation it belongs to."""

    turn: OpenTurn
    model: Model
    history: MessageHistory
    context_tokens: int
    emit: Emit
    first: int  # index in the history at which the turn begins

    def copy_messages_to_turn(self) -> None:
        """Copy this turn's messages from the history to the turn."""
        self.turn.messages = tuple(self.history.messages[self.first :])


async def run_turn(turn: OpenTurn, model: Model, history: MessageHistory, *, context: int, emit: Emit) -> TurnResult:
    """Run a turn from request to reply. A provider's fault becomes the outcome; only a cancellation is raised."""
    # Only a resumed turn that was damaged needs this.
    repaired = history.make_valid_after_turn("This turn was not recorded completely.")
    first = len(history.messages)
    now = _TurnLoopState(turn=turn, model=model, history=history, context_tokens=context, emit=emit, first=first)
    _record_history_repair_events(now, repaired)
    for notice in turn.user_input.notices:
        emit(NoticeEvent(text=notice))
    try:
        await run_in_thread(turn.refresh_library_and_recall_memory)
        await run_in_thread(turn.select_skills)
        await run_in_thread(turn.compose_prompt)
        tools = (await run_in_thread(turn.build_tool_registry)).list_specs()
        history.add_messages(turn.user_message)
        # A dropped turn may contain text that the context block refers to, so it is composed again.
        if _shorten_history_to_fit(now, tools):
            await run_in_thread(turn.compose_prompt)
            history.messages[-1] = turn.user_message
        now.copy_messages_to_turn()
        await run_in_thread(turn.record_request_in_journal)
        turn.set_reply_and_infer_outcome(await _run_tool_loop(now))
    except ProviderError as fault:
        turn.outcome = build_infrastructure_failure_outcome(str(fault))
        emit(NoticeEvent(text=str(fault)))
    except asyncio.CancelledError:
        turn.outcome = build_infrastructure_failure_outcome("cancelled")
        turn.cancel()
        raise
    finally:
        waiting = await _repair_history_and_record_turn(now)
    done = TurnResult(
        turn=turn.id,
        reply=turn.reply,
        outcome=turn.outcome,
        usage=turn.usage,
        rounds=turn.rounds,
        seconds=time.monotonic() - turn.began,
        pending=waiting,
    )
    emit(done)
    return done


async def _run_tool_loop(now: _TurnLoopState) -> str:
    """Ask the model and run its tool calls until it calls no more tools or reaches the limit; return the reply."""
    turn, history = now.turn, now.history
    while turn.rounds < MAX_ROUNDS:
        tools = await run_in_thread(turn.build_tool_registry)
        answered = await _ask_model(now, tools.list_specs())
        history.add_messages(_redact_call_arguments_for_history(answered, turn.redactor))
        if not answered.calls:
            return answered.text or await _ask_again_for_text(now)
        turn.rounds += 1
        history.add_messages(*await _run_tool_calls(now, answered.calls, tools))
        nudges = await turn.collect_observer_nudges()
        if nudges:
            history.add_messages(PersonMessage(parts=tuple(TextContent(text=nudge) for nudge in nudges)))
    return await _ask_for_final_answer_after_cap(now)


async def _ask_model(now: _TurnLoopState, tools: tuple[ToolSpec, ...] = ()) -> AssistantMessage:
    """Stream one answer of the model. Tool calls that were cut off are requested again with a larger limit."""
    _record_history_repair_events(now, now.history.repair_calls_and_results_in_place())
    _shorten_history_to_fit(now, tools)
    room = _FIRST_ROOM
    while True:
        ask = CompletionRequest(
            system=now.turn.system, messages=tuple(now.history.messages), tools=tools, max_tokens=room
        )
        try:
            with tracing.trace_span("model", model=now.model.name):
                answer, said = await _stream_answer(ask, now)
        except ContextOverflowError:
            if not _halve_history_after_overflow(now):
                raise
            continue
        now.turn.usage += answer.usage
        if answer.stop is StopReason.LENGTH and not said and room < _MOST_ROOM:
            room *= 2
            continue
        if answer.stop is StopReason.LENGTH:
            now.emit(NoticeEvent(text=f"The answer was cut off at {answer.usage.output_tokens or room:,} tokens."))
        return _redact_answer_and_fix_call_ids(answer.message, now.turn.redactor)


def _redact_answer_and_fix_call_ids(it: AssistantMessage, redactor: Redactor) -> AssistantMessage:
    """Return the answer with encodable, redacted text and a unique id for each call, so results can be matched."""

    def clean(text: str) -> str:
        return redactor.redact(replace_surrogates(text)).text

    calls = tuple(
        replace(one, id=replace_surrogates(one.id), name=clean(one.name), arguments=replace_surrogates(one.arguments))
        for one in it.calls
    )
    it = AssistantMessage(text=clean(it.text), calls=calls)
    ids = [one.id for one in it.calls]
    if all(ids) and len(set(ids)) == len(ids):
        return it
    return replace(it, calls=tuple(replace(one, id=f"{one.id or 'call'}-{secrets.token_hex(4)}") for one in it.calls))


def _redact_call_arguments_for_history(said: AssistantMessage, redactor: Redactor) -> AssistantMessage:
    """Redact the arguments for the history; the tools themselves are called with the original ones."""
    calls = tuple(replace(call, arguments=redactor.redact_json(call.arguments)) for call in said.calls)
    return replace(said, calls=calls)


async def _stream_answer(ask: CompletionRequest, now: _TurnLoopState) -> tuple[CompletionResult, bool]:
    """Emit the answer while it arrives; return it, and whether it contained text.

    Text that may be the start of a secret is held back until it is clear.
    """
    said = False
    model, shown = now.model, now.turn.redactor.open_redacting_stream()
    stream = model.stream(ask)
    try:
        async for piece in stream:
            if isinstance(piece, TextDelta) and piece.text:
                said = True
                if text := shown.feed(replace_surrogates(piece.text)):
                    now.emit(ReplyDelta(text=text))
            elif isinstance(piece, CompletionResult):
                return piece, said
    finally:
        if text := shown.end():
            now.emit(ReplyDelta(text=text))
        if isinstance(stream, AsyncGenerator):
            # Releases the provider's connection at once, also if the turn was cancelled.
            await stream.aclose()
    raise ProviderError(f"{model.name} ended its answer without an end.")


async def _run_tool_calls(
    now: _TurnLoopState, calls: Sequence[ToolCall], tools: ToolRegistry
) -> list[ToolResultMessage]:
    """Run the calls of one answer: adjacent parallel calls together, the others one by one."""
    results: list[ToolResult] = []
    for group in _group_adjacent_parallel_calls(calls, tools):
        results += await asyncio.gather(*(now.turn.run_tool(call, tools) for call in group))
    now.turn.last_results = [result.outcome for result in results]
    return [
        ToolResultMessage(
            call=call.id, tool=call.name, content=result.content, failed=not result.outcome.is_ok, images=result.images
        )
        for call, result in zip(calls, results, strict=True)
    ]


def _group_adjacent_parallel_calls(calls: Sequence[ToolCall], tools: ToolRegistry) -> Iterator[list[ToolCall]]:
    for is_parallel, neighbours in itertools.groupby(calls, tools.is_parallel):
        if is_parallel:
            yield list(neighbours)
        else:
            yield from ([call] for call in neighbours)


async def _ask_again_for_text(now: _TurnLoopState) -> str:
    """Ask once more, with an explicit request for text, after an empty answer."""
    now.history.messages.pop()
    return await _ask_without_tools(now, prompt.load_prompt_text("empty"))


async def _ask_for_final_answer_after_cap(now: _TurnLoopState) -> str:
    """Ask for a final answer without tools once the rounds are used up."""
    now.turn.is_capped = True
    now.turn.record_event_and_notify_observers(build_event(EventKind.CAP_EXHAUSTED, {}, round_idx=now.turn.rounds))
    now.emit(NoticeEvent(text=f"Stopped after {now.turn.rounds} rounds of tools."))
    return await _ask_without_tools(now, prompt.load_prompt_text("stop"))


async def _ask_without_tools(now: _TurnLoopState, wanted: str) -> str:
    now.history.add_messages(PersonMessage(parts=(TextContent(text=wanted),)))
    answered = await _ask_model(now)
    now.history.add_messages(AssistantMessage(text=answered.text))
    return answered.text


async def _repair_history_and_record_turn(now: _TurnLoopState) -> int:
    """Leave a valid history, record the turn and start learning; return the number of pending changes."""
    why = "Cancelled by the user." if now.turn.is_cancelled else "The turn ended without an answer."
    _record_history_repair_events(now, now.history.make_valid_after_turn(why))
    now.copy_messages_to_turn()
    return await now.turn.close()


def _shorten_history_to_fit(now: _TurnLoopState, tools: tuple[ToolSpec, ...]) -> bool:
    """Drop the oldest turns before the model has to refuse. True if any were dropped."""
    fixed = estimate_tokens(now.turn.system) + sum(tool.tokens for tool in tools)
    return _drop_oldest_turns_and_notify_user(now, max(int(now.context_tokens * prompt.HISTORY_SHARE) - fixed, 0))


def _halve_history_after_overflow(now: _TurnLoopState) -> bool:
    """After a context overflow, drop half of the turns, then shorten results. False if nothing could go."""
    return _drop_oldest_turns_and_notify_user(
        now, sum(map(estimate_message_tokens, now.history.messages)) // 2
    ) or now.history.truncate_long_tool_results(2000)


def _drop_oldest_turns_and_notify_user(now: _TurnLoopState, room: int) -> bool:
    before = len(now.history.messages)
    dropped = now.history.drop_oldest_turns_to_fit(room)
    if dropped:
        now.first = max(0, now.first - (before - len(now.history.messages)))
        now.emit(NoticeEvent(text=f"The conversation is long: {dropped} of its oldest turns are no longer in view."))
    return bool(dropped)


def _record_history_repair_events(now: _TurnLoopState, count: int) -> None:
    for _ in range(count):
        now.turn.record_event_and_notify_observers(
            build_event(EventKind.HISTORY_REPAIR, {"reason": "a call had no result"}, round_idx=now.turn.rounds)
        )
