"""A session: one conversation with a model, with the same system prompt from its first turn to its last."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

from habitus.agent.afterwards import Afterwards
from habitus.agent.background import CLOSING_S
from habitus.agent.budget import Section
from habitus.agent.composer import Composer
from habitus.agent.history import History, unpack
from habitus.agent.incoming import incoming
from habitus.agent.model import Incoming, TurnRecord, World
from habitus.agent.offer import Offer
from habitus.agent.outage import Outage
from habitus.agent.parts import Parts
from habitus.agent.prompt import Remembered
from habitus.agent.stream import Done, TurnEvent
from habitus.agent.turn import run_turn
from habitus.errors import Invalid, NotFound
from habitus.events import OutcomeKind
from habitus.journal.model import Turn
from habitus.skills.model import Skill


class Session:
    def __init__(self, parts: Parts, *, id: str | None = None, past: Sequence[Turn] = ()) -> None:
        self.id = id or new_id()
        self._parts = parts
        self._history = _resumed(past)
        self._previous: tuple[str, str] | None = (past[-1].id, past[-1].request) if past else None
        self._loaded: dict[str, Skill] = {}  # in this turn
        self._outage = Outage()
        self._composer = Composer(parts, self._outage, self._history)
        self._offer = Offer(parts, self._outage, parts.built_in(self))
        self._afterwards = Afterwards(parts, self._outage, self.id)
        self._began = parts.clock()
        self._running: asyncio.Task[Done] | None = None
        self.last: TurnRecord | None = None

    # Turns

    async def turn(self, text: str, attach: Sequence[Path] = (), **more: Any) -> Done:
        """Say something and wait for the answer."""
        done: Done | None = None
        async with aclosing(self.turn_stream(text, attach, **more)) as stream:
            async for seen in stream:
                done = seen if isinstance(seen, Done) else done
        if done is None:
            raise asyncio.CancelledError
        return done

    async def turn_stream(
        self,
        text: str,
        attach: Sequence[Path] = (),
        *,
        caller_id: str = "",
        reply_to: str = "",
        invoked: Skill | None = None,
    ) -> AsyncGenerator[TurnEvent, None]:
        """Say something and see the answer come. Whoever stops listening cancels the turn.

        `invoked` is a skill the person calls by its name; the model gets it as it is handed in.
        """
        if self._running is not None:
            raise Invalid("A turn of this session is running.", mend="Wait for it, or cancel it first.")
        seen: asyncio.Queue[TurnEvent | None] = asyncio.Queue()
        read = partial(
            incoming,
            self._parts,
            text,
            attach,
            conversation=self.conversation,
            caller_id=caller_id,
            reply_to=reply_to,
            invoked=invoked,
        )
        self._running = running = asyncio.create_task(self._run(read, seen.put_nowait))
        running.add_done_callback(self._ended)
        running.add_done_callback(lambda _: seen.put_nowait(None))
        try:
            while (happened := await seen.get()) is not None:
                yield happened
            if not running.cancelled():
                running.result()  # a bug is raised here, loudly
        finally:
            if not running.done():
                running.cancel()
                await asyncio.wait([running])

    def _ended(self, turn: asyncio.Task[Done]) -> None:
        """Only now may the next one begin: it would find the history half written."""
        self._running = None

    def cancel(self) -> None:
        """Stop the turn that runs; the session goes on."""
        if self._running is not None:
            self._running.cancel()

    def judge(self, kind: OutcomeKind, *, turn: str = "", source: str = "user", reason: str = "") -> str:
        """Somebody says how a turn went, the last one unless told; returns its id."""
        found = turn or (self._previous[0] if self._previous else "")
        if not found:
            raise NotFound("There is no turn to judge yet.", mend="Ask something first.")
        self._afterwards.judge(found, kind, source, reason)
        return found

    async def settle(self) -> None:
        """Wait until everything that learns from the turns so far has done so."""
        await self._parts.background.settle()

    async def close(self) -> None:
        """End it: the turn that runs is cancelled, what still learns is waited for, but neither for ever."""
        if (running := self._running) is not None:
            running.cancel()
            await asyncio.wait([running], timeout=CLOSING_S)
        await self._parts.background.close()
        self._afterwards.write_down()
        await self._parts.close()

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # What tools and surfaces ask

    @property
    def conversation(self) -> str:
        return self.id

    @property
    def model(self) -> str:
        return self._parts.model.name

    @property
    def history(self) -> History:
        return self._history

    def may_load(self) -> set[str]:
        """The skills the model may have in this turn."""
        return self._composer.may_load()

    def in_view(self) -> set[str]:
        """The skills whose text, as it is now, stands in the conversation already."""
        return self._composer.in_view(self._loaded)

    def waiting_skills(self) -> dict[str, Skill]:
        return self._parts.review.in_conversation(self.conversation)

    def note_loaded(self, skill: Skill) -> None:
        """The model, or the person, has asked for a skill and has it."""
        self._loaded[skill.name] = skill
        self._composer.saw(skill)
        if skill.version:
            count = partial(self._parts.library.count_recommended, skill.name)
            self._outage.safely(count, "count a skill that was loaded")

    def sections(self) -> tuple[Section, ...]:
        """The last prompt, section by section."""
        if self.last is None or self.last.composed is None:
            return self._composer.system()
        return (*self.last.composed.prompt.system, *self.last.composed.prompt.context)

    # One turn

    async def _run(self, read: Callable[[], Awaitable[Incoming]], emit: Callable[[TurnEvent], None]) -> Done:
        said = await read()
        self._loaded = {}
        self._outage.trouble = ""
        self._began = self._parts.clock()
        self._afterwards.judge_by_next(self._previous, said.request.text)
        self._composer.refresh()
        if said.invoked is not None:
            self.note_loaded(said.invoked)
        away = self._outage.unless_away
        world = World(
            model=self._parts.model,
            context_tokens=self._parts.model.context_tokens or self._parts.context_tokens,
            recall=lambda request: away(lambda: self._parts.memory.recall(request.text), Remembered()),
            select=self._composer.select,
            compose=self._composer.compose,
            tools=self._offer.tools,
            begin=lambda turn: self._afterwards.begin(turn, self._began),
            finish=self._finish,
            observers=self._parts.observers,
            redactor=self._parts.redactor,
            waiting=lambda: away(self._parts.waiting, 0),
        )
        return await run_turn(new_id(), said, self._history, world, emit)

    def _finish(self, turn: TurnRecord) -> list[str]:
        self.last = turn
        self._previous = (turn.id, turn.incoming.request.text)
        loaded = tuple(self._loaded.values())
        return self._afterwards.finish(turn, began=self._began, loaded=loaded, offered=self._offer.code)


def _resumed(past: Sequence[Turn]) -> History:
    """The messages of earlier turns. One that a killed process left without an end gets one."""
    history = History()
    for turn in past:
        if history.messages:
            history.end_turn("This turn was interrupted.")
        history.add(*(message for kept in turn.messages if (message := unpack(kept)) is not None))
    return history


def new_id() -> str:
    return secrets.token_hex(6)
