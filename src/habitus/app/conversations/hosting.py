"""Conversations of foreign agent loops, kept open between turns; and the pool that keeps them."""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from habitus.agent.background import BackgroundTasks, EventLoopThread, run_in_thread
from habitus.agent.choosing.exposures import ExposureAssigner
from habitus.agent.hosted_turn import HostedTurnRunner, TurnContextManager
from habitus.agent.prompts.prompt import ComposedPrompt
from habitus.agent.session import Conversation, generate_turn_or_session_id
from habitus.agent.stream import AskPerson, answer_consent_with_later
from habitus.agent.tools.registry import Tool
from habitus.agent.user_input import SubmittedRequest
from habitus.app.conversations.running_code import open_tools
from habitus.app.conversations.sessions import (
    open_conversation_without_model,
    open_database_outage_monitor,
    run_housekeeping_after_session,
)
from habitus.app.home import refuse_if_read_only
from habitus.app.learning.learning import open_advice_only_learner, open_session_error_learner
from habitus.app.operating.housekeeping import Housekeeper
from habitus.app.sharing.approvals import ApprovalWatcher
from habitus.errors import Invalid, Refused
from habitus.journal.model import Turn
from habitus.learning.observer import SessionErrorLearner
from habitus.skills.choosing.selection import RequestUser, UserRequest

if TYPE_CHECKING:
    from habitus.app.home import Home

# Beyond this, the conversation that was idle longest is closed.
MAX_OPEN = 100
_UNKNOWN: tuple[str, Sequence[Turn]] = ("", ())
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


@dataclass(frozen=True, kw_only=True, slots=True)
class HostTurnRequest:
    """A turn that a foreign loop requests. User, `source_type` and `ask` are fixed by a conversation's first turn."""

    user_input: SubmittedRequest
    user: RequestUser
    conversation: str = ""
    source_type: str = "api"
    # The names of the host's own tools.
    tools: frozenset[str] = frozenset()
    ask: AskPerson = answer_consent_with_later
    # Whether the host's model reads our texts; if not, it only sees what tools return.
    shows_prompt: bool = True
    # What the host's model was shown before the turn was opened, and below the record of it.
    already_shown: ComposedPrompt | None = None
    offers: ExposureAssigner | None = None
    # Whether to learn from this turn; if not, the whole transcript is studied later.
    learns: bool = True


@dataclass(kw_only=True, slots=True)
class _HostDrivenConversation:
    """An open conversation and its last turn."""

    conversation: Conversation
    turn: HostedTurnRunner | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no turn is running."""
        return self.turn is None or self.turn.is_over

    async def close(self) -> None:
        """End the last turn and close the conversation."""
        if self.turn is not None:
            await self.turn.end_without_reply()
        await self.conversation.close()


class HostDrivenConversations:
    """The open conversations of foreign loops, on an event loop of their own."""

    def __init__(self, home: Home) -> None:
        self._home = home
        # Not the home's tools: processes belong to the event loop that started them.
        self._tools = open_tools(home)
        self._loop = EventLoopThread("habitus-turns")
        self._open: KeyedResourcePool[str, _HostDrivenConversation] = KeyedResourcePool(
            _HostDrivenConversation.close, max_open=MAX_OPEN, is_idle=lambda one: one.is_idle
        )
        self._background = BackgroundTasks()
        self._serving = ApprovalWatcher(home)
        self._housekeeper = Housekeeper(home)

    def open_turn(self, request: HostTurnRequest) -> TurnContextManager:
        """Return the turn as a context manager, for `with` or `async with`."""
        return TurnContextManager(self._loop, partial(self._begin_turn, request))

    async def list_offered_tools(self, request: HostTurnRequest) -> tuple[Tool, ...]:
        """Return the tools that a turn of this conversation would offer now, without opening one."""
        return await self._loop.run_async(self._list_offered_tools(request))

    async def end_conversation(self, conversation: str) -> None:
        """End a conversation whose client has disconnected."""
        if self._open.get_open_resource(conversation) is not None:
            await self._loop.run_async(self._open.close_resource_of_key(conversation))

    def close(self) -> None:
        """End every conversation; a turn that is still open is recorded as unfinished."""
        try:
            self._loop.run_and_wait(self._close_conversations_and_run_housekeeping())
        finally:
            self._loop.close()
            self._serving.close()
            self._housekeeper.wait_until_done()

    async def _begin_turn(self, request: HostTurnRequest) -> HostedTurnRunner:
        id = request.conversation or generate_turn_or_session_id()
        _validate_conversation_id(id)
        hosted = HostedTurnRunner()
        async with self._hold_conversation_exclusively(id, request) as held:
            if held.turn is not None:
                await held.turn.end_without_reply()
            held.conversation.parts.tools.host_tool_names = request.tools
            # The host knows whether its model sees images, and may open a turn before it knows the request.
            asking = replace(request.user_input, sees_images=True, may_be_blank=True)
            turn = await held.conversation.create_turn_and_judge_previous(
                asking, hosted.collect_notice_or_forward_progress
            )
            await hosted.open_turn(turn, shows_prompt=request.shows_prompt, told=request.already_shown)
            held.turn = hosted
        # In the background, so this turn doesn't wait while another conversation closes.
        self._background.spawn(self._open.shrink_to_limit())
        self._housekeeper.start_if_due()
        return hosted

    @asynccontextmanager
    async def _hold_conversation_exclusively(
        self, id: str, request: HostTurnRequest
    ) -> AsyncIterator[_HostDrivenConversation]:
        """Hold the conversation for one caller at a time. Raises `Refused` if it belongs to another user."""
        async with self._open.hold(id, lambda: run_in_thread(lambda: self._open_conversation(id, request))) as held:
            if held.conversation.parts.view.user.name != request.user.name:
                raise _build_other_users_conversation_error(id)
            yield held

    async def _list_offered_tools(self, request: HostTurnRequest) -> tuple[Tool, ...]:
        async with self._hold_conversation_exclusively(request.conversation, request) as held:
            parts = held.conversation.parts
            asked = UserRequest(text="", user=request.user) if held.turn is None else held.turn.turn.user_input.request

            def look() -> tuple[Tool, ...]:
                parts.view.retake_snapshot_and_invalidate_caches()
                return parts.tools.build_tool_registry(asked).list_tools()

            return await run_in_thread(look)

    def _open_conversation(self, id: str, request: HostTurnRequest) -> _HostDrivenConversation:
        home = self._home
        refuse_if_read_only(home)
        owner, past = open_database_outage_monitor(home).read_or_default(
            lambda: self._read_owner_and_last_turn(id), _UNKNOWN
        )
        if owner not in ("", request.user.name):
            raise _build_other_users_conversation_error(id)
        conversation = open_conversation_without_model(
            home,
            self._tools,
            id=id,
            past=past,
            user=request.user,
            source_type=request.source_type,
            ask=request.ask,
            is_hosted=True,
            shows_prompt=request.shows_prompt,
            learner=self._open_learner(request),
            offers=request.offers,
        )
        return _HostDrivenConversation(conversation=conversation)

    def _open_learner(self, request: HostTurnRequest) -> SessionErrorLearner:
        home = self._home
        if not request.learns:
            return open_advice_only_learner(home)
        # Only if configured: nothing is spent without being asked for.
        cheap = home.models.cheap if home.settings.cheap_model else None
        memory = home.open_memory(user=request.user.name)
        return open_session_error_learner(home, memory, cheap, memory)

    def _read_owner_and_last_turn(self, id: str) -> tuple[str, Sequence[Turn]]:
        """Return a conversation's user and last turn."""
        return self._home.journal.get_session_user(id), self._home.journal.list_recent_turns_of_conversation(
            id, limit=1
        )

    async def _close_conversations_and_run_housekeeping(self) -> None:
        home = self._home
        # Each part is closed even if another one fails.
        async with AsyncExitStack() as closing:
            closing.push_async_callback(run_in_thread, lambda: run_housekeeping_after_session(home, home.settings.user))
            if home.settings.cheap_model:
                closing.push_async_callback(home.models.close)
            closing.push_async_callback(self._tools.close)
            closing.push_async_callback(self._open.close)
            closing.push_async_callback(self._background.close)


