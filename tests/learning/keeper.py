"""A memory that only writes down what it is told."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from habitus import sql
from habitus.learning.learned import Kept, KeptAs, Learned
from habitus.learning.spending import Spending

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


class RecordingKeeper:
    def __init__(self, *, known: Sequence[str] = (), is_on: bool = True, raises: bool = False) -> None:
        self.learned: list[Learned] = []
        self.broken: list[str] = []
        self.known = set(known)
        self.is_on = is_on
        self._raises = raises

    def is_taking(self) -> bool:
        return self.is_on

    def encode(self, learned: Learned) -> Kept:
        if self._raises:
            raise RuntimeError("memory")
        if not self.is_on:
            return Kept(status=KeptAs.OFF, reason="memory is off")
        is_new = learned.text not in self.known
        self.known.add(learned.text)
        self.learned.append(learned)
        return Kept(status=KeptAs.STORED if is_new else KeptAs.REINFORCED)

    def has_similar(self, text: str) -> bool:
        return text in self.known

    def ignored(self, rules: Sequence[str]) -> None:
        self.broken += rules


def spending(cap: int = 200_000) -> Spending:
    return Spending(sql.create_all_in_memory(), clock=lambda: NOW, cap=cap)
