"""A memory that only writes down what it is told."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from habitus import sql
from habitus.learning.budget import Spending
from habitus.memory.model import Draft, Encoded, Status

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


class RecordingKeeper:
    def __init__(
        self, *, known: Sequence[str] = (), is_on: bool = True, raises: bool = False, stumbles_at: str = ""
    ) -> None:
        self.learned: list[Draft] = []
        self.broken: list[str] = []
        self.known = set(known)
        self.is_on = is_on
        self.raises = raises
        self.stumbles_at = stumbles_at  # a text that it can't store

    def is_taking(self) -> bool:
        return self.is_on

    def encode(self, draft: Draft) -> Encoded:
        if self.raises or draft.text == self.stumbles_at:
            raise RuntimeError("memory")
        if not self.is_on:
            return Encoded(status=Status.OFF, reason="memory is off")
        is_new = draft.text not in self.known
        self.known.add(draft.text)
        self.learned.append(draft)
        return Encoded(status=Status.STORED if is_new else Status.REINFORCED)

    def has_similar(self, text: str) -> bool:
        return text in self.known

    def count_ignored(self, rules: Sequence[str]) -> None:
        self.broken += rules


def spending(cap: int = 200_000) -> Spending:
    return Spending(sql.create_all_in_memory(), clock=lambda: NOW, cap=cap)
