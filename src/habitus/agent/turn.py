"""One turn, top to bottom: recall, select, compose, ask, act, advise, finish."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from habitus.agent import budget, prompt
from habitus.agent.history import History, size
from habitus.agent.prompt import Composed, Remembered
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
    Image,
    Model,
    ProviderFault,
    Returned,
    Stop,
    Text,
    TextDelta,
    ToolSpec,
    Usage,
)
from habitus.redact import Redactor
from habitus.skills.menu import tokens
from habitus.skills.model import Skill
from habitus.skills.selection import Request, Selection

log = logging.getLogger(__name__)

MAX_ROUNDS = 25
_FIRST_ROOM = 8192  # tokens of an answer; twice as much when a call did not fit
_MOST_ROOM = 65536
_ADVICE_S = 2.0  # an observer that takes longer has nothing to say in this round


@dataclass(frozen=True, kw_only=True, slots=True)
class Incoming:
    """What a person says in a turn: the request as the rules read it, and what is attached to it."""

    request: Request
    parts: tuple[Text | Image, ...] = ()
    notices: tuple[str, ...] = ()
    caller_id: str = ""
    invoked: Skill | None = None  # a skill the person called by its name


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """Everything a turn needs from outside."""

    model: Model
    context_tokens: int
    recall: Callable[[Request], Remembered]
    select: Callable[[Request], Selection]
    compose: Callable[[Request, Selection, Remembered], Composed]
    tools: Callable[[Request], Registry]
    begin: Callable[[TurnRecord], None]  # writes down what was asked
    finish: Callable[[TurnRecord], Sequence[str]]  # writes it down, starts what learns from it, says what went wrong
    observers: Sequence[TurnObserver] = ()
    redactor: Redactor
    waiting: Callable[[], int] = lambda: 0
    max_rounds: int = MAX_ROUNDS


@dataclass(kw_only=True, slots=True)
class TurnRecord:
    """What happened in a turn so far."""

    id: str
    incoming: Incoming
    selection: Selection | None = None
    composed: Composed | None = None
    first_message: int = 0  # where the turn begins in the history
    events: list[Event] = field(default_factory=list)
    usage: Usage = Usage()  # noqa: RUF009  # frozen
    rounds: int = 0
    outcome: Outcome = OK
    is_capped: bool = False
    is_cancelled: bool = False
    last_results: list[Outcome] = field(default_factory=list)
    tools_used: dict[str, list[Outcome]] = field(default_factory=dict)
    reply: str = ""
    history: History = field(default_factory=History)
    began: float = field(default_factory=time.monotonic)


async def run_turn(id: str, incoming: Incoming, history: History, world: World, emit: Emit) -> Done:
    """The turn from a request to its reply. A fault of the provider is an outcome; only a cancel goes through."""
    mended = history.end_turn("This turn was not kept whole.")  # one that was resumed, and is damaged
    turn = TurnRecord(id=id, incoming=incoming, history=history, first_message=len(history.messages))
    _note_repair(mended, turn, world)
    for notice in incoming.notices:
        emit(Noticed(text=notice))
    try:
        remembered = world.recall(incoming.request)
        turn.selection = world.select(incoming.request)
        turn.composed = world.compose(incoming.request, turn.selection, remembered)
        history.add(_message(incoming, turn.composed, world.redactor))
        world.begin(turn)
        turn.reply = await _converse(turn, history, world, emit)
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
        mended = history.end_turn(
            "Cancelled by the user." if turn.is_cancelled else "The turn ended without an answer."
        )
        _note_repair(mended, turn, world)
        for notice in world.finish(turn):
            emit(Noticed(text=notice))
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


async def _converse(turn: TurnRecord, history: History, world: World, emit: Emit) -> str:
    """Ask, act and advise until the model has nothing more to call, or may call no more."""
    assert turn.composed is not None
    system = world.redactor.redact(turn.composed.prompt.system_text).text
    while turn.rounds < world.max_rounds:
        tools = world.tools(turn.incoming.request)
        answered = await _ask(system, tools.specs(), turn, history, world, emit)
        history.add(answered)
        if not answered.calls:
            return answered.text or await _insist(system, turn, history, world, emit)
        turn.rounds += 1
        history.add(*await _act(answered.calls, tools, turn, world, emit))
        nudges = await _advise(world.observers)
        for nudge in nudges:
            emit(Nudged(text=nudge))
        if nudges:
            history.add(Asked(parts=tuple(Text(text=nudge) for nudge in nudges)))
    return await _sum_up(system, turn, history, world, emit)


async def _ask(
    system: str, tools: tuple[ToolSpec, ...], turn: TurnRecord, history: History, world: World, emit: Emit
) -> Answered:
    """One answer of the model, streamed. Calls that were cut off are asked for again with more room."""
    _note_repair(history.repair(), turn, world)
    room = _FIRST_ROOM
    _make_room(system, tools, turn, history, world, emit)
    while True:
        ask = Ask(system=system, messages=tuple(history.messages), tools=tools, max_tokens=room)
        try:
            answer, said = await _stream(ask, world.model, emit)
        except ContextOverflow:
            if not _drop_more(turn, history, emit):
                raise
            continue
        turn.usage += answer.usage
        if answer.stop is Stop.LENGTH and not said and room < _MOST_ROOM:
            room *= 2
            continue
        if answer.stop is Stop.LENGTH:
            emit(Noticed(text=f"The answer was cut off at {answer.usage.output_tokens or room:,} tokens."))
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


async def _act(
    calls: Sequence[ToolCall], tools: Registry, turn: TurnRecord, world: World, emit: Emit
) -> list[Returned]:
    """Run the calls of one answer: neighbours that may run side by side do, the others wait their turn."""
    results: list[ToolResult] = []
    for group in _groups(calls, tools):
        results += await asyncio.gather(*(_call(call, tools, turn, world, emit) for call in group))
    turn.last_results = [result.outcome for result in results]
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


async def _call(call: ToolCall, tools: Registry, turn: TurnRecord, world: World, emit: Emit) -> ToolResult:
    began = time.monotonic()
    emit(ToolStarted(call=call.id, tool=call.name, arguments=call.arguments))
    _observe(
        tool_called(call.name, call.arguments, round_idx=turn.rounds, call_id=call.id, redactor=world.redactor),
        turn,
        world,
    )
    running = Running(
        call=call.id,
        round_idx=turn.rounds,
        progress=lambda text: emit(ToolProgress(call=call.id, text=text)),
        observe=lambda seen: _observe(seen, turn, world),
    )
    result = await tools.run(call, running)
    result = ToolResult(content=world.redactor.redact(encodable(result.content)).text, outcome=result.outcome)
    turn.tools_used.setdefault(call.name, []).append(result.outcome)
    returned = tool_returned(
        call.name,
        success=result.outcome.is_ok,
        error=result.outcome.reason,
        result=result.content,
        round_idx=turn.rounds,
        call_id=call.id,
    )
    _observe(returned, turn, world)
    emit(
        ToolFinished(
            call=call.id,
            tool=call.name,
            outcome=result.outcome,
            content=result.content,
            seconds=time.monotonic() - began,
        )
    )
    return result


async def _advise(observers: Sequence[TurnObserver]) -> list[str]:
    """What the observers want said beside the results. One that fails or dawdles says nothing."""
    said: list[str] = []
    for observer in observers:
        try:
            said += await asyncio.wait_for(_begun(observer.advise()), _ADVICE_S)
        except Exception:
            log.warning("An observer could not advise; the turn goes on.", exc_info=True)
    return said


async def _begun(advice: Awaitable[Sequence[str]]) -> Sequence[str]:
    return await advice


async def _insist(system: str, turn: TurnRecord, history: History, world: World, emit: Emit) -> str:
    """An empty answer is asked for once more, in words."""
    history.messages.pop()
    history.add(Asked(parts=(Text(text=prompt.text("empty")),)))
    again = await _ask(system, (), turn, history, world, emit)
    history.add(Answered(text=again.text))
    return again.text


async def _sum_up(system: str, turn: TurnRecord, history: History, world: World, emit: Emit) -> str:
    """The rounds are used up: one more answer, without tools."""
    turn.is_capped = True
    _observe(event(EventKind.CAP_EXHAUSTED, {}, round_idx=turn.rounds), turn, world)
    emit(Noticed(text=f"Stopped after {turn.rounds} rounds of tools."))
    history.add(Asked(parts=(Text(text=prompt.text("stop")),)))
    answered = await _ask(system, (), turn, history, world, emit)
    history.add(Answered(text=answered.text))
    return answered.text


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


def _make_room(
    system: str, tools: tuple[ToolSpec, ...], turn: TurnRecord, history: History, world: World, emit: Emit
) -> None:
    """Forget the oldest turns before the model has to refuse."""
    fixed = tokens(system) + sum(tokens(tool.description) + tokens(str(tool.parameters)) for tool in tools)
    room = int(world.context_tokens * budget.HISTORY_SHARE) - fixed
    before = len(history.messages)
    dropped = history.shorten(max(room, 0))
    _told_dropped(dropped, before, turn, history, emit)


def _drop_more(turn: TurnRecord, history: History, emit: Emit) -> bool:
    """The model refused for lack of room: half of the turns go, then the length of results; whether anything did."""
    before = len(history.messages)
    dropped = history.shorten(sum(map(size, history.messages)) // 2)
    _told_dropped(dropped, before, turn, history, emit)
    return bool(dropped) or history.shorten_results(2000)


def _told_dropped(dropped: int, before: int, turn: TurnRecord, history: History, emit: Emit) -> None:
    if dropped:
        turn.first_message = max(0, turn.first_message - (before - len(history.messages)))
        emit(Noticed(text=f"The conversation is long: {dropped} of its oldest turns are no longer in view."))


def _note_repair(count: int, turn: TurnRecord, world: World) -> None:
    for _ in range(count):
        _observe(
            event(EventKind.HISTORY_REPAIR, {"reason": "a call had no result"}, round_idx=turn.rounds), turn, world
        )


def _observe(seen: Event, turn: TurnRecord, world: World) -> None:
    turn.events.append(seen)
    _tell(world.observers, lambda observer: observer.observe(seen))


def _tell(observers: Sequence[TurnObserver], what: Callable[[TurnObserver], None]) -> None:
    for observer in observers:
        try:
            what(observer)
        except Exception:
            log.warning("An observer failed; the turn goes on.", exc_info=True)
