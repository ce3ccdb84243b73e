"""Store the lessons of transcripts in memory and count their skill uses, once for each turn."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from habitus.learning import observer, post_mortem
from habitus.learning.detectors.rules import collapse
from habitus.learning.observer import LessonKeeper
from habitus.learning.post_mortem import PostMortem
from habitus.learning.transcripts.failed_calls import FailedCalls
from habitus.learning.transcripts.learned_turns import LearnedBy, LearnedTurns, NotSettled
from habitus.learning.transcripts.model import SkillUse
from habitus.learning.transcripts.study import StudiedTurn
from habitus.memory.model import Draft, Encoded, Evidence, Status
from habitus.redact import Redactor
from habitus.text import one_line

log = logging.getLogger(__name__)

# Counted beside the statuses of memory.
LOST = "not stored"
# The topic of lessons from failed calls of other agents.
TOOLS = "tools"


@dataclass(slots=True)
class ApplyResult:
    """The lessons that were stored or rejected, and the skill uses that were counted."""

    # By the status that memory returned.
    lessons: Counter[str] = field(default_factory=Counter)
    # Why lessons were not accepted.
    reasons: Counter[str] = field(default_factory=Counter)
    already: int = 0  # turns that had been learned from before
    skill_uses: int = 0

    @property
    def count_written(self) -> int:
        """The number of lessons that are new, reinforced or pending."""
        return sum(self.lessons[status] for status in (Status.STORED, Status.REINFORCED, Status.WAITING))


@dataclass(frozen=True, kw_only=True, slots=True)
class TaughtLessons:
    """The lessons of one finding with the digests it is known by; without drafts, it is only marked as learned."""

    digests: tuple[str, ...]
    how: LearnedBy
    drafts: tuple[Draft, ...]
    uses: tuple[SkillUse, ...] = ()


@dataclass(slots=True)
class Applier:
    """Stores the lessons of studied turns in memory."""

    keeper: LessonKeeper
    learned: LearnedTurns
    redactor: Redactor
    # Counts the use; False if the skill is unknown here.
    count_skill: Callable[[SkillUse], bool]
    user: str = ""
    project: str = ""
    applied: ApplyResult = field(default_factory=ApplyResult)

    def apply(self, studied: StudiedTurn) -> None:
        """Store the detectors' lessons of a turn, and count its skill uses."""
        if (taught := self.taught(studied)) is not None:
            self.keep(taught)

    def taught(self, studied: StudiedTurn) -> TaughtLessons | None:
        """Return the lessons of a turn; None if it teaches nothing."""
        if not studied.lessons and not studied.skill_uses:
            return None
        told = [
            observer.draft_lesson(
                each,
                Evidence(trace=studied.trace),
                redactor=self.redactor,
                user=self.user,
                project=studied.project or self.project,
            )
            for each in collapse(studied.lessons)
        ]
        return TaughtLessons(
            digests=(studied.digest,), how=LearnedBy.DETECTORS, drafts=tuple(told), uses=studied.skill_uses
        )

    def is_new(self, taught: TaughtLessons) -> bool:
        """Whether the batch has a turn that was not learned from."""
        return any(self.learned.is_new(digest, taught.how) for digest in taught.digests)

    def keep(self, taught: TaughtLessons) -> None:
        """Store the lessons unless they were learned before."""
        with self.learned.first_time(taught.digests, taught.how) as new:
            if not new:
                self.applied.already += taught.how is LearnedBy.DETECTORS
                return
            self._encode(taught.drafts)
            self.applied.skill_uses += sum(self.count_skill(use) for use in taught.uses)

    def apply_post_mortem(self, failures: FailedCalls, found: PostMortem) -> None:
        """Store the lessons of a post-mortem and mark its turns as learned."""
        cells = list(failures.cells.values())
        error = self.redactor.redact(post_mortem.main_signature(cells)).text
        evidence = Evidence(error_signature=error, trace=failures.file.name)
        project = failures.project or self.project
        told = [
            post_mortem.draft_lesson(text, evidence=evidence, topic=TOOLS, user=self.user, project=project)
            for text in found.lessons
        ]
        with self.learned.first_time(failures.turns, LearnedBy.POST_MORTEM) as new:
            if new:
                self._encode(told)

    def _encode(self, told: Sequence[Draft]) -> None:
        results = [encoded for draft in told if (encoded := self._encode_draft(draft))]
        for encoded in results:
            self.applied.lessons[encoded.status.value] += 1
            if encoded.reason and not encoded.status.is_kept:
                self.applied.reasons[encoded.reason] += 1
        # Memory may accept the lessons later, so the turns must not count as learned yet.
        if any(not encoded.status.is_settled for encoded in results) or (told and not results):
            raise NotSettled

    def _encode_draft(self, draft: Draft) -> Encoded | None:
        try:
            with self.learned.attempt():
                return self.keeper.encode(draft)
        # One lesson that can't be stored must not stop the others.
        except Exception as error:
            log.warning("A lesson could not be stored: %s", draft.text, exc_info=True)
            self.applied.lessons[LOST] += 1
            self.applied.reasons[f"'{draft.text}' could not be stored ({one_line(str(error))[:200]})"] += 1
            return None
