"""Chats over the web: conversations that stay open, and turns that continue whether or not a client listens."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack, aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from habitus.agent.background import EventLoopThread, run_in_thread
from habitus.agent.session import Session, generate_turn_or_session_id
from habitus.agent.stream import Consent, ConsentQuestion, TurnResult, answer_consent_with_later
from habitus.app.conversations.chat_events import (
    ChatEvent,
    ConsentAnswered,
    ConsentRequested,
    TurnEnd,
    build_messages_from_chat_events,
    decode_chat_event,
    encode_chat_event,
)
from habitus.app.conversations.hosting import KeyedResourcePool
from habitus.app.conversations.models import (
    open_main_and_cheap_models,
    refuse_agent_as_chat_model,
    resolve_main_and_cheap_model_names,
)
from habitus.app.conversations.running_code import open_tools
from habitus.app.conversations.sessions import open_session
from habitus.app.home import Home
from habitus.app.library.uploading import UploadedFile, write_uploads_to_temporary_folders
from habitus.errors import HabitusError, Invalid, NotFound, StorageFailed
from habitus.journal.model import Turn
from habitus.journal.running_turns import RunningTurn, RunningTurnStore

# Open conversations per home; each may hold a sandbox process.
MAX_OPEN = 20
# How long a question waits for a person who may have left.
_ANSWER_TIMEOUT_S = 600.0
# How often a turn is reported to other processes, and looked for by them.
_REPORT_S = 1.0
# How often, and how long, the start of a turn is looked for in the journal.
_BEGIN_LOOK_S, _BEGIN_TIMEOUT_S = 0.02, 5.0
# How long the end of a turn waits for its lessons.
_LEARNING_TIMEOUT_S = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ActiveChatTurnSummary:
    """The request being answered, the names of its attachments, the index of its first event, and the turn before."""

    request: str = ""
    attached: tuple[str, ...] = ()
    began_at: int = 0
    previous: str = ""


_opening = threading.Lock()
_opened: WeakKeyDictionary[Home, UserChatSessions] = WeakKeyDictionary()


def get_or_open_user_chat_sessions(home: Home) -> UserChatSessions:
    """Return the chats of this home, opened on first use; they end before the home closes."""
    with _opening:
        if home not in _opened:
            _opened[home] = UserChatSessions(home)
            home.exit_stack.callback(_opened[home].close)
        return _opened[home]


class UserChatSessions:
    """The chats of one person, on an event loop in a thread of its own. Safe to call from any thread."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._models = open_main_and_cheap_models(home.settings, os.environ)
        # Not the home's tools: processes belong to the event loop that started them.
        self._tools = open_tools(home)
        self._loop = EventLoopThread("habitus-talks")
        self._running = RunningTurnStore(home.shared)
        self._open: KeyedResourcePool[str, _ChatSession] = KeyedResourcePool(
            lambda talk: talk.session.close(), max_open=MAX_OPEN, is_idle=lambda talk: not talk.is_turn_running
        )

    def require_chat_model(self) -> None:
        """Raise an error if no usable model is configured."""
        refuse_agent_as_chat_model(resolve_main_and_cheap_model_names(self._home.settings, os.environ)[0], os.environ)
        self._models.main  # noqa: B018  # opening it is the check

    def send_message(self, text: str, id: str = "", files: Sequence[UploadedFile] = ()) -> str:
        """Start a turn in a new conversation, or in one from the journal; return the conversation's id."""
        if not text.strip() and not files:
            raise Invalid("There is nothing to answer.", hint="Write something first, or attach a file.")
        return self._loop.run_and_wait(self._start_turn_with_message(text, id, files))

    def get_active_turn(self, id: str) -> ActiveChatTurnSummary | None:
        """Return the turn being answered, also by another process; None if nothing runs."""
        if (talk := self._find_up_to_date_chat_open_here(id)) is not None:
            return talk.active_turn if talk.is_turn_running else None
        turn = self._find_last_turn_on_shared_database(id)
        running = self._find_or_close_turn_running_elsewhere(turn)
        return (
            None
            if turn is None or running is None
            else ActiveChatTurnSummary(request=turn.request, began_at=running.began_at)
        )

    def require_chat(self, id: str) -> None:
        """Raise `NotFound` if there is no conversation with this id."""
        if self._open.get_open_resource(id) is None and self._find_last_turn_on_shared_database(id) is None:
            self._get_open_chat(id)

    async def wait_for_events(self, id: str, after: int) -> tuple[ChatEvent, ...]:
        """Wait until there are events after this index, and return them. The last one of a turn is `TurnEnd`.

        Those of a turn that another process answers come from the journal.
        """
        if (talk := await run_in_thread(lambda: self._find_up_to_date_chat_open_here(id))) is not None:
            return await self._loop.run_async(talk.wait_for_events(after))
        while (turn := await run_in_thread(lambda: self._find_last_turn_on_shared_database(id))) is not None:
            running = await run_in_thread(partial(self._find_or_close_turn_running_elsewhere, turn))
            if running is None:
                return (TurnEnd(turn=turn.id),)
            if lines := running.lines[max(0, after - running.began_at) :]:
                return tuple(map(decode_chat_event, lines))
            await asyncio.sleep(_REPORT_S)
        self._get_open_chat(id)
        return ()

    def _find_up_to_date_chat_open_here(self, id: str) -> _ChatSession | None:
        """Return the chat that this process has open; None if another process has answered in it since."""
        talk = self._open.get_open_resource(id)
        if (
            talk is None
            or talk.is_turn_still_answering
            or (turn := self._find_last_turn_on_shared_database(id)) is None
        ):
            return talk
        return talk if turn.id in talk.list_last_two_turn_ids() else None

    @property
    def _is_postgresql_shared_and_online(self) -> bool:
        return self._home.shared.dialect.name == "postgresql" and not self._home.is_offline

    def _find_last_turn_on_shared_database(self, id: str) -> Turn | None:
        """Return the last turn of a conversation of this person on a database of many processes; None without one."""
        is_known = bool(id) and self._is_postgresql_shared_and_online
        turns = self._home.journal.list_session_turns(id, user=self._home.settings.user) if is_known else []
        return turns[-1] if turns else None

    def _find_or_close_turn_running_elsewhere(self, turn: Turn | None) -> RunningTurn | None:
        """Return this turn if another process answers it. If that process is gone, what it had said is recorded."""
        if turn is None or turn.ended_on is not None:
            return None
        if (running := self._running.find_running_turn(turn.id)) is None:
            is_recent = (self._home.clock() - turn.started_on).total_seconds() < _ANSWER_TIMEOUT_S
            return RunningTurn(began_at=0, lines=(), is_reported=False) if is_recent else None
        if running.is_reported or self._home.is_read_only:
            return running
        said = build_messages_from_chat_events(map(decode_chat_event, running.lines))
        self._running.record_abandoned_turn(self._home.journal, turn.id, said, self._home.clock())
        return None

    def stop_turn(self, id: str) -> None:
        """Stop the running turn, also of another process; the conversation stays open."""
        self._send_request_to_running_turn(id, ["stop"])

    def deliver_person_answer(self, id: str, number: int, consent: Consent) -> None:
        """Pass on a person's answer; ignored if the turn no longer waits for it."""
        self._send_request_to_running_turn(id, ["answer", number, consent])

    def _send_request_to_running_turn(self, id: str, request: Sequence[object]) -> None:
        talk = self._open.get_open_resource(id)
        if talk is not None and talk.is_turn_running:
            self._loop.run_and_wait(_wrap_as_coroutine(partial(talk.stop_turn_or_deliver_answer, request)))
        elif (turn := self._find_last_turn_on_shared_database(id)) is None:
            self._get_open_chat(id)
        else:
            self._running.add_request_to_running_turn(turn.id, json.dumps(request))

    def close(self) -> None:
        """Close every chat, then the tools, the models and the loop."""
        try:
            self._loop.run_and_wait(self._close_chats_tools_and_models())
        finally:
            self._loop.close()

    async def _start_turn_with_message(self, text: str, id: str, files: Sequence[UploadedFile]) -> str:
        conversation = id or generate_turn_or_session_id()
        before = await run_in_thread(lambda: self._find_last_turn_on_shared_database(id))
        if await run_in_thread(lambda: self._find_up_to_date_chat_open_here(conversation)) is None:
            running = await run_in_thread(lambda: self._find_or_close_turn_running_elsewhere(before))
            if running is not None and running.is_reported:
                raise _build_still_answering_error()
            # A session that another process went on with is read anew from the journal.
            await self._open.close_resource_of_key(conversation)
        opening = partial(run_in_thread, lambda: self._build_chat_session(conversation, resume=bool(id)))
        async with self._open.hold(conversation, opening) as talk:
            talk.start_turn(text, files, previous=before.id if before is not None else "")
        await self._open.shrink_to_limit()
        if self._is_postgresql_shared_and_online:
            # The browser's next request may reach another process, which has to see that the turn has begun.
            begun = asyncio.Event()
            talk.reporting = asyncio.create_task(self._report_turn_to_other_processes(talk, begun))
            await begun.wait()
        return conversation

    async def _report_turn_to_other_processes(self, talk: _ChatSession, begun: asyncio.Event) -> None:
        """Tell other processes how far the turn is, and do what people ask of it there, until it has ended."""
        until, began_at = time.monotonic() + _BEGIN_TIMEOUT_S, talk.active_turn.began_at
        lines: list[str] = []
        try:
            while talk.is_turn_still_answering:
                requests = await self._report_progress_and_fetch_requests(talk, began_at, lines)
                for line in requests or ():
                    talk.stop_turn_or_deliver_answer(json.loads(line))
                if requests is not None or time.monotonic() > until:
                    begun.set()
                await talk.wait_for_turn_end(_REPORT_S if begun.is_set() else _BEGIN_LOOK_S)
        finally:
            begun.set()

    async def _report_progress_and_fetch_requests(
        self, talk: _ChatSession, began_at: int, lines: list[str]
    ) -> tuple[str, ...] | None:
        """Report the turn and its new lines, and return what is asked of it; None if that could not be written."""
        if (turn := talk.session.last) is None:
            return None

        def report() -> tuple[str, ...] | None:
            new = talk.list_events_from(began_at + len(lines))
            lines.extend(encode_chat_event(event, self._home.redactor) for event in new)
            return self._running.report_lines_and_take_requests(turn.id, began_at=began_at, lines=lines)

        with suppress(StorageFailed):
            return await run_in_thread(report)
        return None

    def _build_chat_session(self, id: str, *, resume: bool) -> _ChatSession:
        self.require_chat_model()
        talk = _ChatSession()
        talk.session = open_session(
            self._home,
            self._models.main,
            id=id,
            resume=resume,
            user=self._home.get_user(),
            source_type="web",
            ask=talk.ask_person,
            observers=(),
            cheap=self._models.cheap,
            learner=None,
            read=(),
            tools=self._tools,
        )
        return talk

    def _get_open_chat(self, id: str) -> _ChatSession:
        if (talk := self._open.get_open_resource(id)) is None:
            raise NotFound("Nothing is being answered here.", hint="Send a message first.")
        return talk

    async def _close_chats_tools_and_models(self) -> None:
        await self._open.close()
        await self._tools.close()
        await self._models.close()


