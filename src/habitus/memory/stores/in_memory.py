"""Engrams in this process: the shipped double, for tests and throw-away memories."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

from habitus.memory.model import Cause, Engram, EngramVersion, LessonCounters, LessonState
from habitus.memory.stores.base import EngramChanges


class InMemoryEngramStore:
    def __init__(self) -> None:
        self._engrams: dict[str, Engram] = {}
        self._revisions: dict[str, int] = {}
        self._versions: dict[str, tuple[EngramVersion, ...]] = {}
        self._revision = 0
        self._depth = 0
        self._lock = threading.RLock()

    def changes(self, after: int) -> EngramChanges:
        with self._lock:
            changed = tuple(self._engrams[id] for id, revision in self._revisions.items() if revision > after)
            return EngramChanges(revision=self._revision, engrams=changed)

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self._lock:
            before = dict(self._engrams), dict(self._revisions), dict(self._versions), self._revision
            try:
                yield
            except BaseException:
                self._engrams, self._revisions, self._versions, self._revision = before
                raise

    def get(self, ids: Sequence[str]) -> dict[str, Engram]:
        with self._lock:
            return {id: self._engrams[id] for id in ids if id in self._engrams}

    def save(self, engrams: Sequence[Engram], cause: Cause | None = None) -> tuple[Engram, ...]:
        with self.writing():
            self._revision += 1
            saved = []
            for engram in engrams:
                if cause is not None:
                    engram = replace(
                        engram,
                        version=engram.version + 1,
                        created_on=engram.created_on or cause.at,
                        updated_on=cause.at,
                    )
                    version = EngramVersion(number=engram.version, engram=engram, cause=cause)
                    self._versions[engram.id] = (*self._versions.get(engram.id, ()), version)
                self._engrams[engram.id] = engram
                self._revisions[engram.id] = self._revision
                saved.append(engram)
            return tuple(saved)

    def erase(self, ids: Sequence[str], at: datetime) -> None:
        with self.writing():
            self._revision += 1
            for id in ids:
                if id in self._engrams:
                    self._engrams[id] = erased(self._engrams[id], at)
                    self._revisions[id] = self._revision
                    self._versions.pop(id, None)

    def history(self, id: str) -> tuple[EngramVersion, ...]:
        return self._versions.get(id, ())

    def at(self, moment: datetime) -> dict[str, Engram]:
        with self._lock:
            then = {
                id: [version.engram for version in versions if version.cause.at <= moment]
                for id, versions in self._versions.items()
            }
            return {id: versions[-1] for id, versions in then.items() if versions}


def erased(engram: Engram, at: datetime) -> Engram:
    return Engram(
        id=engram.id,
        text="",
        kind=engram.kind,
        scope=engram.scope,
        state=LessonState.ERASED,
        counters=LessonCounters(frequency=0),
        version=engram.version,
        created_on=engram.created_on,
        updated_on=at,
    )