def _validate_conversation_id(id: str) -> None:
    if not _ID.fullmatch(id):
        raise Invalid(
            f"'{id[:80]}' can't be a conversation's id.", hint="Use up to 80 letters, digits, '.', '_' and '-'."
        )


def _build_other_users_conversation_error(id: str) -> Refused:
    return Refused(f"The conversation '{id}' is another user's.", hint="Choose another id.")


K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass(slots=True)
class _PoolSlot(Generic[T]):
    """A slot of the pool; opening and closing its resource requires the lock."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    resource: T | None = None


class KeyedResourcePool(Generic[K, T]):
    """A pool of resources by key, for one event loop; above `max_open`, the longest idle ones are closed."""

    def __init__(
        self, close: Callable[[T], Awaitable[None]], *, max_open: int, is_idle: Callable[[T], bool] = lambda thing: True
    ) -> None:
        self._close = close
        self._most = max_open
        self._is_idle = is_idle
        self._places: OrderedDict[K, _PoolSlot[T]] = OrderedDict()

    def get_open_resource(self, key: K) -> T | None:
        """Return the open resource for a key, even while it is held; None if there is none."""
        place = self._places.get(key)
        return None if place is None else place.resource

    def map_keys_to_open_resources(self) -> dict[K, T]:
        """Return all open resources by key."""
        return {key: place.resource for key, place in self._places.items() if place.resource is not None}

    @asynccontextmanager
    async def hold(self, key: K, opening: Callable[[], Awaitable[T]]) -> AsyncIterator[T]:
        """Hold a resource exclusively, opening it if needed."""
        async with self._hold_slot(key) as place:
            if place.resource is None:
                try:
                    place.resource = await opening()
                except BaseException:
                    self._places.pop(key)
                    raise
            yield place.resource

    @asynccontextmanager
    async def _hold_slot(self, key: K) -> AsyncIterator[_PoolSlot[T]]:
        while True:
            place = self._places.setdefault(key, _PoolSlot())
            async with place.lock:
                # While we waited for the lock, the slot may have been closed and removed: then start over.
                if self._places.get(key) is place:
                    self._places.move_to_end(key)
                    yield place
                    return

    async def shrink_to_limit(self) -> None:
        """Close idle resources, longest idle first, until the pool is within its limit."""
        while len(self._places) > self._most:
            idle = next((key for key, place in self._places.items() if self._is_evictable(place)), None)
            if idle is None:
                return
            await self.close_resource_of_key(idle)

    def _is_evictable(self, place: _PoolSlot[T]) -> bool:
        return not place.lock.locked() and (place.resource is None or self._is_idle(place.resource))

    async def close_resource_of_key(self, key: K) -> None:
        """Close the resource for a key."""
        if key not in self._places:
            return
        async with self._hold_slot(key) as place:
            try:
                if place.resource is not None:
                    await self._close(place.resource)
            finally:
                self._places.pop(key)

    async def close(self) -> None:
        """Close every resource."""
        # Each part is closed even if another one fails.
        async with AsyncExitStack() as closing:
            for key in list(self._places):
                closing.push_async_callback(self.close_resource_of_key, key)
