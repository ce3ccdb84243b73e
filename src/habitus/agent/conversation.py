"""A conversation without a model: one prompt from its first turn to its last, and turns opened one after another."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime

from habitus.agent.background import in_thread
from habitus.agent.composer import Composer
from habitus.agent.open_turn import OpenTurn
from habitus.agent.parts import Parts
from habitus.agent.prompt import Section
from habitus.agent.recorder import TurnRecorder
from habitus.agent.stream import Emit
from habitus.agent.user_input import Asking, read_input
from habitus.errors import NotFound
from habitus.events import OutcomeKind
from habitus.journal.model import Turn


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
        self.parts.outage.begin()
        previous = self._previous
        await in_thread(lambda: self._recorder.judge_by_next(previous, said.request.text))
        await in_thread(lambda: self.parts.outage.unless_away(self.parts.before_turn, None))
        began_on = self._began_on = max(self.parts.clock(), self._began_on)
        self.last = OpenTurn(new_id(), said, self.parts, self._composer, self._recorder, emit, began_on=began_on)
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
        """What still learns is waited for, but not for ever; then everything that belongs to it ends."""
        await self.parts.background.close()
        await in_thread(self._recorder.close)
        await self.parts.closing.aclose()


def new_id() -> str:
    return secrets.token_hex(6)
