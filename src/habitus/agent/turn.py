"""One turn, top to bottom: recall, select, compose, ask, act, advise, finish."""

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

MAX_ROUNDS = 25
_FIRST_ROOM = 8192  # tokens of an answer; twice as much when a call did not fit
_MOST_ROOM = 65536


@dataclass(kw_only=True, slots=True)
class _Now:
    """The turn that runs, and the conversation with a model that it is part of."""

    turn: OpenTurn
    model: Model
    history: History
    context_tokens: int
    emit: Emit
    first: int  # where the turn begins in the history

    def keep_messages(self) -> None:
        self.turn.messages = tuple(self.history.messages[self.first :])


async def run_turn(turn: OpenTurn, model: Model, history: History, *, context_tokens: int, emit: Emit) -> Done:
    """The turn from a request to its reply. A fault of the provider is an outcome; only a cancel goes through."""
    mended = history.end_turn("This turn was not kept whole.")  # one that was resumed, and is damaged
    first = len(history.messages)
    now = _Now(turn=turn, model=model, history=history, context_tokens=context_tokens, emit=emit, first=first)
    _note_repair(now, mended)
    for notice in turn.said.notices:
        emit(Noticed(text=notice))
    try:
        await in_thread(turn.recall)
        await in_thread(turn.select)
        await in_thread(turn.compose)
        tools = (await in_thread(turn.tools)).specs()
        history.add(turn.message)
        if _make_room(now, tools):  # what was let go may be what the block refers to
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
    """Ask, act and advise until the model has nothing more to call, or may call no more."""
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
    """One answer of the model, streamed. Calls that were cut off are asked for again with more room."""
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
    """Whatever the model wrote: text that can be kept, and for every call an id of its own, so that results find it."""

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
    """An answer as the conversation keeps it; the tools themselves are called as the model wrote it."""
    calls = tuple(replace(call, arguments=redactor.redact_json(call.arguments)) for call in said.calls)
    return replace(said, calls=calls)


async def _stream(ask: Ask, now: _Now) -> tuple[Answer, bool]:
    """Show the answer while it comes; a piece that may be the beginning of a key waits."""
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
            await stream.aclose()  # a provider's connection is let go at once, also when the turn was cancelled
    raise ProviderFault(f"{model.name} ended its answer without an end.")


async def _act(now: _Now, calls: Sequence[ToolCall], tools: Registry) -> list[Returned]:
    """Run the calls of one answer: neighbours that may run side by side do, the others wait their turn."""
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
    """An empty answer is asked for once more, in words."""
    now.history.messages.pop()
    return await _without_tools(now, prompt.text("empty"))


async def _sum_up(now: _Now) -> str:
    """The rounds are used up: one more answer, without tools."""
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
    """Leave a history that goes on, write the turn down, and let those learn who do."""
    why = "Cancelled by the user." if now.turn.is_cancelled else "The turn ended without an answer."
    _note_repair(now, now.history.end_turn(why))
    now.keep_messages()
    return await now.turn.close()


def _make_room(now: _Now, tools: tuple[ToolSpec, ...]) -> bool:
    """Forget the oldest turns before the model has to refuse; whether any had to go."""
    fixed = tokens(now.turn.system) + sum(tool.tokens for tool in tools)
    return _shorten(now, max(int(now.context_tokens * prompt.HISTORY_SHARE) - fixed, 0))


def _drop_more(now: _Now) -> bool:
    """The model refused for lack of room: half of the turns go, then the length of results; whether anything did."""
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
