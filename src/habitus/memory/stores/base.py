"""What a store of engrams can do. It decides nothing: it keeps what it is given, with the history of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from habitus.memory.model import Cause, Engram, EngramVersion


@dataclass(frozen=True, kw_only=True, slots=True)
class EngramChanges:
    """The engrams as they are now that changed after a revision."""

    revision: int
    engrams: tuple[Engram, ...] = ()


class EngramStore(Protocol):
    def changes(self, after: int) -> EngramChanges:
        """What has changed since; everything for 0."""
        ...

    def writing(self) -> AbstractContextManager[None]:
        """Nobody else changes memory inside the block, and all of it is kept or nothing."""
        ...

    def get(self, ids: Sequence[str]) -> dict[str, Engram]: ...

    def save(self, engrams: Sequence[Engram], cause: Cause | None = None) -> tuple[Engram, ...]:
        """Keep engrams, new or changed. With a cause each becomes a new version; without, only counters changed."""
        ...

    def erase(self, ids: Sequence[str], at: datetime) -> None:
        """Leave nothing of them but the ids."""
        ...

    def history(self, id: str) -> tuple[EngramVersion, ...]: ...

    def at(self, moment: datetime) -> dict[str, Engram]:
        """Every engram that was there at a moment, as it was then."""
        ...
