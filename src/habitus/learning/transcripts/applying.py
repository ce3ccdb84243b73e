"""Applying what transcripts teach: lessons into memory, and skills counted, once for each turn."""

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

LOST = "not stored"  # beside what memory does with a lesson
TOOLS = "tools"  # the topic of what failed calls of other agents teach


@dataclass(slots=True)
class ApplyResult:
    """The result of applying what transcripts taught."""

    lessons: Counter[str] = field(default_factory=Counter)  # what memory did → how often
    reasons: Counter[str] = field(default_factory=Counter)  # why it did not take one
    already: int = 0  # turns that were learned from before
    skill_uses: int = 0

    @property
    def count_written(self) -> int:
        """How many lessons are new, say more than before, or wait for a person."""
        return sum(self.lessons[status] for status in (Status.STORED, Status.REINFORCED, Status.WAITING))


@dataclass(frozen=True, kw_only=True, slots=True)
class TaughtLessons:
    """Lessons of one finding, and the key it is known by. Without drafts it is noted as dealt with."""

    digests: tuple[str, ...]
    how: LearnedBy
    drafts: tuple[Draft, ...]
    uses: tuple[SkillUse, ...] = ()


@dataclass(slots=True)
class Applier:
    keeper: LessonKeeper
    learned: LearnedTurns
    redactor: Redactor
    count_skill: Callable[[SkillUse], bool]  # whether it is a skill that we know
    user: str = ""
    project: str = ""
    applied: ApplyResult = field(default_factory=ApplyResult)

    def apply(self, studied: StudiedTurn) -> None:
        """Encode what the detectors say of a turn, and count the skills that it used."""
        if (taught := self.taught(studied)) is not None:
            self.keep(taught)

    def taught(self, studied: StudiedTurn) -> TaughtLessons | None:
        """The lessons of a turn, without the turn itself."""
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
        return any(self.learned.is_new(digest, taught.how) for digest in taught.digests)

    def keep(self, taught: TaughtLessons) -> None:
        """Encode what was taught, where it was not before."""
        with self.learned.first_time(taught.digests, taught.how) as new:
            if not new:
                self.applied.already += taught.how is LearnedBy.DETECTORS
                return
            self._encode(taught.drafts)
            self.applied.skill_uses += sum(self.count_skill(use) for use in taught.uses)

    def apply_post_mortem(self, failures: FailedCalls, found: PostMortem) -> None:
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
        if any(not encoded.status.is_settled for encoded in results) or (told and not results):
            raise NotSettled

    def _encode_draft(self, draft: Draft) -> Encoded | None:
        try:
            with self.learned.attempt():
                return self.keeper.encode(draft)
        except Exception as error:  # the others are no worse for it
            log.warning("A lesson could not be stored: %s", draft.text, exc_info=True)
            self.applied.lessons[LOST] += 1
            self.applied.reasons[f"'{draft.text}' could not be stored ({one_line(str(error))[:200]})"] += 1
            return None
