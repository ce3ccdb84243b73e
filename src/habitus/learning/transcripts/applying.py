"""Store the lessons of transcripts in memory and count their skill uses, once for each turn."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from habitus.learning import observer, post_mortem
from habitus.learning.detectors.rules import drop_covered_lessons
from habitus.learning.observer import LessonSink
from habitus.learning.post_mortem import PostMortemResult
from habitus.learning.transcripts.failed_calls import FailedCallCollector
from habitus.learning.transcripts.learned_turns import LearnedTurnStore, LearningMethodKind, TurnsNotLearnedError
from habitus.learning.transcripts.model import SkillUse
from habitus.learning.transcripts.study import StudiedTurn
from habitus.memory.model import LessonDraft, LessonDraftOutcome, LessonDraftResult, LessonProvenance
from habitus.redact import Redactor
from habitus.text import clean_to_one_line

log = logging.getLogger(__name__)

# Counted beside the statuses of memory.
NOT_STORED = "not stored"
# The topic of lessons from failed calls of other agents.
TOOLS_TOPIC = "tools"


@dataclass(slots=True)
class TranscriptLessonRecordingCounts:
    """The lessons that were stored or rejected, and the skill uses that were counted."""

    # By the status that memory returned.
    lessons: Counter[str] = field(default_factory=Counter)
    # Why lessons were not accepted.
    reasons: Counter[str] = field(default_factory=Counter)
    already_learned: int = 0  # turns that had been learned from before
    skill_uses: int = 0

    @property
    def stored_or_pending_lesson_count(self) -> int:
        """The number of lessons that are new, reinforced or pending."""
        return sum(
            self.lessons[status]
            for status in (LessonDraftOutcome.STORED, LessonDraftOutcome.REINFORCED, LessonDraftOutcome.PENDING)
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class LessonBatch:
    """The lessons of one finding with the digests it is known by; without drafts, it is only marked as learned."""

    digests: tuple[str, ...]
    method: LearningMethodKind
    drafts: tuple[LessonDraft, ...]
    uses: tuple[SkillUse, ...] = ()


@dataclass(slots=True)
class TranscriptLessonRecorder:
    """Stores the lessons of studied turns in memory."""

    keeper: LessonSink
    learned: LearnedTurnStore
    redactor: Redactor
    # Counts the use; False if the skill is unknown here.
    count_skill: Callable[[SkillUse], bool]
    user: str = ""
    project: str = ""
    applied: TranscriptLessonRecordingCounts = field(default_factory=TranscriptLessonRecordingCounts)

    def build_lesson_batch_of_turn(self, studied: StudiedTurn) -> LessonBatch | None:
        """Return the lessons of a turn; None if it teaches nothing."""
        if not studied.lessons and not studied.skill_uses:
            return None
        told = [
            observer.draft_detector_lesson(
                each,
                LessonProvenance(trace=studied.trace),
                redactor=self.redactor,
                user=self.user,
                project=studied.project or self.project,
            )
            for each in drop_covered_lessons(studied.lessons)
        ]
        return LessonBatch(
            digests=(studied.digest,), method=LearningMethodKind.DETECTORS, drafts=tuple(told), uses=studied.skill_uses
        )

    def has_new_turn(self, taught: LessonBatch) -> bool:
        """Whether the batch has a turn that was not learned from."""
        return any(self.learned.is_new_turn(digest, taught.method) for digest in taught.digests)

    def store_lesson_batch_once(self, taught: LessonBatch) -> None:
        """Store the lessons unless they were learned before."""
        with self.learned.claim_new_turns(taught.digests, taught.method) as new:
            if not new:
                self.applied.already_learned += taught.method is LearningMethodKind.DETECTORS
                return
            self._store_drafts_and_count_outcomes(taught.drafts)
        # After the transaction, because counting takes a lock of its own.
        self.applied.skill_uses += sum(self.count_skill(use) for use in taught.uses)

    def store_post_mortem_lessons(self, failures: FailedCallCollector, found: PostMortemResult) -> None:
        """Store the lessons of a post-mortem and mark its turns as learned."""
        cells = list(failures.cells.values())
        error = self.redactor.redact(post_mortem.find_last_error_or_warning_signature(cells)).text
        evidence = LessonProvenance(error_signature=error, trace=failures.file.name)
        project = failures.project or self.project
        told = [
            post_mortem.draft_post_mortem_lesson(
                text, evidence=evidence, topic=TOOLS_TOPIC, user=self.user, project=project
            )
            for text in found.lessons
        ]
        with self.learned.claim_new_turns(failures.turns, LearningMethodKind.POST_MORTEM) as new:
            if new:
                self._store_drafts_and_count_outcomes(told)

    def _store_drafts_and_count_outcomes(self, told: Sequence[LessonDraft]) -> None:
        results = [encoded for draft in told if (encoded := self._store_draft_or_count_failure(draft))]
        for encoded in results:
            self.applied.lessons[encoded.status.value] += 1
            if encoded.reason and not encoded.status.is_stored:
                self.applied.reasons[encoded.reason] += 1
        # Memory may accept the lessons later, so the turns must not count as learned yet.
        if any(not encoded.status.is_settled for encoded in results) or (told and not results):
            raise TurnsNotLearnedError

    def _store_draft_or_count_failure(self, draft: LessonDraft) -> LessonDraftResult | None:
        try:
            with self.learned.open_savepoint():
                return self.keeper.encode(draft)
        # One lesson that can't be stored must not stop the others.
        except Exception as error:
            log.warning("A lesson could not be stored: %s", draft.text, exc_info=True)
            self.applied.lessons[NOT_STORED] += 1
            self.applied.reasons[f"'{draft.text}' could not be stored ({clean_to_one_line(str(error))[:200]})"] += 1
            return None
