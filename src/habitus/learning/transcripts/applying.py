"""Teaching memory what transcripts show, each turn once."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from habitus.learning import cerebellum, observer
from habitus.learning.observer import LessonKeeper
from habitus.learning.post_mortem import PostMortem
from habitus.learning.transcripts.ledger import How, NotSettled, TurnLedger
from habitus.learning.transcripts.model import SkillUse
from habitus.learning.transcripts.study import Failures, Studied
from habitus.memory.model import Draft, Encoded, Evidence
from habitus.redact import Redactor
from habitus.text import one_line

log = logging.getLogger(__name__)

LOST = "not stored"  # beside what memory does with a lesson
TOOLS = "tools"  # the topic of what failed calls of other agents teach


@dataclass(slots=True)
class Applied:
    """What became of what the transcripts taught."""

    lessons: Counter[str] = field(default_factory=Counter)  # what memory did → how often
    reasons: Counter[str] = field(default_factory=Counter)  # why it did not take one
    already: int = 0  # turns that were learned from before
    skill_uses: int = 0


class Applier:
    def __init__(
        self,
        keeper: LessonKeeper,
        ledger: TurnLedger,
        *,
        redactor: Redactor,
        count_skill: Callable[[SkillUse], bool],
        user: str = "",
        project: str = "",
    ) -> None:
        self._keeper = keeper
        self._ledger = ledger
        self._redactor = redactor
        self._count_skill = count_skill  # whether it is a skill that we know
        self._user = user
        self._project = project
        self.applied = Applied()

    def apply(self, studied: Studied) -> None:
        """Encode what the detectors say of a turn, and count the skills that it used."""
        if not studied.lessons and not studied.skill_uses:
            return
        told = [
            observer.drafted(
                each,
                redactor=self._redactor,
                trace=studied.trace,
                user=self._user,
                project=studied.project or self._project,
            )
            for each in studied.lessons
        ]
        with self._ledger.first_time([studied.digest], How.DETECTORS) as new:
            if not new:
                self.applied.already += 1
                return
            self._encode(told)
            self.applied.skill_uses += sum(self._count_skill(use) for use in studied.skill_uses)

    def apply_post_mortem(self, failures: Failures, found: PostMortem) -> None:
        cells = list(failures.cells.values())
        error = self._redactor.redact(cerebellum.main_signature(cells)).text
        evidence = Evidence(error_signature=error, trace=failures.file.name)
        project = failures.project or self._project
        told = [
            cerebellum.drafted(text, evidence=evidence, topic=TOOLS, user=self._user, project=project)
            for text in found.lessons
        ]
        with self._ledger.first_time(failures.turns, How.POST_MORTEM) as new:
            if new:
                self._encode(told)

    def _encode(self, told: Sequence[Draft]) -> None:
        results = [encoded for draft in told if (encoded := self._encoded(draft))]
        for encoded in results:
            self.applied.lessons[encoded.status.value] += 1
            if encoded.reason and not encoded.status.is_kept:
                self.applied.reasons[encoded.reason] += 1
        if any(not encoded.status.is_settled for encoded in results) or (told and not results):
            raise NotSettled

    def _encoded(self, draft: Draft) -> Encoded | None:
        try:
            with self._ledger.attempt():
                return self._keeper.encode(draft)
        except Exception as error:  # the others are no worse for it
            log.warning("A lesson could not be stored: %s", draft.text, exc_info=True)
            self.applied.lessons[LOST] += 1
            self.applied.reasons[f"'{draft.text}' could not be stored ({one_line(str(error))[:200]})"] += 1
            return None
