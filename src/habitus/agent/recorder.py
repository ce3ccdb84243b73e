"""After a turn: journal it, count uses, credit what served it, start the learners."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from habitus.agent import record
from habitus.agent.memory import SessionMemory
from habitus.agent.offers import of_skill
from habitus.agent.parts import Parts
from habitus.agent.record import TurnState, journal_turn
from habitus.errors import NotFound
from habitus.events import EventKind, OutcomeKind, TurnEnded
from habitus.evidence.model import kind_of, left_trace
from habitus.journal.journal import Journal
from habitus.journal.model import Exposure, Origin, Place, Turn, TurnOutcome, origin_of
from habitus.llm.model import Answered
from habitus.skills import fingerprint
from habitus.skills.finding import Finder
from habitus.skills.listing import Snapshot
from habitus.skills.model import Skill
from habitus.skills.selection import INTERACTIVE

log = logging.getLogger(__name__)

_CONSEQUENCE = {
    True: "This turn made do with what was known before; it is written down when the database is back.",
    False: "This turn made do with what was known before, and could not be kept: 'habitus doctor' counts such.",
}
_SEEMED_GOOD, _SAID_GOOD = 0.5, 1.0  # how much a request that went well teaches search


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    notices: tuple[str, ...] = ()  # what to tell the person
    waiting: int = 0  # changes and lessons that wait for a person


class TurnRecorder:
    """What looks into the database is for a thread; `teach` belongs on the event loop."""

    def __init__(self, parts: Parts, session: str) -> None:
        self._parts = parts
        self._outage = parts.outage
        self.session = session

    @property
    def _is_practice(self) -> bool:
        """Whether it is no real request: such turns count as no use and help nobody."""
        return origin_of(self._parts.source_type) is not Origin.REAL

    def begin(self, turn: TurnState) -> None:
        """Write down what was asked, so that not even a killed process loses it."""
        so_far = journal_turn(turn, session=self.session, ended_on=None)
        self._outage.safely(lambda: self._parts.journal.begin(so_far), "write down that a turn began")

    def finish(self, turn: TurnState, *, has_news: bool) -> Recorded:
        """Everything that has to be written down of a turn."""
        parts, outage = self._parts, self._outage
        used = self._used(turn)
        kept = journal_turn(
            turn,
            session=self.session,
            ended_on=max(parts.clock(), turn.began_on),
            exposures=self._exposures(turn, used),
            withheld=parts.view.offers.withheld_skills,
        )
        is_kept = self._write_down(kept)
        if (
            not turn.is_cancelled
            and not self._is_practice
            and (
                outage.trouble
                or not outage.safely(
                    lambda: self._count(turn, [skill for skill, _ in used], has_news), "count what was used"
                )
            )
        ):
            parts.spool.drop()
        waiting = outage.unless_away(lambda: parts.review.waiting_count() + parts.memory.waiting(), 0)
        is_told = bool(outage.trouble) and outage.is_first_to_tell()
        notices = (f"{outage.trouble} {_CONSEQUENCE[is_kept]}",) if is_told else ()
        return Recorded(notices=notices, waiting=waiting)

    def _used(self, turn: TurnState) -> Sequence[tuple[Skill, bool]]:
        """The skills that a turn used, each with whether it left a trace: what the model asked for, and what came
        into view otherwise and left one. What stands there in every turn is not used by standing there."""
        eager = turn.selection.eager if turn.selection is not None else ()
        present = {choice.name for choice in eager if choice.is_sticky or choice.summary.manifest.always_include}
        shown = turn.composed.skills if turn.composed is not None else ()
        there = {skill.name: skill for skill in shown if skill.name not in present}
        used: list[tuple[Skill, bool]] = []
        for name, skill in (there | {skill.name: skill for skill in turn.loaded}).items():
            is_asked = name in turn.asked
            has_trace = self._left_trace(turn, skill, if_unclear=is_asked)
            if is_asked or has_trace:
                used.append((skill, has_trace))
        return used

    def _exposures(self, turn: TurnState, used_skills: Sequence[tuple[Skill, bool]]) -> tuple[Exposure, ...]:
        """What the conversation was offered from this turn on, and what the turn used of all that."""
        parts, request = self._parts, turn.said.request
        parts.tools.note_offers(turn.shown_tools)
        if turn.shows_pad:
            for note in (*parts.memory.in_scratchpad, *parts.memory.kept_from_scratchpad):
                parts.view.offers.takes_note(note, is_steady=True)
        kind = kind_of(request.text, has_files=bool(request.attachments or request.paths))
        called = {str(event.detail.get("name", "")) for event in turn.events if event.kind is EventKind.TOOL_CALL}
        used = dict.fromkeys(parts.tools.items(called), False)
        used |= {of_skill(skill): not has_trace for skill, has_trace in used_skills}
        return parts.view.offers.of_turn(kind, used)

    def _left_trace(self, turn: TurnState, skill: Skill, *, if_unclear: bool) -> bool:
        answers = [message for message in turn.messages if isinstance(message, Answered)]
        calls = [call for answer in answers for call in answer.calls if call.name not in self._parts.tools.looking]
        done = [*(f"{call.name} {call.arguments}" for call in calls), *(answer.text for answer in answers), turn.reply]
        tools = [tool.name for tool in self._parts.tools.code if tool.skill == skill.name]
        request, all_done = turn.said.request.text, "\n".join(done)
        return left_trace(skill.body, tools, request=request, done=all_done, if_unclear=if_unclear)

    def catch_up(self) -> None:
        """Write what waits since the database was away, whichever process left it."""
        if not self._parts.spool.is_empty:
            self._outage.safely(lambda: self._parts.spool.replay(self._parts.journal), "write what waits")

    def _write_down(self, turn: Turn) -> bool:
        """After those that wait; where the database takes none, it waits, too. Whether it is kept at all."""
        parts = self._parts
        self.catch_up()
        if not parts.spool.is_empty or not self._outage.safely(lambda: parts.journal.record(turn), "write it down"):
            return parts.spool.keep_turn(turn)
        return True

    def close(self) -> None:
        """The last chance to write down what waits."""
        self.catch_up()

    def _count(self, turn: TurnState, used: Sequence[Skill], has_news: bool) -> None:
        parts, request, view = self._parts, turn.said.request, self._parts.view
        went = {OutcomeKind.OK: True, OutcomeKind.FAILED: False}.get(turn.outcome.kind)
        for name in (skill.name for skill in turn.loaded if skill.version):
            with suppress(NotFound):  # it was removed meanwhile
                view.library.count_recommended(name, at=view.snapshot)
        above = self._acted_above(turn)
        names = [skill.name for skill in used if skill.version]
        view.library.count_use(*(n for n in names if n not in above), succeeded=went, at=view.snapshot)
        view.library.count_use(*(n for n in names if n in above), at=view.snapshot)
        if turn.composed is not None:
            ran_cells = any(event.kind is EventKind.SCRATCHPAD_CALL for event in turn.events)
            # Lessons about cells had their chance only where a cell was run.
            has_seen = turn.shows_pad and ran_cells
            notes = [*turn.composed.rules, *turn.composed.notes, *(turn.composed.in_tools if has_seen else ())]
            parts.memory.note_shown([note.id for note in notes], cut=turn.composed.cut)
            if turn.outcome.kind is not OutcomeKind.INFRA:
                parts.review.note_told(one.id for one in turn.composed.turned_down)
                parts.memory.note_told(turn.composed.unlearned)
        if turn.outcome.is_ok and has_news and request.source_type in INTERACTIVE:
            parts.journal.mark_seen(parts.user.name, fingerprint.visible(view.snapshot, parts.gates))

    def _acted_above(self, turn: TurnState) -> set[str]:
        """The skills whose tool or recipe did the work: the steps take no credit for that."""
        results = [event.detail for event in turn.events if event.kind is EventKind.TOOL_RESULT]
        done = {str(detail.get("name", "")) for detail in results if detail.get("success") is True}
        return {tool.skill for tool in self._parts.tools.code if tool.skill and tool.name in done}

    def credit(self, turn: TurnState) -> None:
        """What a turn that went well teaches of the skills and lessons that were there."""
        if self._is_practice:
            return
        request, loaded = turn.said.request.text, [skill.name for skill in turn.loaded]
        weight = _SAID_GOOD if turn.judged_by else _SEEMED_GOOD
        self._outage.safely(lambda: self._credit(request, loaded, weight), "credit what served the request")

    def _credit(self, request: str, loaded: Sequence[str], weight: float) -> None:
        parts = self._parts
        credit(parts.finder, parts.memory, parts.redactor.redact(request).text, loaded, weight, at=parts.view.snapshot)

    def teach(self, turn: TurnState) -> None:
        """Tell those who learn that the turn is over; they go on in the background."""
        ended = TurnEnded(
            turn=turn.id,
            session=self.session,
            request=self._parts.redactor.redact(turn.said.request.text).text,
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
        parts = self._parts
        said = record.explicit(kind, source, reason)
        judge(parts.journal, parts.finder, parts.memory, turn, said, user=parts.user.name)

    def judge_by_next(self, previous: tuple[str, str] | None, request: str) -> None:
        """What the next request says about the turn before it; `previous` is its id and its request."""
        if previous is None:
            return
        id, before = previous
        judged = record.by_next_request(before, request)
        if judged is None:
            return
        self.catch_up()
        is_waiting = not self._parts.spool.is_empty
        if is_waiting or not self._outage.safely(
            lambda: self._parts.journal.judge(id, judged), "judge the turn before"
        ):
            self._parts.spool.keep_judgement(id, judged)


def judge(
    journal: Journal, finder: Finder, memory: SessionMemory, turn: str, said: TurnOutcome, *, user: str | None
) -> None:
    """Keep what somebody says of a turn, and credit what served it where it went well. `user` None may judge all."""
    judged = journal.brief(journal.judge(turn, said, user=user))
    if said.kind is OutcomeKind.OK and judged is not None and judged.is_real:  # its words may have gone
        loaded = [entry.name for entry in judged.selected if entry.place is Place.LOADED]
        credit(finder, memory, judged.request, loaded, _SAID_GOOD * said.weight)


def credit(
    finder: Finder,
    memory: SessionMemory,
    request: str,
    loaded: Sequence[str],
    weight: float,
    *,
    at: Snapshot | None = None,
) -> None:
    """A request went well: search learns which skills served it, memory which lessons were there."""
    for name in loaded:
        finder.learn(name, request, weight=weight, at=at)
    memory.credit_lessons(request)
