"""A memory that only writes down what it is told."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from habitus import sql
from habitus.learning.budget import DailyTokenUsageStore
from habitus.memory.model import LessonDraft, LessonDraftOutcome, LessonDraftResult

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


class RecordingKeeper:
    def __init__(
        self, *, known: Sequence[str] = (), is_on: bool = True, raises: bool = False, stumbles_at: str = ""
    ) -> None:
        self.learned: list[LessonDraft] = []
        self.broken: list[str] = []
        self.known = set(known)
        self.is_on = is_on
        self.raises = raises
        self.stumbles_at = stumbles_at  # a text that it can't store

    def is_learning_enabled(self) -> bool:
        return self.is_on

    def encode(self, draft: LessonDraft) -> LessonDraftResult:
        if self.raises or draft.text == self.stumbles_at:
            raise RuntimeError("memory")
        if not self.is_on:
            return LessonDraftResult(status=LessonDraftOutcome.OFF, reason="memory is off")
        is_new = draft.text not in self.known
        self.known.add(draft.text)
        self.learned.append(draft)
        return LessonDraftResult(status=LessonDraftOutcome.STORED if is_new else LessonDraftOutcome.REINFORCED)

    def has_similar_lesson(self, text: str) -> bool:
        return text in self.known

    def record_ignored_rules(self, rules: Sequence[str]) -> None:
        self.broken += rules


def spending(cap: int = 200_000) -> DailyTokenUsageStore:
    return DailyTokenUsageStore(sql.create_in_memory_engine(), clock=lambda: NOW, cap=cap)
