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

from habitus.agent.background import Background, LoopThread, in_thread
from habitus.agent.choosing import Offers
from habitus.agent.hosted_turn import HostedTurn, TurnDoor
from habitus.agent.prompts.prompt import Composed
from habitus.agent.session import Conversation, new_id
from habitus.agent.stream import AskPerson, nobody
from habitus.agent.tools.registry import Tool
from habitus.agent.user_input import Asking
from habitus.app.conversations.running_code import open_tools
from habitus.app.conversations.sessions import let_go_of_the_old, open_conversation, open_outage
from habitus.app.learning.learning import open_adviser, open_learner
from habitus.app.sharing.approvals import Serving
from habitus.errors import Invalid, Refused
from habitus.journal.model import Turn
from habitus.learning.observer import Learner
from habitus.skills.choosing.selection import Request, User

if TYPE_CHECKING:
    from habitus.app.home import Home

# Beyond this, the conversation that was idle longest is closed.
MOST_OPEN = 100
_UNKNOWN: tuple[str, Sequence[Turn]] = ("", ())
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


@dataclass(frozen=True, kw_only=True, slots=True)
class HostRequest:
    """A turn that a foreign loop requests. User, `source_type` and `ask` are fixed by a conversation's first turn."""

    asking: Asking
    user: User
    conversation: str = ""
    source_type: str = "api"
    # The names of the host's own tools.
    tools: frozenset[str] = frozenset()
    ask: AskPerson = nobody
    # Whether the host's model reads our texts; if not, it only sees what tools return.
    shows_prompt: bool = True
    # What the host's model was shown before the turn was opened, and below the record of it.
    told: Composed | None = None
    offers: Offers | None = None
    # Whether to learn from this turn; if not, the whole transcript is studied later.
    learns: bool = True


@dataclass(kw_only=True, slots=True)
class _Hosted:
    """An open conversation and its last turn."""

    conversation: Conversation
    turn: HostedTurn | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no turn is running."""
        return self.turn is None or self.turn.is_over

    async def close(self) -> None:
        """End the last turn and close the conversation."""
        if self.turn is not None:
            await self.turn.end()
        await self.conversation.close()


class Hosting:
    """The open conversations of foreign loops, on an event loop of their own."""

    def __init__(self, home: Home) -> None:
        self._home = home
        # Not the home's tools: processes belong to the event loop that started them.
        self._tools = open_tools(home)
        self._loop = LoopThread("habitus-turns")
        self._open: Keeper[str, _Hosted] = Keeper(_Hosted.close, most=MOST_OPEN, is_idle=lambda one: one.is_idle)
        self._background = Background()
        self._serving = Serving(home)

    def turn(self, request: HostRequest) -> TurnDoor:
        """Return the turn as a context manager, for `with` or `async with`."""
        return TurnDoor(self._loop, partial(self._begin, request))

    async def offered_tools(self, request: HostRequest) -> tuple[Tool, ...]:
        """Return the tools that a turn of this conversation would offer now, without opening one."""
        return await self._loop.ask(self._offered_tools(request))

    async def leave(self, conversation: str) -> None:
        """End a conversation whose client has disconnected."""
        if self._open.get(conversation) is not None:
            await self._loop.ask(self._open.end(conversation))

    def close(self) -> None:
        """End every conversation; a turn that is still open is recorded as unfinished."""
        try:
            self._loop.wait(self._close())
        finally:
            self._loop.close()
            self._serving.close()

    async def _begin(self, request: HostRequest) -> HostedTurn:
        id = request.conversation or new_id()
        _check(id)
        hosted = HostedTurn()
        async with self._hold(id, request) as held:
            if held.turn is not None:
                await held.turn.end()
            held.conversation.parts.tools.theirs = request.tools
            # The host knows whether its model sees images, and may open a turn before it knows the request.
            asking = replace(request.asking, sees_images=True, may_be_blank=True)
            turn = await held.conversation.turn(asking, hosted.emit)
            await hosted.begin(turn, shows_prompt=request.shows_prompt, told=request.told)
            held.turn = hosted
        # In the background, so this turn doesn't wait while another conversation closes.
        self._background.spawn(self._open.make_room())
        return hosted

    @asynccontextmanager
    async def _hold(self, id: str, request: HostRequest) -> AsyncIterator[_Hosted]:
        """Hold the conversation for one caller at a time. Raises `Refused` if it belongs to another user."""
        async with self._open.hold(id, lambda: in_thread(lambda: self._open_conversation(id, request))) as held:
            if held.conversation.parts.view.user.name != request.user.name:
                raise _somebody_elses(id)
            yield held

    async def _offered_tools(self, request: HostRequest) -> tuple[Tool, ...]:
        async with self._hold(request.conversation, request) as held:
            parts = held.conversation.parts
            asked = Request(text="", user=request.user) if held.turn is None else held.turn.turn.said.request

            def look() -> tuple[Tool, ...]:
                parts.view.refresh()
                return parts.tools.registry(asked).all_tools()

            return await in_thread(look)

    def _open_conversation(self, id: str, request: HostRequest) -> _Hosted:
        home = self._home
        home.refuse_if_read_only()
        owner, past = open_outage(home).unless_away(lambda: self._owner_and_last_turn(id), _UNKNOWN)
        if owner not in ("", request.user.name):
            raise _somebody_elses(id)
        conversation = open_conversation(
            home,
            self._tools,
            id=id,
            past=past,
            user=request.user,
            source_type=request.source_type,
            ask=request.ask,
            is_hosted=True,
            shows_prompt=request.shows_prompt,
            learner=self._learner(request),
            offers=request.offers,
        )
        return _Hosted(conversation=conversation)

    def _learner(self, request: HostRequest) -> Learner:
        home = self._home
        if not request.learns:
            return open_adviser(home)
        # Only if configured: nothing is spent without being asked for.
        cheap = home.models.cheap if home.settings.cheap_model else None
        memory = home.open_memory(user=request.user.name)
        return open_learner(home, memory, cheap, memory)

    def _owner_and_last_turn(self, id: str) -> tuple[str, Sequence[Turn]]:
        """Return a conversation's user and last turn."""
        return self._home.journal.user_of(id), self._home.journal.recent(id, limit=1)

    async def _close(self) -> None:
        home = self._home
        # Each part is closed even if another one fails.
        async with AsyncExitStack() as closing:
            closing.push_async_callback(in_thread, lambda: let_go_of_the_old(home, home.settings.user))
            if home.settings.cheap_model:
                closing.push_async_callback(home.models.close)
            closing.push_async_callback(self._tools.close)
            closing.push_async_callback(self._open.close)
            closing.push_async_callback(self._background.close)


