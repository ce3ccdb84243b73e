"""A memory of its own for each test: a clock that stands still until told, ids that count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from habitus import sql
from habitus.memory import tables
from habitus.memory.cortex import Cortex
from habitus.memory.model import Engram, LessonDraft, LessonKind, LessonProducer, LessonScope
from habitus.memory.page_files import MemoryPageFiles
from habitus.memory.store import EngramStore
from habitus.pause import LearningPauseSwitch
from habitus.redact import Redactor
from habitus.search.index import SearchIndex
from habitus.search.texts.embedding import WordLlamaEmbedder
from tests.homes import migrated


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2030, 1, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now

    def wait(self, **time: float) -> None:
        self.now += timedelta(**time)


@pytest.fixture(scope="session")
def embedder() -> WordLlamaEmbedder:
    return WordLlamaEmbedder()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    assert tables.engrams.metadata is sql.metadata
    made = sql.open_engine_with_current_schema(sql.build_sqlite_url(migrated(tmp_path / "habitus.db")))
    yield made
    made.dispose()


Make = Callable[..., Cortex]


@pytest.fixture
def make(engine: sa.Engine, clock: Clock, embedder: WordLlamaEmbedder, tmp_path: Path) -> Make:
    """A cortex on the test's database; called again, it is another process's."""
    ids = count(1)

    def made(**more: Any) -> Cortex:
        given = {
            "redactor": Redactor(["hunter2-secret"]),
            "clock": clock,
            "pause": LearningPauseSwitch(engine, clock),
            "user": "ann",
            "files": MemoryPageFiles(tmp_path / "memory", engine, clock=clock, is_durable=False),
            "new_id": lambda: f"e{next(ids):07d}",
            **more,
        }
        return Cortex(EngramStore(engine), lambda: SearchIndex.open(engine, "memory", embedder=embedder), **given)

    return made


@pytest.fixture
def cortex(make: Make) -> Cortex:
    return make()


def learn(cortex: Cortex, draft: LessonDraft) -> Engram:
    """What memory makes of a draft that it doesn't refuse."""
    engram = cortex.encode(draft).engram
    assert engram is not None
    return engram


def lesson(text: str, **more: Any) -> LessonDraft:
    """What a model has learned."""
    given = {
        "kind": LessonKind.LESSON,
        "scope": LessonScope.USER,
        "user": "ann",
        "produced_by": LessonProducer.MODEL,
        **more,
    }
    return LessonDraft(text=text, **given)
