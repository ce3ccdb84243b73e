"""One turn, top to bottom: recall, select, compose, ask, act, advise, finish."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from habitus.agent import budget, prompt
from habitus.agent.history import History, size
from habitus.agent.model import Incoming, TurnRecord, World
from habitus.agent.prompt import Composed
from habitus.agent.stream import Done, Emit, Noticed, Nudged, Said, ToolFinished, ToolProgress, ToolStarted
from habitus.agent.tools.registry import Registry, Running
from habitus.encodable import encodable
from habitus.events import (
    OK,
    Event,
    EventKind,
    Outcome,
    ToolCall,
    ToolResult,
    TurnObserver,
    event,
    failed,
    infra,
    tool_called,
    tool_returned,
)
from habitus.llm.model import (
    Answer,
    Answered,
    Ask,
    Asked,
    ContextOverflow,
    Model,
    ProviderFault,
    Returned,
    Stop,
    Text,
    TextDelta,
    ToolSpec,
)
from habitus.redact import Redactor
from habitus.skills.menu import tokens

log = logging.getLogger(__name__)

_FIRST_ROOM = 8192  # tokens of an answer; twice as much when a call did not fit
_MOST_ROOM = 65536
_ADVICE_S = 2.0  # an observer that takes longer has nothing to say in this round


@dataclass(frozen=True, kw_only=True, slots=True)
class _Now:
    """The turn that runs, with everything its steps need."""

    turn: TurnRecord
    world: World
    emit: Emit

    @property
    def history(self) -> History:
        return self.turn.history


async def run_turn(id: str, incoming: Incoming, history: History, world: World, emit: Emit) -> Done:
    """The turn from a request to its reply. A fault of the provider is an outcome; only a cancel goes through."""
    mended = history.end_turn("This turn was not kept whole.")  # one that was resumed, and is damaged
    turn = TurnRecord(id=id, incoming=incoming, history=history, first_message=len(history.messages))
    now = _Now(turn=turn, world=world, emit=emit)
    _note_repair(now, mended)
    for notice in incoming.notices:
        emit(Noticed(text=notice))
    try:
        remembered = world.recall(incoming.request)
        turn.selection = world.select(incoming.request)
        turn.composed = world.compose(incoming.request, turn.selection, remembered)
        turn.system = world.redactor.redact(turn.composed.prompt.system_text).text
        history.add(_message(incoming, turn.composed, world.redactor))
        world.begin(turn)
        turn.reply = await _converse(now)
        turn.outcome = _how_it_went(turn)
    except ProviderFault as fault:
        turn.outcome = infra(str(fault))
        emit(Noticed(text=str(fault)))
    except asyncio.CancelledError:
        turn.is_cancelled = True
        turn.outcome = infra("cancelled")
        _tell(world.observers, lambda observer: observer.cancelled())
        raise
    finally:
        _finish(now)
    done = Done(
        turn=id,
        reply=turn.reply,
        outcome=turn.outcome,
        usage=turn.usage,
        rounds=turn.rounds,
        seconds=time.monotonic() - turn.began,
        waiting=world.waiting(),
    )
    emit(done)
    return done


def _message(incoming: Incoming, composed: Composed, redactor: Redactor) -> Asked:
    """The marked block, what is attached, and the person's words, in this order."""
    context = redactor.redact(composed.prompt.context_text).text
    said = incoming.request.text
    return Asked(parts=(*([Text(text=context)] if context else []), *incoming.parts, Text(text=said)))


async def _converse(now: _Now) -> str:
    """Ask, act and advise until the model has nothing more to call, or may call no more."""
    turn, history = now.turn, now.history
    while turn.rounds < now.world.max_rounds:
        tools = now.world.tools(turn.incoming.request)
        answered = await _ask(now, tools.specs())
        history.add(answered)
        if not answered.calls:
            return answered.text or await _insist(now)
        turn.rounds += 1
        history.add(*await _act(now, answered.calls, tools))
        nudges = await _advise(now)
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
            answer, said = await _stream(ask, now.world.model, now.emit)
        except ContextOverflow:
            if not _drop_more(now):
                raise
            continue
        now.turn.usage += answer.usage
        if answer.stop is Stop.LENGTH and not said and room < _MOST_ROOM:
            room *= 2
            continue
        if answer.stop is Stop.LENGTH:
            now.emit(Noticed(text=f"The answer was cut off at {answer.usage.output_tokens or room:,} tokens."))
        return _sound(answer.message)


def _sound(said: Answered) -> Answered:
    """Whatever the model wrote: text that can be kept, and for every call an id of its own, so that results find it."""
    calls = tuple(
        ToolCall(id=encodable(call.id), name=encodable(call.name), arguments=encodable(call.arguments))
        for call in said.calls
    )
    said = Answered(text=encodable(said.text), calls=calls)
    ids = [call.id for call in said.calls]
    if all(ids) and len(set(ids)) == len(ids):
        return said
    return replace(
        said, calls=tuple(replace(call, id=f"{call.id or 'call'}-{secrets.token_hex(4)}") for call in said.calls)
    )


async def _stream(ask: Ask, model: Model, emit: Emit) -> tuple[Answer, bool]:
    said = False
    stream = model.stream(ask)
    try:
        async for piece in stream:
            if isinstance(piece, TextDelta) and piece.text:
                said = True
                emit(Said(text=encodable(piece.text)))
            elif isinstance(piece, Answer):
                return piece, said
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()  # a provider's connection is let go at once, also when the turn was cancelled
    raise ProviderFault(f"{model.name} ended its answer without an end.")


