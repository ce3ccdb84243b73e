"""Conversations of loops that are not ours, kept open from turn to turn, and the one keeper of open things."""

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

MOST_OPEN = 100  # conversations; of those where no turn runs, the one that was silent longest is closed for another
_UNKNOWN: tuple[str, Sequence[Turn]] = ("", ())
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


@dataclass(frozen=True, kw_only=True, slots=True)
class HostRequest:
    """A request of somebody's loop. A conversation keeps its user, its `source_type` and its `ask`."""

    asking: Asking
    user: User
    conversation: str = ""
    source_type: str = "api"
    tools: frozenset[str] = frozenset()  # names of the host's own
    ask: AskPerson = nobody
    shows_prompt: bool = True  # whether its model reads our texts; else what tools return is all that was shown
    told: Composed | None = None  # what its model was told of ours before the turn was opened,
    offers: Offers | None = None  # and where that is noted
    learns: bool = True  # whether we learn from what we see of it; else somebody learns from all of it later


@dataclass(kw_only=True, slots=True)
class _Hosted:
    """A conversation, and its last turn."""

    conversation: Conversation
    turn: HostedTurn | None = None

    @property
    def is_idle(self) -> bool:
        return self.turn is None or self.turn.is_over

    async def close(self) -> None:
        if self.turn is not None:
            await self.turn.end()
        await self.conversation.close()


class Hosting:
    def __init__(self, home: Home) -> None:
        self._home = home
        self._tools = open_tools(home)  # of its own: its processes belong to this loop
        self._loop = LoopThread("habitus-turns")
        self._open: Keeper[str, _Hosted] = Keeper(_Hosted.close, most=MOST_OPEN, is_idle=lambda one: one.is_idle)
        self._background = Background()
        self._serving = Serving(home)

    def turn(self, request: HostRequest) -> TurnDoor:
        return TurnDoor(self._loop, partial(self._begin, request))

    async def offered_tools(self, request: HostRequest) -> tuple[Tool, ...]:
        """The tools that a turn of this conversation would be offered now, without beginning one."""
        return await self._loop.ask(self._offered_tools(request))

    async def leave(self, conversation: str) -> None:
        """Whoever had the conversation has gone."""
        if self._open.get(conversation) is not None:
            await self._loop.ask(self._open.end(conversation))

    def close(self) -> None:
        """End every conversation; a turn that nobody ended is written down as such."""
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
            # Whoever runs the loop knows whether its model sees images, and may not know what was asked.
            asking = replace(request.asking, sees_images=True, may_be_blank=True)
            turn = await held.conversation.turn(asking, hosted.emit)
            await hosted.begin(turn, shows_prompt=request.shows_prompt, told=request.told)
            held.turn = hosted
        self._background.spawn(self._open.make_room())  # nobody waits while another's conversation ends
        return hosted

    @asynccontextmanager
    async def _hold(self, id: str, request: HostRequest) -> AsyncIterator[_Hosted]:
        """The conversation, for whoever has it and nobody else."""
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
        cheap = home.models.cheap if home.settings.cheap_model else None  # nothing is spent unasked
        memory = home.open_memory(user=request.user.name)
        return open_learner(home, memory, cheap, memory)

    def _owner_and_last_turn(self, id: str) -> tuple[str, Sequence[Turn]]:
        """Whose a conversation is, and its last turn."""
        return self._home.journal.user_of(id), self._home.journal.recent(id, limit=1)

    async def _close(self) -> None:
        home = self._home
        async with AsyncExitStack() as closing:  # one that fails keeps nothing else open
            closing.push_async_callback(in_thread, lambda: let_go_of_the_old(home, home.settings.user))
            if home.settings.cheap_model:
                closing.push_async_callback(home.models.close)
            closing.push_async_callback(self._tools.close)
            closing.push_async_callback(self._open.close)
            closing.push_async_callback(self._background.close)


def _check(id: str) -> None:
    if not _ID.fullmatch(id):
        raise Invalid(
            f"'{id[:80]}' can't be a conversation's id.", mend="Use up to 80 letters, digits, '.', '_' and '-'."
        )


def _somebody_elses(id: str) -> Refused:
    return Refused(f"The conversation '{id}' is another user's.", mend="Choose another id.")


K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass(slots=True)
class _Place(Generic[T]):
    """Whoever opens or closes something here holds the lock."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    thing: T | None = None


class Keeper(Generic[K, T]):
    """On one event loop. Of more than `most` the idle one that was silent longest is closed."""

    def __init__(
        self, close: Callable[[T], Awaitable[None]], *, most: int, is_idle: Callable[[T], bool] = lambda thing: True
    ) -> None:
        self._close = close
        self._most = most
        self._is_idle = is_idle
        self._places: OrderedDict[K, _Place[T]] = OrderedDict()

    def get(self, key: K) -> T | None:
        """The conversation that is open under a key, whoever holds it."""
        place = self._places.get(key)
        return None if place is None else place.thing

    def open(self) -> dict[K, T]:
        return {key: place.thing for key, place in self._places.items() if place.thing is not None}

    @asynccontextmanager
    async def hold(self, key: K, opening: Callable[[], Awaitable[T]]) -> AsyncIterator[T]:
        """For one caller at a time, opened where it is not; who waited while it was closed has it opened anew."""
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
                if self._places.get(key) is place:
                    self._places.move_to_end(key)
                    yield place
                    return

    async def make_room(self) -> None:
        while len(self._places) > self._most:
            idle = next((key for key, place in self._places.items() if self._may_go(place)), None)
            if idle is None:
                return
            await self.end(idle)

    def _may_go(self, place: _Place[T]) -> bool:
        return not place.lock.locked() and (place.thing is None or self._is_idle(place.thing))

    async def end(self, key: K) -> None:
        """Close what is open under a key."""
        if key not in self._places:
            return
        async with self._hold(key) as place:
            try:
                if place.thing is not None:
                    await self._close(place.thing)
            finally:
                self._places.pop(key)

    async def close(self) -> None:
        async with AsyncExitStack() as closing:  # one that fails keeps nothing else open
            for key in list(self._places):
                closing.push_async_callback(self.end, key)
