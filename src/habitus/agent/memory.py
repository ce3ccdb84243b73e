"""Memory as one session sees it: one user, one project, and what was shown counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from habitus.agent.outage import Outage
from habitus.agent.prompt import Note, Remembered
from habitus.memory.cortex import Cortex
from habitus.memory.recall import Recalled


@dataclass(frozen=True, kw_only=True)
class SessionMemory:
    cortex: Cortex
    user: str
    project: str
    outage: Outage = field(default_factory=Outage)

    def standing(self, *, is_away: bool = False) -> Remembered:
        """Profile and rules, for the system prompt: what holds whatever is asked.

        While the database is away, they are what was read last.
        """
        found = self.cortex.recall("", user=self.user, project=self.project, as_read_last=is_away)
        return Remembered(profile=_notes(found.profile), rules=_notes(found.rules), cut=found.cut)

    def recall(self, request: str) -> Remembered:
        """What fits a request."""
        found = self.cortex.recall(request, user=self.user, project=self.project)
        return Remembered(rules=_notes(found.rules), lessons=_notes(found.lessons), cut=found.cut)

    def shown(self, notes: Sequence[str], cut: Sequence[str] = ()) -> None:
        """These stood in a prompt; for those in `cut` there was no room."""
        self.cortex.record_retrieval(notes, cut=cut)

    def turned_down(self) -> tuple[Note, ...]:
        """What this user's agent wanted remembered and has not heard that it was turned down: a sentence each."""
        return tuple(Note(id=one.id, text=one.refusal) for one in self.cortex.turned_down(self.user))

    def told(self, notes: Sequence[Note]) -> None:
        self.cortex.told(note.id for note in notes)

    def helped(self, request: str) -> None:
        """A request went well: lessons shown for it a moment ago get the credit."""
        self.cortex.record_helpful(request, user=self.user, project=self.project)

    def waiting(self) -> int:
        """How many lessons wait for a person."""
        return len(self.cortex.waiting(user=self.user))

    @cached_property
    def in_scratchpad(self) -> tuple[Note, ...]:
        """What the scratchpad tool's description says, the same for the whole session."""
        none: tuple[Recalled, ...] = ()
        lessons = partial(self.cortex.scratchpad_lessons, user=self.user, project=self.project)
        return _notes(self.outage.unless_away(lessons, none))


def _notes(found: Sequence[Recalled]) -> tuple[Note, ...]:
    return tuple(Note(id=one.id, text=one.text, version=one.engram.version, label=one.kind.heading) for one in found)