async def _act(now: _Now, calls: Sequence[ToolCall], tools: Registry) -> list[Returned]:
    """Run the calls of one answer: neighbours that may run side by side do, the others wait their turn."""
    results: list[ToolResult] = []
    for group in _groups(calls, tools):
        results += await asyncio.gather(*(_call(now, call, tools) for call in group))
    now.turn.last_results = [result.outcome for result in results]
    return [
        Returned(call=call.id, tool=call.name, content=result.content)
        for call, result in zip(calls, results, strict=True)
    ]


def _groups(calls: Sequence[ToolCall], tools: Registry) -> Iterator[list[ToolCall]]:
    for is_parallel, neighbours in itertools.groupby(calls, tools.is_parallel):
        if is_parallel:
            yield list(neighbours)
        else:
            yield from ([call] for call in neighbours)


async def _call(now: _Now, call: ToolCall, tools: Registry) -> ToolResult:
    """Run one call, and let everybody see it begin and end."""
    began, rounds, redactor = time.monotonic(), now.turn.rounds, now.world.redactor
    now.emit(ToolStarted(call=call.id, tool=call.name, arguments=call.arguments))
    _observe(now, tool_called(call.name, call.arguments, round_idx=rounds, call_id=call.id, redactor=redactor))
    running = Running(
        call=call.id,
        round_idx=rounds,
        progress=lambda text: now.emit(ToolProgress(call=call.id, text=text)),
        observe=lambda seen: _observe(now, seen),
    )
    raw = await tools.run(call, running)
    content, outcome = redactor.redact(encodable(raw.content)).text, raw.outcome
    returned = tool_returned(
        call.name,
        success=outcome.is_ok,
        error=outcome.reason,
        result=content,
        round_idx=rounds,
        call_id=call.id,
    )
    _observe(now, returned)
    seconds = time.monotonic() - began
    now.emit(ToolFinished(call=call.id, tool=call.name, outcome=outcome, content=content, seconds=seconds))
    return ToolResult(content=content, outcome=outcome)


async def _advise(now: _Now) -> list[str]:
    """What the observers want said beside the results. One that fails or dawdles says nothing."""
    said: list[str] = []
    for observer in now.world.observers:
        try:
            said += await asyncio.wait_for(_begun(observer.advise()), _ADVICE_S)
        except Exception:
            log.warning("An observer could not advise; the turn goes on.", exc_info=True)
    for nudge in said:
        now.emit(Nudged(text=nudge))
    return said


async def _begun(advice: Awaitable[Sequence[str]]) -> Sequence[str]:
    return await advice


async def _insist(now: _Now) -> str:
    """An empty answer is asked for once more, in words."""
    now.history.messages.pop()
    return await _without_tools(now, prompt.text("empty"))


async def _sum_up(now: _Now) -> str:
    """The rounds are used up: one more answer, without tools."""
    now.turn.is_capped = True
    _observe(now, event(EventKind.CAP_EXHAUSTED, {}, round_idx=now.turn.rounds))
    now.emit(Noticed(text=f"Stopped after {now.turn.rounds} rounds of tools."))
    return await _without_tools(now, prompt.text("stop"))


async def _without_tools(now: _Now, wanted: str) -> str:
    now.history.add(Asked(parts=(Text(text=wanted),)))
    answered = await _ask(now)
    now.history.add(Answered(text=answered.text))
    return answered.text


def _finish(now: _Now) -> None:
    """Leave a history that goes on, write the turn down, and let those learn who do."""
    why = "Cancelled by the user." if now.turn.is_cancelled else "The turn ended without an answer."
    _note_repair(now, now.history.end_turn(why))
    for notice in now.world.finish(now.turn):
        now.emit(Noticed(text=notice))


def _how_it_went(turn: TurnRecord) -> Outcome:
    """By how it ended, not by what it says of itself."""
    if turn.is_capped:
        return failed("the tool rounds ran out")
    if not turn.reply.strip():
        return failed("the answer was empty")
    bad = [outcome for outcome in turn.last_results if not outcome.is_ok]
    if bad and len(bad) == len(turn.last_results):
        return failed(f"the last tool call failed: {bad[-1].reason}")
    return OK


def _make_room(now: _Now, tools: tuple[ToolSpec, ...]) -> None:
    """Forget the oldest turns before the model has to refuse."""
    fixed = tokens(now.turn.system) + sum(tokens(tool.description) + tokens(str(tool.parameters)) for tool in tools)
    _shorten(now, max(int(now.world.context_tokens * budget.HISTORY_SHARE) - fixed, 0))


def _drop_more(now: _Now) -> bool:
    """The model refused for lack of room: half of the turns go, then the length of results; whether anything did."""
    return _shorten(now, sum(map(size, now.history.messages)) // 2) or now.history.shorten_results(2000)


def _shorten(now: _Now, room: int) -> bool:
    before = len(now.history.messages)
    dropped = now.history.shorten(room)
    if dropped:
        now.turn.first_message = max(0, now.turn.first_message - (before - len(now.history.messages)))
        now.emit(Noticed(text=f"The conversation is long: {dropped} of its oldest turns are no longer in view."))
    return bool(dropped)


def _note_repair(now: _Now, count: int) -> None:
    for _ in range(count):
        _observe(now, event(EventKind.HISTORY_REPAIR, {"reason": "a call had no result"}, round_idx=now.turn.rounds))


def _observe(now: _Now, seen: Event) -> None:
    now.turn.events.append(seen)
    _tell(now.world.observers, lambda observer: observer.observe(seen))


def _tell(observers: Sequence[TurnObserver], what: Callable[[TurnObserver], None]) -> None:
    for observer in observers:
        try:
            what(observer)
        except Exception:
            log.warning("An observer failed; the turn goes on.", exc_info=True)
