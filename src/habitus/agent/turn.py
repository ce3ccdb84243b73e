"""One turn, from top to bottom: recall, select, compose, ask, act, advise, finish."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, replace

from habitus import tracing
from habitus.agent.background import in_thread
from habitus.agent.history import History
from habitus.agent.open_turn import OpenTurn
from habitus.agent.prompts import prompt
from habitus.agent.stream import Done, Emit, Noticed, Said
from habitus.agent.tools.registry import Registry
from habitus.events import EventKind, ToolCall, ToolResult, event, infra
from habitus.llm.model import (
    Answer,
    Answered,
    Ask,
    Asked,
    ContextOverflow,
    Model,
    ProviderFault,
    Returned,
    StopReason,
    Text,
    TextDelta,
    ToolSpec,
    message_tokens,
)
from habitus.redact import Redactor
from habitus.text import encodable, tokens

# A loop that has not converged by now is usually going in circles.
MAX_ROUNDS = 25
# Tokens of one answer; doubled when a tool call did not fit.
_FIRST_ROOM = 8192
_MOST_ROOM = 65536


@dataclass(kw_only=True, slots=True)
class _Now:
    """The running turn with the model and the conversation it belongs to."""

    turn: OpenTurn
    model: Model
    history: History
    context_tokens: int
    emit: Emit
    first: int  # index in the history at which the turn begins

    def keep_messages(self) -> None:
        """Copy this turn's messages from the history to the turn."""
        self.turn.messages = tuple(self.history.messages[self.first :])


async def run_turn(turn: OpenTurn, model: Model, history: History, *, context_tokens: int, emit: Emit) -> Done:
    """Run a turn from request to reply. A provider's fault becomes the outcome; only a cancellation is raised."""
    # Only a resumed turn that was damaged needs this.
    repaired = history.end_turn("This turn was not kept whole.")
    first = len(history.messages)
    now = _Now(turn=turn, model=model, history=history, context_tokens=context_tokens, emit=emit, first=first)
    _note_repair(now, repaired)
    for notice in turn.said.notices:
        emit(Noticed(text=notice))
    try:
        await in_thread(turn.recall)
        await in_thread(turn.select)
        await in_thread(turn.compose)
        tools = (await in_thread(turn.tools)).specs()
        history.add(turn.message)
        # A dropped turn may contain text that the context block refers to, so it is composed again.
        if _make_room(now, tools):
            await in_thread(turn.compose)
            history.messages[-1] = turn.message
        now.keep_messages()
        await in_thread(turn.begin)
        turn.finish(await _converse(now))
    except ProviderFault as fault:
        turn.outcome = infra(str(fault))
        emit(Noticed(text=str(fault)))
    except asyncio.CancelledError:
        turn.outcome = infra("cancelled")
        turn.cancel()
        raise
    finally:
        waiting = await _finish(now)
    done = Done(
        turn=turn.id,
        reply=turn.reply,
        outcome=turn.outcome,
        usage=turn.usage,
        rounds=turn.rounds,
        seconds=time.monotonic() - turn.began,
        waiting=waiting,
    )
    emit(done)
    return done


async def _converse(now: _Now) -> str:
    """Ask the model and run its tool calls until it calls no more tools or reaches the limit; return the reply."""
    turn, history = now.turn, now.history
    while turn.rounds < MAX_ROUNDS:
        tools = await in_thread(turn.tools)
        answered = await _ask(now, tools.specs())
        history.add(_redact_answer(answered, turn.redactor))
        if not answered.calls:
            return answered.text or await _insist(now)
        turn.rounds += 1
        history.add(*await _act(now, answered.calls, tools))
        nudges = await turn.advise()
        if nudges:
            history.add(Asked(parts=tuple(Text(text=nudge) for nudge in nudges)))
    return await _sum_up(now)


async def _ask(now: _Now, tools: tuple[ToolSpec, ...] = ()) -> Answered:
    """Stream one answer of the model. Tool calls that were cut off are requested again with a larger limit."""
    _note_repair(now, now.history.repair())
    _make_room(now, tools)
    room = _FIRST_ROOM
    while True:
        ask = Ask(system=now.turn.system, messages=tuple(now.history.messages), tools=tools, max_tokens=room)
        try:
            with tracing.span("model", model=now.model.name):
                answer, said = await _stream(ask, now)
        except ContextOverflow:
            if not _drop_more(now):
                raise
            continue
        now.turn.usage += answer.usage
        if answer.stop is StopReason.LENGTH and not said and room < _MOST_ROOM:
            room *= 2
            continue
        if answer.stop is StopReason.LENGTH:
            now.emit(Noticed(text=f"The answer was cut off at {answer.usage.output_tokens or room:,} tokens."))
        return _sound(answer.message, now.turn.redactor)


