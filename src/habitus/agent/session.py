"""A session: a conversation with a model, one turn at a time, each as a stream of events.

A `Conversation` without a model keeps one prompt over all turns, for hosts that run their own loop.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path

from habitus.agent.background import CLOSING_S, run_in_thread
from habitus.agent.history import MessageHistory
from habitus.agent.open_turn import OpenTurn
from habitus.agent.prompts.composer import ConversationServices, PromptComposer
from habitus.agent.prompts.prompt import PromptSection
from habitus.agent.recording.outcomes import build_full_weight_outcome, record_judgement_and_credit_success
from habitus.agent.recording.recorder import TurnRecorder
from habitus.agent.stream import Emit, TurnEvent, TurnResult
from habitus.agent.turn import run_turn
from habitus.agent.user_input import SubmittedRequest, prepare_user_input
from habitus.errors import Invalid, NotFound
from habitus.events import OutcomeKind
from habitus.journal.model import JudgementSourceKind, Turn, TurnOutcome
from habitus.llm.model import Model, TokenUsage
from habitus.memory.model import LessonDraftResult
from habitus.skills.model import Skill


class Session:
    """A conversation with a model."""

    def __init__(self, conversation: Conversation, model: Model, history: MessageHistory) -> None:
        self.history = history
        self._conversation = conversation
        self._model = model
        self._running: asyncio.Task[TurnResult] | None = None
        # The sum over all turns of this session.
        self.usage = TokenUsage()

    def load_skill(self, name: str) -> Skill:
        """Return a skill as it is now, in the version that this conversation gets."""
        view = self._conversation.parts.view
        view.take_snapshot(scan_directories=True)
        return view.load_skill(name)

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
    ) -> TurnResult:
        """Run a turn and return its result; see `turn_stream` for the parameters."""
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
        done: TurnResult | None = None
        async with aclosing(events) as stream:
            async for seen in stream:
                done = seen if isinstance(seen, TurnResult) else done
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
        """Run a turn and yield its events. Closing the generator cancels the turn.

        `reply_to` is the turn being answered, `paths` are the files the work is about, `resources` the kinds of
        resources the person has, `features` the enabled experiments. `invoked` is a skill that the person calls by
        name; the model gets it as passed.
        """
        if self._running is not None:
            raise Invalid("A turn of this session is running.", hint="Wait for it, or cancel it first.")
        asking = SubmittedRequest(
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
        self._running = running = asyncio.create_task(self._run_turn(asking, seen.put_nowait))
        running.add_done_callback(self._allow_next_turn)
        running.add_done_callback(lambda _: seen.put_nowait(None))
        try:
            while (happened := await seen.get()) is not None:
                yield happened
            if not running.cancelled():
                # A bug in the turn is raised here.
                running.result()
        finally:
            if not running.done():
                running.cancel()
                await asyncio.wait([running])

    async def _run_turn(self, asking: SubmittedRequest, emit: Emit) -> TurnResult:
        turn = await self._conversation.create_turn_and_judge_previous(asking, emit)
        room = self._model.context_tokens or self._conversation.parts.context_tokens
        try:
            with turn.attach_telemetry():
                return await run_turn(turn, self._model, self.history, context=room, emit=emit)
        finally:
            self.usage += turn.usage

    def _allow_next_turn(self, turn: asyncio.Task[TurnResult]) -> None:
        """Allow the next turn, which would otherwise find a half-written history."""
        self._running = None

    def cancel(self) -> None:
        """Cancel the running turn; the session goes on."""
        if self._running is not None:
            self._running.cancel()

    def judge(
        self,
        kind: OutcomeKind,
        *,
        turn: str = "",
        source: str = "user",
        source_kind: JudgementSourceKind = JudgementSourceKind.PERSON,
        reason: str = "",
    ) -> str:
        """Record the outcome of a turn, by default the last one; return its id.

        A person's word outweighs a validator's, and that a program's; within a kind, the last word counts.
        """
        return self._conversation.judge_turn(turn, build_full_weight_outcome(kind, source, source_kind, reason))

    def switch_model(self, model: Model) -> None:
        """Continue with another model."""
        self._model = model

    async def wait_for_learning(self) -> None:
        """Wait until learning from the turns so far is done."""
        await self._conversation.parts.background.wait_until_idle()

    def take_new_lessons(self) -> tuple[LessonDraftResult, ...]:
        """Return the lessons learned since the last call; learning may still be running."""
        return self._conversation.parts.learned()

    async def close(self) -> None:
        """Cancel the running turn and wait a limited time for learning."""
        if (running := self._running) is not None:
            running.cancel()
            await asyncio.wait([running], timeout=CLOSING_S)
        await self._conversation.close()

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

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
        """The running turn, or the last one."""
        return self._conversation.last

    def sections(self) -> tuple[PromptSection, ...]:
        """Return the sections of the last prompt."""
        return self._conversation.list_last_prompt_sections()


class Conversation:
    """The turns of a conversation, with or without a model of ours."""

    def __init__(self, parts: ConversationServices, id: str, past: Sequence[Turn] = ()) -> None:
        self.id = id
        self.parts = parts
        self.last: OpenTurn | None = None
        self._previous: tuple[str, str] | None = (past[-1].id, past[-1].request) if past else None
        # A clock may be set back; turns of a conversation follow each other all the same.
        self._began_on = past[-1].started_on if past else datetime.min.replace(tzinfo=UTC)
        self._composer = PromptComposer(parts)
        self._recorder = TurnRecorder(parts, id)

    def build_session_prompt_in_advance(self) -> None:
        """Build the session prompt before the first turn needs it. Queries the database."""
        self._composer.build_session_prompt()

    async def create_turn_and_judge_previous(
        self, asking: SubmittedRequest, emit: Emit = lambda event: None
    ) -> OpenTurn:
        """Prepare the next turn without opening it, and judge the previous one by what the person says now."""
        said = await prepare_user_input(self.parts, asking, conversation=self.id)
        self.parts.view.outage.reset_outage_for_turn()
        previous = self._previous
        await run_in_thread(lambda: self._recorder.judge_previous_turn_by_next_request(previous, said.request.text))
        await run_in_thread(lambda: self.parts.view.outage.read_or_default(self.parts.before_turn, None))
        began_on = self._began_on = max(self.parts.clock(), self._began_on)
        self.last = OpenTurn(
            id=generate_turn_or_session_id(),
            user_input=said,
            began_on=began_on,
            parts=self.parts,
            composer=self._composer,
            recorder=self._recorder,
            emit=emit,
        )
        self._previous = (self.last.id, said.request.text)
        return self.last

    def judge_turn(self, turn: str, said: TurnOutcome) -> str:
        """Record the outcome of a turn, by default the last one; return its id."""
        found = turn or (self._previous[0] if self._previous else "")
        if not found:
            raise NotFound("There is no turn to judge yet.", hint="Ask something first.")
        parts = self.parts
        record_judgement_and_credit_success(
            parts.journal, parts.finder, parts.memory, found, said, user=parts.view.user.name
        )
        return found

    def list_last_prompt_sections(self) -> tuple[PromptSection, ...]:
        """Return the sections of the last prompt."""
        if self.last is None or self.last.composed is None:
            return self._composer.build_system_sections_for_selection()
        return (*self.last.composed.prompt.system, *self.last.composed.prompt.context)

    async def close(self) -> None:
        """Wait a limited time for learning and release everything the conversation uses."""
        await self.parts.background.close()
        # The last chance to write pending journal entries.
        await run_in_thread(self._recorder.write_turns_kept_during_outage)
        await self.parts.closing.aclose()


def generate_turn_or_session_id() -> str:
    """Return a random id for a turn or session."""
    return secrets.token_hex(6)