class _ChatSession:
    """One chat, on the shared loop; its events are numbered from its first turn on."""

    session: Session

    def __init__(self) -> None:
        self.active_turn = ActiveChatTurnSummary()
        self._happened: list[ChatEvent] = []
        self._news = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._is_learning = False
        self._asked: dict[int, asyncio.Future[Consent]] = {}
        self.reporting: asyncio.Task[None] | None = None

    @property
    def is_turn_running(self) -> bool:
        """Whether a turn is running."""
        return self._running is not None and not self._running.done()

    @property
    def is_turn_still_answering(self) -> bool:
        """Whether the running turn has not ended yet; afterwards it may still learn."""
        return self.is_turn_running and not self._is_learning

    def list_last_two_turn_ids(self) -> tuple[str, ...]:
        """Return the last turn of this session, and the one before it, which is the last if it was not recorded."""
        last = self.session.last
        return (self.active_turn.previous, last.id if last is not None else "")

    def start_turn(self, text: str, files: Sequence[UploadedFile], *, previous: str) -> None:
        """Start a turn. Raises `Invalid` if one is still running."""
        if self.is_turn_running:
            raise _build_still_answering_error()
        names = tuple(file.name for file in files)
        self.active_turn = ActiveChatTurnSummary(
            request=text, attached=names, began_at=len(self._happened), previous=previous
        )
        self._is_learning = False
        self._running = asyncio.create_task(self._run_turn(text, files))

    async def wait_for_turn_end(self, seconds: float) -> None:
        """Wait until the turn has ended, for so many seconds at most."""
        if self._running is not None:
            await asyncio.wait([self._running], timeout=seconds)

    async def _run_turn(self, text: str, files: Sequence[UploadedFile]) -> None:
        reason, laid = "It was stopped.", ExitStack()
        try:
            paths = await run_in_thread(lambda: laid.enter_context(write_uploads_to_temporary_folders(files)))
            async with aclosing(self.session.turn_stream(text, paths)) as stream:
                async for event in stream:
                    self._publish_event(event)
                    reason = "" if isinstance(event, TurnResult) else reason
        except HabitusError as error:
            reason = str(error)
        finally:
            self._is_learning = True
            await run_in_thread(laid.close)
            with suppress(TimeoutError):
                await asyncio.wait_for(self.session.wait_for_learning(), _LEARNING_TIMEOUT_S)
            taught = (encoded.engram for encoded in self.session.take_new_lessons())
            last = self.session.last
            learned = tuple(engram for engram in taught if engram is not None)
            self._publish_event(TurnEnd(turn=last.id if last is not None else "", reason=reason, learned=learned))

    def _publish_event(self, happening: ChatEvent) -> None:
        """Append an event, and wake every listener."""
        self._happened.append(happening)
        # A fresh event per wake-up: listeners of the next event can't see this one's flag.
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def wait_for_events(self, after: int) -> tuple[ChatEvent, ...]:
        """Wait until there are events after this index, and return them."""
        while len(self._happened) <= after:
            await self._news.wait()
        return self.list_events_from(after)

    async def ask_person(self, question: ConsentQuestion) -> Consent:
        """Ask the person and wait for the answer; no answer in time is a no."""
        number = len(self._happened)
        self._asked[number] = answer = asyncio.get_running_loop().create_future()
        self._publish_event(ConsentRequested(number=number, question=question))
        try:
            given: Consent = await asyncio.wait_for(answer, _ANSWER_TIMEOUT_S)
        except TimeoutError:
            given = await answer_consent_with_later(question)
        finally:
            del self._asked[number]
        self._publish_event(ConsentAnswered(number=number, text=question.text, answer=given))
        return given

    def list_events_from(self, index: int) -> tuple[ChatEvent, ...]:
        """Return the events so far from this index on."""
        return tuple(self._happened[index:])

    def stop_turn_or_deliver_answer(self, request: Sequence[object]) -> None:
        """Stop the running turn, or pass on a person's answer, unless the question has timed out."""
        match request:
            case ["stop"]:
                self.session.cancel()
            case ["answer", int(number), str(word)]:
                answer = self._asked.get(number)
                if answer is not None and not answer.done():
                    answer.set_result(Consent(word))


def _build_still_answering_error() -> Invalid:
    return Invalid("An answer is still being written.", hint="Wait for it, or stop it.")


def _wrap_as_coroutine(step: Callable[[], None]) -> Coroutine[Any, Any, None]:
    """Wrap a function that must run on the loop as a coroutine."""

    async def call() -> None:
        step()

    return call()
