"""Memory as one session sees it: one user, one project, and what was shown counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from habitus.agent.offers import Offers, of_note
from habitus.agent.outage import Outage
from habitus.agent.prompt import Note, Remembered
from habitus.evidence.assignment import edge
from habitus.memory.cortex import Cortex
from habitus.memory.model import TrustLevel
from habitus.memory.recall import MOST_LESSONS, Recalled, worth


@dataclass(frozen=True, kw_only=True)
class SessionMemory:
    cortex: Cortex
    user: str
    project: str
    outage: Outage = field(default_factory=Outage)
    offers: Offers = field(default_factory=Offers)

    def standing(self, *, is_away: bool = False) -> Remembered:
        """Profile and rules, for the system prompt: what holds whatever is asked.

        While the database is away, they are what was read last.
        """
        found = self.cortex.recall("", user=self.user, project=self.project, as_read_last=is_away)
        return Remembered(profile=_notes(found.profile), rules=_notes(found.rules), cut=found.cut)

    def recall(self, request: str) -> Remembered:
        """What fits a request; where chance has a say, it has it between two lessons that fit nearly as well."""
        most = MOST_LESSONS + self.offers.lots.are_drawn
        found = self.cortex.recall(request, user=self.user, project=self.project, most=most)
        drawn = edge(self.offers.lots, found.lessons, MOST_LESSONS, item=lambda one: of_note(_note(one)), worth=worth)
        tied = (_note(drawn.last), _note(drawn.left)) if drawn.last and drawn.left else None
        return Remembered(rules=_notes(found.rules), lessons=_notes(drawn.taken), cut=found.cut, tied=tied)

    def note_shown(self, notes: Sequence[str], cut: Sequence[str] = ()) -> None:
        """These stood in a prompt; for those in `cut` there was no room."""
        self.cortex.record_retrieval(notes, cut=cut)

    def turned_down(self) -> tuple[Note, ...]:
        """What this user's agent wanted remembered and has not heard that it was turned down: a sentence each."""
        return tuple(Note(id=one.id, text=one.refusal) for one in self.cortex.turned_down(self.user))

    def note_told(self, notes: Sequence[Note]) -> None:
        self.cortex.note_told(note.id for note in notes)

    def credit_lessons(self, request: str) -> None:
        """A request went well: lessons shown for it a moment ago get the credit."""
        self.cortex.record_helpful(request, user=self.user, project=self.project)

    def waiting(self) -> int:
        """How many lessons wait for a person."""
        return len(self.cortex.waiting(user=self.user))

    @property
    def in_scratchpad(self) -> tuple[Note, ...]:
        """What the scratchpad tool's description says, the same for the whole session."""
        return tuple(note for note in self._for_scratchpad if not self._is_withheld(note))

    @property
    def kept_from_scratchpad(self) -> tuple[Note, ...]:
        """What it would say, were it not withheld."""
        return tuple(note for note in self._for_scratchpad if self._is_withheld(note))

    def _is_withheld(self, note: Note) -> bool:
        return self.offers.is_withheld(of_note(note), is_sure=note.is_sure)

    @cached_property
    def _for_scratchpad(self) -> tuple[Note, ...]:
        none: tuple[Recalled, ...] = ()
        lessons = partial(self.cortex.scratchpad_lessons, user=self.user, project=self.project)
        return _notes(self.outage.unless_away(lessons, none))


def _notes(found: Sequence[Recalled]) -> tuple[Note, ...]:
    return tuple(map(_note, found))


def _note(one: Recalled) -> Note:
    is_sure = one.engram.trust is TrustLevel.USER
    return Note(
        id=one.id,
        text=one.text,
        version=one.engram.version,
        label=one.kind.heading,
        is_sure=is_sure,
        is_played=one.engram.body is not None,
    )
