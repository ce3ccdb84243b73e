"""Memory as one user sees it in one project: rules, lessons for a request, and those about the scratchpad."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from habitus.agent.choosing.exposures import ExposureAssigner, make_lesson_evidence_item
from habitus.evidence.model import select_items_drawing_last_place
from habitus.memory.cortex import Cortex
from habitus.memory.recall import MAX_LESSONS, RecalledLesson, RecallResult, compute_recall_ordering_score
from habitus.sql.outage import OutageGuard


@dataclass(frozen=True, kw_only=True)
class UserProjectMemory:
    """Memory for one user and project in a session."""

    cortex: Cortex
    user: str
    project: str
    outage: OutageGuard = field(default_factory=OutageGuard)
    offers: ExposureAssigner = field(default_factory=ExposureAssigner)

    def recall_profile_and_rules(self, *, is_away: bool = False) -> RecallResult:
        """Return the profile and rules for the system prompt, which hold for every request.

        With `is_away`, the last ones that were read.
        """
        return self.cortex.recall("", user=self.user, project=self.project, use_cache=is_away)

    def recall_lessons(self, request: str) -> RecallResult:
        """Return the lessons relevant to a request; the last place between two near-ties may be random."""
        most = MAX_LESSONS + self.offers.lots.is_active
        found = self.cortex.recall(request, user=self.user, project=self.project, max_lessons=most)
        drawn = select_items_drawing_last_place(
            self.offers.lots,
            found.lessons,
            MAX_LESSONS,
            item=make_lesson_evidence_item,
            score=compute_recall_ordering_score,
        )
        tied = (drawn.last, drawn.left_out) if drawn.last and drawn.left_out else None
        return replace(found, lessons=drawn.taken, tied=tied)

    def credit_lessons_for_successful_request(self, request: str) -> None:
        """Credit the lessons shown for a request that succeeded."""
        self.cortex.record_helpful(request, user=self.user, project=self.project)

    def count_pending_lessons(self) -> int:
        """Return the number of pending lessons."""
        return len(self.cortex.list_pending_lessons(user=self.user))

    @property
    def scratchpad_description_lessons(self) -> tuple[RecalledLesson, ...]:
        """The lessons in the scratchpad tool's description, fixed for the session."""
        is_withheld = self.offers.is_withheld
        return tuple(
            note
            for note in self.scratchpad_lessons_with_withheld
            if not is_withheld(make_lesson_evidence_item(note), is_sure=note.is_confirmed_by_person)
        )

    @cached_property
    def scratchpad_lessons_with_withheld(self) -> tuple[RecalledLesson, ...]:
        """The same lessons with those that are withheld."""
        lessons = partial(self.cortex.recall_scratchpad_lessons, user=self.user, project=self.project)
        return self.outage.read_or_default(lessons, ())
