"""A session: a conversation with a model behind it, one turn at a time, each as a stream of what happens.

Without a model it is a conversation alone: one prompt from first to last turn, for whoever runs the loop.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path

from habitus.agent.background import CLOSING_S, in_thread
from habitus.agent.history import History
from habitus.agent.open_turn import OpenTurn
from habitus.agent.prompts.composer import Composer, Parts
from habitus.agent.prompts.prompt import Section
from habitus.agent.recorder import TurnRecorder
from habitus.agent.stream import Done, Emit, TurnEvent
from habitus.agent.turn import run_turn
from habitus.agent.user_input import Asking, read_input
from habitus.errors import Invalid, NotFound
from habitus.events import OutcomeKind
from habitus.journal.model import Turn
from habitus.llm.model import Model, Usage
from habitus.memory.model import Encoded
from habitus.skills.model import Skill


class Session:
    def __init__(self, conversation: Conversation, model: Model, history: History) -> None:
        self.history = history
        self._conversation = conversation
        self._model = model
        self._running: asyncio.Task[Done] | None = None
        self.usage = Usage()  # of all its turns here

    # Turns

    async def turn(
        self,
        text: str,
        attach: Sequence[str | Path] = (),
        *,
        caller_id: str = "",
        reply_to: str = "",
        paths: Sequence[str] = (),
        resources: Collection[str] = (),
        features: Collection[str] = (),
        invoked: Skill | None = None,
    ) -> Done:
        """Say something and wait for the answer; what else may be said is explained at `turn_stream`."""
        events = self.turn_stream(
            text,
            attach,
            caller_id=caller_id,
            reply_to=reply_to,
            paths=paths,
            resources=resources,
            features=features,
            invoked=invoked,
        )
        done: Done | None = None
        async with aclosing(events) as stream:
            async for seen in stream:
                done = seen if isinstance(seen, Done) else done
        if done is None:
            raise asyncio.CancelledError
        return done

    async def turn_stream(
        self,
        text: str,
        attach: Sequence[str | Path] = (),
        *,
        caller_id: str = "",
        reply_to: str = "",
        paths: Sequence[str] = (),
        resources: Collection[str] = (),
        features: Collection[str] = (),
        invoked: Skill | None = None,
    ) -> AsyncGenerator[TurnEvent, None]:
        """Say something and see the answer come. Whoever stops listening cancels the turn.

        `reply_to` is a turn that is directly answered, `paths` are the files the work is about, `resources` the kinds
        of resources the person has, `features` experiments that are on. `invoked` is a skill the person calls by its
        name; the model gets it as it is handed in.
        """
        if self._running is not None:
            raise Invalid("A turn of this session is running.", mend="Wait for it, or cancel it first.")
        asking = Asking(
            text=text,
            attach=[Path(path) for path in attach],
            caller_id=caller_id,
            reply_to=reply_to,
            paths=paths,
            resources=resources,
            features=features,
            invoked=invoked,
            sees_images=self._model.sees_images,
        )
        seen: asyncio.Queue[TurnEvent | None] = asyncio.Queue()
        self._running = running = asyncio.create_task(self._run(asking, seen.put_nowait))
        running.add_done_callback(self._on_end)
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

    async def _run(self, asking: Asking, emit: Emit) -> Done:
        turn = await self._conversation.turn(asking, emit)
        room = self._model.context_tokens or self._conversation.parts.context_tokens
        try:
            with turn.trace():
                return await run_turn(turn, self._model, self.history, context_tokens=room, emit=emit)
        finally:
            self.usage += turn.usage

    def _on_end(self, turn: asyncio.Task[Done]) -> None:
        """Only now may the next one begin: it would find the history half written."""
        self._running = None

    def cancel(self) -> None:
        """Stop the turn that runs; the session goes on."""
        if self._running is not None:
            self._running.cancel()

    def judge(self, kind: OutcomeKind, *, turn: str = "", source: str = "user", reason: str = "") -> str:
        """Somebody says how a turn went, the last one unless told; returns its id."""
        return self._conversation.judge(kind, turn=turn, source=source, reason=reason)

    def use(self, model: Model) -> None:
        """Go on with another model."""
        self._model = model

    async def settle(self) -> None:
        """Wait until everything that learns from the turns so far has done so."""
        await self._conversation.parts.background.settle()

    def learned(self) -> tuple[Encoded, ...]:
        """The lessons that turns have taught since the last call; learning may still go on."""
        return self._conversation.parts.learned()

    async def close(self) -> None:
        """End it: the turn that runs is cancelled, what still learns is waited for, but neither for ever."""
        if (running := self._running) is not None:
            running.cancel()
            await asyncio.wait([running], timeout=CLOSING_S)
        await self._conversation.close()

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # What surfaces ask

    @property
    def id(self) -> str:
        return self._conversation.id

    @property
    def conversation(self) -> str:
        return self._conversation.id

    @property
    def model(self) -> str:
        return self._model.name

    @property
    def last(self) -> OpenTurn | None:
        """The turn that runs, or the last one."""
        return self._conversation.last

    def sections(self) -> tuple[Section, ...]:
        """The last prompt, section by section."""
        return self._conversation.sections()


class Conversation:
    def __init__(self, parts: Parts, id: str, past: Sequence[Turn] = ()) -> None:
        self.id = id
        self.parts = parts
        self.last: OpenTurn | None = None
        self._previous: tuple[str, str] | None = (past[-1].id, past[-1].request) if past else None
        # A clock may be set back; turns of a conversation follow each other all the same.
        self._began_on = past[-1].started_on if past else datetime.min.replace(tzinfo=UTC)
        self._composer = Composer(parts)
        self._recorder = TurnRecorder(parts, id)

    def settle(self) -> None:
        """Put the steady prompt together before the first turn needs it. It looks into the database."""
        self._composer.settle()

    async def turn(self, asking: Asking, emit: Emit = lambda event: None) -> OpenTurn:
        """The next turn, not yet opened: what is attached is read, and the turn before it judged by what is said."""
        said = await read_input(self.parts, asking, conversation=self.id)
        self.parts.view.outage.begin()
        previous = self._previous
        await in_thread(lambda: self._recorder.judge_by_next(previous, said.request.text))
        await in_thread(lambda: self.parts.view.outage.unless_away(self.parts.before_turn, None))
        began_on = self._began_on = max(self.parts.clock(), self._began_on)
        self.last = OpenTurn(
            id=new_id(),
            said=said,
            began_on=began_on,
            parts=self.parts,
            composer=self._composer,
            recorder=self._recorder,
            emit=emit,
        )
        self._previous = (self.last.id, said.request.text)
        return self.last

    def judge(self, kind: OutcomeKind, *, turn: str = "", source: str = "user", reason: str = "") -> str:
        """Somebody says how a turn went, the last one unless told; returns its id."""
        found = turn or (self._previous[0] if self._previous else "")
        if not found:
            raise NotFound("There is no turn to judge yet.", mend="Ask something first.")
        self._recorder.judge(found, kind, source, reason)
        return found

    def sections(self) -> tuple[Section, ...]:
        """The last prompt, section by section."""
        if self.last is None or self.last.composed is None:
            return self._composer.system()
        return (*self.last.composed.prompt.system, *self.last.composed.prompt.context)

    async def close(self) -> None:
        """Wait for the learners, but not for ever, and end everything that belongs to the session."""
        await self.parts.background.close()
        await in_thread(self._recorder.catch_up)  # the last chance to write down what waits
        await self.parts.closing.aclose()


def new_id() -> str:
    return secrets.token_hex(6)
