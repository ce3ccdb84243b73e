"""What becomes of a turn: it is written down, what was used is counted, and those who learn begin to."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

from habitus.agent import outcome
from habitus.agent.model import TurnRecord
from habitus.agent.outage import Outage, away
from habitus.agent.parts import Parts
from habitus.agent.record import journal_turn
from habitus.agent.tools.registry import Tool
from habitus.errors import NotFound
from habitus.events import OutcomeKind, TurnEnded
from habitus.journal.model import Place, Turn
from habitus.skills.model import Skill, Stage
from habitus.skills.selection import INTERACTIVE

log = logging.getLogger(__name__)

MOST_UNWRITTEN = 100  # turns that wait for a database that is away
_SEEMED_GOOD, _SAID_GOOD = 0.5, 1.0  # how much a request that went well teaches search


class Afterwards:
    def __init__(self, parts: Parts, outage: Outage, session: str) -> None:
        self._parts = parts
        self._outage = outage
        self._session = session
        self._unwritten: list[Turn] = []  # turns that wait for the database

    def begin(self, turn: TurnRecord, began: datetime) -> None:
        """Write down what was asked, so that not even a killed process loses it."""
        so_far = journal_turn(turn, session=self._session, started_on=began, ended_on=None, loaded=(), tools=())
        self._outage.safely(lambda: self._parts.journal.record(so_far), "write down that a turn began")

    def finish(
        self, turn: TurnRecord, *, began: datetime, loaded: Sequence[Skill], offered: Sequence[Tool]
    ) -> list[str]:
        """Everything that has to be done with a turn; what to tell the person about it."""
        kept = journal_turn(
            turn,
            session=self._session,
            started_on=began,
            ended_on=self._parts.clock(),
            loaded=loaded,
            tools=[(tool.name, tool.version) for tool in offered],
        )
        self._unwritten = [*self._unwritten, kept][-MOST_UNWRITTEN:]
        self.write_down()
        if not turn.is_cancelled:
            if not self._outage.trouble:
                self._outage.safely(lambda: self._count(turn, loaded), "count what was used")
            self._teach(turn)
        return [f"{self._outage.trouble} {self._consequence()}"] if self._outage.trouble else []

    def _consequence(self) -> str:
        if not self._unwritten:
            return "This turn made do with what was known before."
        return "This turn made do with what was known before; it is written down when the database is back."

    def write_down(self) -> None:
        """The last turn, and those before it that the database did not take."""

        def record() -> None:
            while self._unwritten:
                first = self._unwritten.pop(0)
                try:
                    self._parts.journal.record(first)
                except away():
                    self._unwritten.insert(0, first)  # it waits; what can't be written for another reason does not
                    raise

        self._outage.safely(record, "write the turn down")

    def _count(self, turn: TurnRecord, loaded: Sequence[Skill]) -> None:
        parts, request = self._parts, turn.incoming.request
        went = {OutcomeKind.OK: True, OutcomeKind.FAILED: False}.get(turn.outcome.kind)
        shown = turn.composed.skills if turn.composed else ()
        for skill in {skill.name: skill for skill in (*loaded, *shown)}.values():
            if skill.version:
                with suppress(NotFound):  # the turn may have removed it
                    parts.library.count_use(skill.name, stage=Stage.STEPS, succeeded=went)
        if turn.composed is not None:
            notes = [*turn.composed.rules, *turn.composed.notes]
            parts.memory.shown([note.id for note in notes], cut=turn.composed.cut)
        if turn.outcome.is_ok:
            self._credit(request.text, [skill.name for skill in loaded], _SEEMED_GOOD)
            if request.source_type in INTERACTIVE:
                parts.journal.mark_seen(parts.user.name, parts.library.tree_hashes())

    def _credit(self, request: str, loaded: Sequence[str], weight: float) -> None:
        """A request went well: search learns which skills served it, memory which lessons were there."""
        said = self._parts.redactor.redact(request).text
        for name in loaded:
            self._parts.finder.learn(name, said, weight=weight)
        self._parts.memory.helped(request)

    def _teach(self, turn: TurnRecord) -> None:
        ended = TurnEnded(
            turn=turn.id,
            request=self._parts.redactor.redact(turn.incoming.request.text).text,
            outcome=turn.outcome,
            user=self._parts.user.name,
            project=self._parts.project,
            rules=tuple(note.text for note in turn.composed.rules) if turn.composed else (),
            lessons=tuple(note.id for note in turn.composed.notes) if turn.composed else (),
        )
        for observer in self._parts.observers:
            try:
                self._parts.background.spawn(observer.learn(ended))
            except Exception:
                log.warning("An observer could not begin to learn; nothing else is affected.", exc_info=True)

    def judge(self, turn: str, kind: OutcomeKind, source: str, reason: str) -> None:
        """Somebody who knows says how a turn went."""
        self._parts.journal.judge(turn, outcome.explicit(kind, source, reason))
        if kind is OutcomeKind.OK:
            judged = self._parts.journal.turn(turn)
            loaded = [entry.name for entry in judged.selected if entry.place is Place.LOADED]
            self._credit(judged.request, loaded, _SAID_GOOD)

    def judge_by_next(self, previous: tuple[str, str] | None, request: str) -> None:
        """What the next request says about the turn before it; `previous` is its id and its request."""
        if previous is None:
            return
        id, before = previous
        judged = outcome.by_next_request(before, request)
        if judged is not None:
            self._outage.safely(lambda: self._parts.journal.judge(id, judged), "judge the turn before")
