"""Conversations of loops that are not ours: kept open from turn to turn, on one event loop in a thread of its own."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from habitus.agent.background import in_thread
from habitus.agent.consent import AskPerson, nobody
from habitus.agent.conversation import Conversation, new_id
from habitus.agent.host_turn import TurnDoor
from habitus.agent.hosted_turn import HostedTurn
from habitus.agent.loop_thread import LoopThread
from habitus.agent.user_input import Asking
from habitus.app.learning import open_learner
from habitus.app.running_code import open_tools
from habitus.app.sessions import let_go_of_the_old, open_conversation
from habitus.errors import Invalid, Refused
from habitus.llm.model import ToolSpec
from habitus.skills.selection import Request, User

if TYPE_CHECKING:
    from habitus.app.habitus import Habitus

MOST_OPEN = 100  # conversations; the one that was silent longest is closed for another
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


@dataclass(frozen=True, kw_only=True, slots=True)
class HostRequest:
    """What a loop hands in for a turn."""

    asking: Asking
    user: User
    conversation: str = ""
    source_type: str = "api"
    tools: frozenset[str] = frozenset()  # names of the host's own
    ask: AskPerson = nobody
    shows_prompt: bool = True  # whether its model reads our texts; else what tools return is all that was shown


class Hosting:
    def __init__(self, habitus: Habitus) -> None:
        self._habitus = habitus
        self._tools = open_tools(habitus)  # of its own: its processes belong to this loop
        self._loop = LoopThread("habitus-turns")
        self._open: OrderedDict[str, tuple[Conversation, HostedTurn | None]] = OrderedDict()

    def turn(self, request: HostRequest) -> TurnDoor:
        async def begin() -> HostedTurn:
            return await self._begin(request)

        return TurnDoor(self._loop, begin)

    async def offered(self, request: HostRequest) -> tuple[ToolSpec, ...]:
        """What a turn of this conversation would be offered now, without beginning one."""
        return await self._loop.ask(self._offered(request))

    async def leave(self, conversation: str) -> None:
        """Whoever had the conversation has gone."""
        await self._loop.ask(self._left(conversation))

    def close(self) -> None:
        """End every conversation; a turn that nobody ended is written down as such."""
        self._loop.wait(self._close())
        self._loop.close()

    async def _begin(self, request: HostRequest) -> HostedTurn:
        id = request.conversation or new_id()
        conversation, before = await self._found(id, request)
        if before is not None:
            await before.end("", None)
        conversation.parts.tools.theirs = request.tools
        hosted = HostedTurn()
        self._open[id] = (conversation, hosted)
        self._open.move_to_end(id)
        turn = await conversation.turn(request.asking, hosted.emit)
        await hosted.begin(turn, shows_prompt=request.shows_prompt)
        while len(self._open) > MOST_OPEN:
            await self._end(next(iter(self._open)))
        return hosted

    async def _found(self, id: str, request: HostRequest) -> tuple[Conversation, HostedTurn | None]:
        """The conversation, opened where it is not, and the last turn in it."""
        found = self._open.get(id)
        if found is None:
            return await in_thread(lambda: self._opened(id, request)), None
        if found[0].parts.user.name != request.user.name:
            raise _somebody_elses(id)
        return found

    async def _offered(self, request: HostRequest) -> tuple[ToolSpec, ...]:
        conversation, last = self._open[request.conversation] = await self._found(request.conversation, request)
        asked = Request(text="", user=request.user) if last is None else last.turn.said.request

        def look() -> tuple[ToolSpec, ...]:
            conversation.parts.view.refresh()
            return conversation.parts.tools.registry(asked).specs()

        return await in_thread(look)

    async def _left(self, id: str) -> None:
        if id in self._open:
            await self._end(id)

    def _opened(self, id: str, request: HostRequest) -> Conversation:
        habitus = self._habitus
        habitus.refuse_if_read_only()
        if not _ID.fullmatch(id):
            raise Invalid(
                f"'{id[:80]}' can't be a conversation's id.", mend="Use up to 80 letters, digits, '.', '_' and '-'."
            )
        if habitus.journal.user_of(id) not in ("", request.user.name):
            raise _somebody_elses(id)
        cheap = habitus.models.cheap if habitus.settings.cheap_model else None  # nothing is spent unasked
        return open_conversation(
            habitus,
            self._tools,
            id=id,
            past=habitus.journal.recent(id, limit=1),
            user=request.user,
            source_type=request.source_type,
            ask=request.ask,
            is_hosted=True,
            shows_prompt=request.shows_prompt,
            learner=open_learner(habitus, habitus.open_memory(user=request.user.name), cheap),
        )

    async def _end(self, id: str) -> None:
        conversation, hosted = self._open.pop(id)
        if hosted is not None:
            await hosted.end("", None)
        await conversation.close()

    async def _close(self) -> None:
        for id in list(self._open):
            await self._end(id)
        await self._tools.close()
        if self._habitus.settings.cheap_model:
            await self._habitus.models.close()
        await in_thread(lambda: let_go_of_the_old(self._habitus, self._habitus.settings.user))


def asked(
    text: str,
    *,
    attachments: Sequence[str | Path] = (),
    paths: Sequence[str] = (),
    resources: Collection[str] = (),
    features: Collection[str] = (),
    reply_to: str = "",
    caller_id: str = "",
) -> Asking:
    return Asking(
        text=text,
        attach=[Path(path) for path in attachments],
        paths=paths,
        resources=resources,
        features=features,
        reply_to=reply_to,
        caller_id=caller_id,
        may_be_blank=not text,
    )


def _somebody_elses(id: str) -> Refused:
    return Refused(f"The conversation '{id}' is another user's.", mend="Choose another id.")
