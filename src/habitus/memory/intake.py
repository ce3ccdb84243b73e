"""How a draft becomes an engram: cleaned, held against what is known, kept, or left for a person to decide."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from habitus.memory import gate
from habitus.memory.ledger import EngramLedger
from habitus.memory.model import (
    Draft,
    Encoded,
    Engram,
    LessonBody,
    LessonState,
    Producer,
    Scope,
    Status,
    TrustLevel,
    kind_of,
    scope_of,
)
from habitus.redact import Redactor
from habitus.screening.findings import Policy
from habitus.settings import MemoryMode
from habitus.text import one_line

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, kw_only=True, slots=True)
class Intake:
    ledger: EngramLedger
    redactor: Redactor
    mode: MemoryMode
    is_shared: bool
    user: str
    new_id: Callable[[], str]
    screening: Policy
    tell: Callable[[Engram], None] = lambda engram: None  # hears what begins to wait for a person

    def clean_draft(self, draft: Draft) -> tuple[Draft, Mapping[str, int]]:
        """The draft without secrets, line breaks and unseen characters, and how many secrets there were."""
        taken = self.redactor.redact(draft.text)
        body, evidence = draft.body, draft.evidence
        return replace(
            draft,
            text=one_line(taken.text),
            topic=topic_of(self.clean(draft.topic)),
            source=self.clean(draft.source),
            confidence=0.0 if math.isnan(draft.confidence) else min(max(draft.confidence, 0.0), 1.0),
            trust=gate.earned_trust(draft),
            body=body
            and LessonBody(
                trigger=self.clean(body.trigger),
                anti_pattern=self.clean(body.anti_pattern),
                correct_pattern=self.clean(body.correct_pattern),
                domains=tuple(map(self.clean, body.domains)),
                source_challenge_hash=self.clean(body.source_challenge_hash),
            ),
            evidence=replace(
                evidence,
                error_signature=self.clean(evidence.error_signature),
                trace=self.clean(evidence.trace),
                session=self.clean(evidence.session),
            ),
            user=one_line(draft.user) or self.user,
            project=one_line(draft.project),
        ), taken.counts

    def clean(self, text: str) -> str:
        return one_line(self.redactor.redact(text).text)

    def keep(self, draft: Draft) -> Encoded:
        self.ledger.mirror.sync()
        index = self.ledger.mirror.index()
        wanted = self._engram(draft)
        with self.ledger.writing():
            twin = self.ledger.mirror.twin(wanted, index)
            if twin is None:
                (saved,) = self.ledger.save([wanted], draft.produced_by.value, wanted.reason or "new")
                if saved.state is LessonState.WAITING:
                    self.tell(saved)
                return self._outcome(saved, Status.STORED, "new")
            is_closed = twin.state in (LessonState.REJECTED, LessonState.REMOVED)
            if is_closed and draft.trust is not TrustLevel.USER:
                reason = (
                    f"turned down: {twin.reason}" if twin.state is LessonState.REJECTED else f"it was {twin.reason}"
                )
                return Encoded(status=Status.REFUSED, engram=twin, reason=reason)
            (saved,) = self.ledger.save([gate.merge_engrams(twin, wanted)], draft.produced_by.value, "said again")
            return self._outcome(saved, Status.REINFORCED, f"says the same as {saved.id}")

    def _outcome(self, saved: Engram, status: Status, reason: str) -> Encoded:
        if saved.state is LessonState.WAITING:
            return Encoded(status=Status.WAITING, engram=saved, reason=saved.reason)
        return Encoded(status=status, engram=saved, reason=reason, archived=self.ledger.make_room(saved))

    def _engram(self, draft: Draft) -> Engram:
        kind, scope = kind_of(draft.kind), scope_of(draft.scope)
        is_taught = draft.produced_by in (Producer.MODEL, Producer.CEREBELLUM, Producer.TRANSCRIPTS)
        is_of_conversation = is_taught or draft.produced_by is Producer.DETECTOR
        if self.is_shared and is_taught and draft.trust is TrustLevel.AUTOMATIC:
            scope = Scope.USER  # what one person's conversation teaches is theirs until a person widens it
        wait = gate.reason_to_wait(draft, kind, self.mode, is_shared=self.is_shared, screening=self.screening)
        return Engram(
            id=self.new_id(),
            text=draft.text,
            kind=kind,
            scope=scope,
            owner={Scope.USER: draft.user, Scope.PROJECT: draft.project}.get(scope, ""),
            confidence=draft.confidence,
            topic=draft.topic,
            source=draft.source or draft.produced_by.value,
            trust=draft.trust,
            produced_by=draft.produced_by,
            evidence=replace(draft.evidence, user=draft.user if is_of_conversation else ""),
            body=draft.body,
            counters=draft.counters,
            verified=draft.verified,
            state=LessonState.WAITING if wait else LessonState.ACTIVE,
            reason=wait,
            created_on=draft.created_on,
        )


def topic_of(text: str) -> str:
    return re.sub(r"[^\w-]+", "-", text.lower()).strip("-_")[:40]