def _check(id: str) -> None:
    if not _ID.fullmatch(id):
        raise Invalid(
            f"'{id[:80]}' can't be a conversation's id.", hint="Use up to 80 letters, digits, '.', '_' and '-'."
        )


def _somebody_elses(id: str) -> Refused:
    return Refused(f"The conversation '{id}' is another user's.", hint="Choose another id.")


K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass(slots=True)
class _Place(Generic[T]):
    """A slot of the pool; opening and closing its resource requires the lock."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    thing: T | None = None


class Keeper(Generic[K, T]):
    """A pool of resources by key, for one event loop; above `max_open`, the longest idle ones are closed."""

    def __init__(
        self, close: Callable[[T], Awaitable[None]], *, most: int, is_idle: Callable[[T], bool] = lambda thing: True
    ) -> None:
        self._close = close
        self._most = most
        self._is_idle = is_idle
        self._places: OrderedDict[K, _Place[T]] = OrderedDict()

    def get(self, key: K) -> T | None:
        """Return the open resource for a key, even while it is held; None if there is none."""
        place = self._places.get(key)
        return None if place is None else place.thing

    def open(self) -> dict[K, T]:
        """Return all open resources by key."""
        return {key: place.thing for key, place in self._places.items() if place.thing is not None}

    @asynccontextmanager
    async def hold(self, key: K, opening: Callable[[], Awaitable[T]]) -> AsyncIterator[T]:
        """Hold a resource exclusively, opening it if needed."""
        async with self._hold(key) as place:
            if place.thing is None:
                try:
                    place.thing = await opening()
                except BaseException:
                    self._places.pop(key)
                    raise
            yield place.thing

    @asynccontextmanager
    async def _hold(self, key: K) -> AsyncIterator[_Place[T]]:
        while True:
            place = self._places.setdefault(key, _Place())
            async with place.lock:
                # While we waited for the lock, the slot may have been closed and removed: then start over.
                if self._places.get(key) is place:
                    self._places.move_to_end(key)
                    yield place
                    return

    async def make_room(self) -> None:
        """Close idle resources, longest idle first, until the pool is within its limit."""
        while len(self._places) > self._most:
            idle = next((key for key, place in self._places.items() if self._may_go(place)), None)
            if idle is None:
                return
            await self.end(idle)

    def _may_go(self, place: _Place[T]) -> bool:
        return not place.lock.locked() and (place.thing is None or self._is_idle(place.thing))

    async def end(self, key: K) -> None:
        """Close the resource for a key."""
        if key not in self._places:
            return
        async with self._hold(key) as place:
            try:
                if place.thing is not None:
                    await self._close(place.thing)
            finally:
                self._places.pop(key)

    async def close(self) -> None:
        """Close every resource."""
        # Each part is closed even if another one fails.
        async with AsyncExitStack() as closing:
            for key in list(self._places):
                closing.push_async_callback(self.end, key)