def _sound(said: Answered, redactor: Redactor) -> Answered:
    """Return the answer with encodable, redacted text and a unique id for each call, so results can be matched."""

    def clean(text: str) -> str:
        return redactor.redact(encodable(text)).text

    calls = tuple(
        replace(call, id=encodable(call.id), name=clean(call.name), arguments=encodable(call.arguments))
        for call in said.calls
    )
    said = Answered(text=clean(said.text), calls=calls)
    ids = [call.id for call in said.calls]
    if all(ids) and len(set(ids)) == len(ids):
        return said
    return replace(
        said, calls=tuple(replace(call, id=f"{call.id or 'call'}-{secrets.token_hex(4)}") for call in said.calls)
    )


def _redact_answer(said: Answered, redactor: Redactor) -> Answered:
    """Redact the arguments for the history; the tools themselves are called with the original ones."""
    calls = tuple(replace(call, arguments=redactor.redact_json(call.arguments)) for call in said.calls)
    return replace(said, calls=calls)


async def _stream(ask: Ask, now: _Now) -> tuple[Answer, bool]:
    """Emit the answer while it arrives; return it, and whether it contained text.

    Text that may be the start of a secret is held back until it is clear.
    """
    said = False
    model, shown = now.model, now.turn.redactor.stream()
    stream = model.stream(ask)
    try:
        async for piece in stream:
            if isinstance(piece, TextDelta) and piece.text:
                said = True
                if text := shown.feed(encodable(piece.text)):
                    now.emit(Said(text=text))
            elif isinstance(piece, Answer):
                return piece, said
    finally:
        if text := shown.end():
            now.emit(Said(text=text))
        if isinstance(stream, AsyncGenerator):
            # Releases the provider's connection at once, also if the turn was cancelled.
            await stream.aclose()
    raise ProviderFault(f"{model.name} ended its answer without an end.")


async def _act(now: _Now, calls: Sequence[ToolCall], tools: Registry) -> list[Returned]:
    """Run the calls of one answer: adjacent parallel calls together, the others one by one."""
    results: list[ToolResult] = []
    for group in _groups(calls, tools):
        results += await asyncio.gather(*(now.turn.run(call, tools) for call in group))
    now.turn.last_results = [result.outcome for result in results]
    return [
        Returned(
            call=call.id,
            tool=call.name,
            content=result.content,
            failed=not result.outcome.is_ok,
            images=result.images,
        )
        for call, result in zip(calls, results, strict=True)
    ]


def _groups(calls: Sequence[ToolCall], tools: Registry) -> Iterator[list[ToolCall]]:
    for is_parallel, neighbours in itertools.groupby(calls, tools.is_parallel):
        if is_parallel:
            yield list(neighbours)
        else:
            yield from ([call] for call in neighbours)


async def _insist(now: _Now) -> str:
    """Ask once more, with an explicit request for text, after an empty answer."""
    now.history.messages.pop()
    return await _without_tools(now, prompt.text("empty"))


async def _sum_up(now: _Now) -> str:
    """Ask for a final answer without tools once the rounds are used up."""
    now.turn.is_capped = True
    now.turn.observe(event(EventKind.CAP_EXHAUSTED, {}, round_idx=now.turn.rounds))
    now.emit(Noticed(text=f"Stopped after {now.turn.rounds} rounds of tools."))
    return await _without_tools(now, prompt.text("stop"))


async def _without_tools(now: _Now, wanted: str) -> str:
    now.history.add(Asked(parts=(Text(text=wanted),)))
    answered = await _ask(now)
    now.history.add(Answered(text=answered.text))
    return answered.text


async def _finish(now: _Now) -> int:
    """Leave a valid history, record the turn and start learning; return the number of pending changes."""
    why = "Cancelled by the user." if now.turn.is_cancelled else "The turn ended without an answer."
    _note_repair(now, now.history.end_turn(why))
    now.keep_messages()
    return await now.turn.close()


def _make_room(now: _Now, tools: tuple[ToolSpec, ...]) -> bool:
    """Drop the oldest turns before the model has to refuse. True if any were dropped."""
    fixed = tokens(now.turn.system) + sum(tool.tokens for tool in tools)
    return _shorten(now, max(int(now.context_tokens * prompt.HISTORY_SHARE) - fixed, 0))


def _drop_more(now: _Now) -> bool:
    """After a context overflow, drop half of the turns, then shorten results. False if nothing could go."""
    return _shorten(now, sum(map(message_tokens, now.history.messages)) // 2) or now.history.shorten_results(2000)


def _shorten(now: _Now, room: int) -> bool:
    before = len(now.history.messages)
    dropped = now.history.shorten(room)
    if dropped:
        now.first = max(0, now.first - (before - len(now.history.messages)))
        now.emit(Noticed(text=f"The conversation is long: {dropped} of its oldest turns are no longer in view."))
    return bool(dropped)


def _note_repair(now: _Now, count: int) -> None:
    for _ in range(count):
        now.turn.observe(event(EventKind.HISTORY_REPAIR, {"reason": "a call had no result"}, round_idx=now.turn.rounds))
