"""Chats over the web: conversations that stay open, and turns that continue whether or not a client listens."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack, aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from habitus import sql
from habitus.agent.background import EventLoopThread, run_in_thread
from habitus.agent.session import Session, generate_turn_or_session_id
from habitus.agent.stream import Consent, ConsentQuestion, TurnEvent, TurnResult, answer_consent_with_later
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
from habitus.errors import HabitusError, Invalid, NotFound
from habitus.journal.model import Turn
from habitus.memory.model import Engram
from habitus.sql.change_notifications import ChangeTopic, get_change_feed, notify_change

# Open conversations per home; each may hold a sandbox process.
MAX_OPEN = 20
# How long a question waits for a person who may have left.
_ANSWER_TIMEOUT_S = 600.0
# How often the journal is asked about a turn of another process.
_LOOK_S = 1.0
# How often, and how long, the start of a turn is looked for in the journal.
_BEGIN_LOOK_S, _BEGIN_TIMEOUT_S = 0.02, 5.0
# How long the end of a turn waits for its lessons.
_LEARNING_TIMEOUT_S = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsentRequested:
    """The turn asks a person for consent."""

    number: int
    question: ConsentQuestion


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnEnd:
    """The end of a turn, sent exactly once: its id if it was recorded, and its lessons."""

    turn: str = ""
    # Why there is no reply.
    reason: str = ""
    learned: tuple[Engram, ...] = ()


ChatEvent = TurnEvent | ConsentRequested | TurnEnd


@dataclass(frozen=True, kw_only=True, slots=True)
class ActiveChatTurn:
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
        self._listening = ExitStack()
        self._open: KeyedResourcePool[str, _ChatSession] = KeyedResourcePool(
            lambda talk: talk.session.close(), max_open=MAX_OPEN, is_idle=lambda talk: not talk.is_turn_running
        )
        if not home.is_read_only:
            feed = get_change_feed(home.shared)
            self._listening.enter_context(feed.call_on_change(ChangeTopic.CHAT_STOPS, self._stop_turn_of_this_process))

    def require_chat_model(self) -> None:
        """Raise an error if no usable model is configured."""
        refuse_agent_as_chat_model(resolve_main_and_cheap_model_names(self._home.settings, os.environ)[0], os.environ)
        self._models.main  # noqa: B018  # opening it is the check

    def send_message(self, text: str, id: str = "", files: Sequence[UploadedFile] = ()) -> str:
        """Start a turn in a new conversation, or in one from the journal; return the conversation's id."""
        if not text.strip() and not files:
            raise Invalid("There is nothing to answer.", hint="Write something first, or attach a file.")
        return self._loop.run_and_wait(self._start_turn_with_message(text, id, files))

    def get_active_turn(self, id: str) -> ActiveChatTurn | None:
        """Return the turn being answered, also by another process; None if nothing runs."""
        if (talk := self._find_chat_open_in_this_process(id)) is not None:
            return talk.active_turn if talk.is_turn_running else None
        turn = self._find_last_turn_on_shared_database(id)
        return (
            ActiveChatTurn(request=turn.request) if turn is not None and self._is_turn_running_elsewhere(turn) else None
        )

    def require_chat(self, id: str) -> None:
        """Raise `NotFound` if there is no conversation with this id."""
        if self._open.get(id) is None and self._find_last_turn_on_shared_database(id) is None:
            self._get_open_chat(id)

    async def wait_for_events(self, id: str, after: int) -> tuple[ChatEvent, ...]:
        """Wait until there are events after this index, and return them. The last one of a turn is `TurnEnd`.

        Of a turn that another process answers, only the end is told, as the journal has it.
        """
        if (talk := await run_in_thread(lambda: self._find_chat_open_in_this_process(id))) is not None:
            return await self._loop.run_async(talk.wait_for_events(after))
        while (turn := await run_in_thread(lambda: self._find_last_turn_on_shared_database(id))) is not None:
            if turn.ended_on is not None:
                return (TurnEnd(turn=turn.id),)
            if not self._is_turn_running_elsewhere(turn):
                return (TurnEnd(turn=turn.id, reason="The process that answered has ended."),)
            await asyncio.sleep(_LOOK_S)
        self._get_open_chat(id)
        return ()

    def _find_chat_open_in_this_process(self, id: str) -> _ChatSession | None:
        """Return the chat that this process has open; None if another process has answered in it since."""
        talk = self._open.get(id)
        if (
            talk is None
            or talk.is_turn_still_answering
            or (turn := self._find_last_turn_on_shared_database(id)) is None
        ):
            return talk
        return talk if turn.id in talk.list_last_two_turn_ids() else None

    @property
    def _is_shared_database_online(self) -> bool:
        return self._home.shared.dialect.name == "postgresql" and not self._home.is_offline

    def _find_last_turn_on_shared_database(self, id: str) -> Turn | None:
        """Return the last turn of a conversation of this person on a database of many processes; None without one."""
        is_known = bool(id) and self._is_shared_database_online
        turns = self._home.journal.list_session_turns(id, user=self._home.settings.user) if is_known else []
        return turns[-1] if turns else None

    def _is_turn_running_elsewhere(self, turn: Turn) -> bool:
        """Return whether another process may still answer this turn."""
        return turn.ended_on is None and (self._home.clock() - turn.started_on).total_seconds() < _ANSWER_TIMEOUT_S

    def stop_turn(self, id: str) -> None:
        """Stop the running turn, also of another process; the conversation stays open."""
        if self._stop_turn_of_this_process(id):
            return
        turn = self._find_last_turn_on_shared_database(id)
        if turn is None:
            self._get_open_chat(id)
        elif self._is_turn_running_elsewhere(turn):
            with sql.write_transaction(self._home.shared) as conn:
                notify_change(conn, ChangeTopic.CHAT_STOPS, id)

    def _stop_turn_of_this_process(self, id: str) -> bool:
        """Stop the turn of this conversation if this process runs it; return whether it does."""
        if (talk := self._open.get(id)) is None or not talk.is_turn_running:
            return False
        self._loop.run_and_wait(_wrap_as_coroutine(talk.session.cancel))
        return True

    def deliver_person_answer(self, id: str, number: int, consent: Consent) -> None:
        """Pass on a person's answer; ignored if the turn no longer waits for it."""
        talk = self._get_open_chat(id)
        self._loop.run_and_wait(_wrap_as_coroutine(partial(talk.deliver_person_answer, number, consent)))

    def close(self) -> None:
        """Close every chat, then the tools, the models and the loop."""
        try:
            self._listening.close()
            self._loop.run_and_wait(self._close_chats_tools_and_models())
        finally:
            self._loop.close()

    async def _start_turn_with_message(self, text: str, id: str, files: Sequence[UploadedFile]) -> str:
        conversation = id or generate_turn_or_session_id()
        if await run_in_thread(lambda: self._find_chat_open_in_this_process(conversation)) is None:
            # A session that another process went on with is read anew from the journal.
            await self._open.close_resource_of_key(conversation)
        before = await run_in_thread(lambda: self._find_last_turn_on_shared_database(id))
        opening = partial(run_in_thread, lambda: self._build_chat_session(conversation, resume=bool(id)))
        async with self._open.hold(conversation, opening) as talk:
            talk.start_turn(text, files, previous=before.id if before is not None else "")
        await self._open.shrink_to_limit()
        await self._wait_until_turn_start_recorded(talk, conversation)
        return conversation

    async def _wait_until_turn_start_recorded(self, talk: _ChatSession, id: str) -> None:
        """Wait until other processes can see that the turn has begun: the browser's next request may reach one."""
        until = time.monotonic() + _BEGIN_TIMEOUT_S
        while talk.is_turn_running and time.monotonic() < until and self._is_shared_database_online:
            turn = await run_in_thread(lambda: self._find_last_turn_on_shared_database(id))
            if turn is not None and turn.id != talk.active_turn.previous:
                return
            await asyncio.sleep(_BEGIN_LOOK_S)

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
        if (talk := self._open.get(id)) is None:
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
        self.active_turn = ActiveChatTurn()
        self._happened: list[ChatEvent] = []
        self._news = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._is_learning = False
        self._asked: dict[int, asyncio.Future[Consent]] = {}

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
            raise Invalid("An answer is still being written.", hint="Wait for it, or stop it.")
        names = tuple(file.name for file in files)
        self.active_turn = ActiveChatTurn(request=text, attached=names, began_at=len(self._happened), previous=previous)
        self._is_learning = False
        self._running = asyncio.create_task(self._run_turn(text, files))

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
        return tuple(self._happened[after:])

    async def ask_person(self, question: ConsentQuestion) -> Consent:
        """Ask the person and wait for the answer; no answer in time is a no."""
        number = len(self._happened)
        self._asked[number] = answer = asyncio.get_running_loop().create_future()
        self._publish_event(ConsentRequested(number=number, question=question))
        try:
            return await asyncio.wait_for(answer, _ANSWER_TIMEOUT_S)
        except TimeoutError:
            return await answer_consent_with_later(question)
        finally:
            del self._asked[number]

    def deliver_person_answer(self, number: int, consent: Consent) -> None:
        """Pass on the answer, unless the question has timed out."""
        answer = self._asked.get(number)
        if answer is not None and not answer.done():
            answer.set_result(consent)


def _wrap_as_coroutine(step: Callable[[], None]) -> Coroutine[Any, Any, None]:
    """Wrap a function that must run on the loop as a coroutine."""

    async def call() -> None:
        step()

    return call()
