"""What every store of engrams does, in memory, on SQLite and on PostgreSQL alike."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from habitus.memory.model import (
    ChangeAuthorAndReason,
    Engram,
    LessonCounters,
    LessonKind,
    LessonProducer,
    LessonProvenance,
    LessonScope,
    LessonState,
    SelfPlayLessonBody,
    TrustLevel,
)
from habitus.memory.store import EngramStore
from tests.contracts import postgres
from tests.contracts.engram_stores import ENGRAM_STORES

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
FULL = Engram(
    id="k0000001",
    text="Größe «ß» — 日本 --> <!-- & 'quoted'",
    kind=LessonKind.WHEN,
    scope=LessonScope.PROJECT,
    owner="/work",
    confidence=0.9,
    topic="csv",
    source="consolidation",
    trust=TrustLevel.VERIFIED,
    produced_by=LessonProducer.DREAM,
    evidence=LessonProvenance(error_signature="E", trace="t", version="2", detector="d", imported=("x", "y")),
    body=SelfPlayLessonBody(
        trigger="a", anti_pattern="b", correct_pattern="c", domains=("d", "e"), source_challenge_hash="f"
    ),
    counters=LessonCounters(
        frequency=3, retrievals=5, helpful=2, last_retrieved=NOON, credited_on=NOON, ignored=1, missed=4
    ),
    verified=True,
    state=LessonState.PENDING,
    reason="because",
)
PLAIN = Engram(id="k0000002", text="Plain.", kind=LessonKind.LESSON, scope=LessonScope.GLOBAL)

pytestmark = pytest.mark.req("ME-01", "OP-01")


@pytest.fixture(params=list(ENGRAM_STORES))
def engrams(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EngramStore]:
    with ExitStack() as stack:
        url = ""
        if request.param == "postgresql":
            url = stack.enter_context(postgres.schema(request.getfixturevalue("postgres_server")))
        store = ENGRAM_STORES[request.param](tmp_path, url)
        stack.callback(store._engine.dispose)
        yield store


def because(minutes: int = 0, reason: str = "new") -> ChangeAuthorAndReason:
    return ChangeAuthorAndReason(at=NOON + timedelta(minutes=minutes), by="ann", reason=reason)


def test_what_is_saved_is_read_whole(engrams: EngramStore) -> None:
    (saved,) = engrams.save_new_versions_or_counters([FULL], because())
    assert saved == replace(FULL, version=1, created_on=NOON, updated_on=NOON)
    assert engrams.load_engrams_by_ids(["k0000001", "nothere"]) == {"k0000001": saved}


def test_changes_are_told_by_revision(engrams: EngramStore) -> None:
    assert engrams.load_changed_engrams(0).engrams == ()
    engrams.save_new_versions_or_counters([FULL, PLAIN], because())
    first = engrams.load_changed_engrams(0)
    assert {engram.id for engram in first.engrams} == {"k0000001", "k0000002"}
    assert engrams.load_changed_engrams(first.revision).engrams == ()
    (saved,) = engrams.save_new_versions_or_counters([replace(first.engrams[0], text="Changed.")], because(1))
    second = engrams.load_changed_engrams(first.revision)
    assert second.engrams == (saved,)
    assert second.revision > first.revision


def test_counting_makes_no_version(engrams: EngramStore) -> None:
    (saved,) = engrams.save_new_versions_or_counters([PLAIN], because())
    (counted,) = engrams.save_new_versions_or_counters([saved.with_counts(retrievals=7)])
    assert engrams.load_engrams_by_ids([saved.id])[saved.id] == counted
    assert counted.version == 1
    assert len(engrams.load_history(saved.id)) == 1


def test_every_change_is_a_version_with_its_cause(engrams: EngramStore) -> None:
    (saved,) = engrams.save_new_versions_or_counters([PLAIN], because())
    engrams.save_new_versions_or_counters(
        [replace(saved, text="Other.", state=LessonState.ARCHIVED)], because(1, "removed")
    )
    told = [(v.number, v.engram.text, v.engram.state, v.cause) for v in engrams.load_history(PLAIN.id)]
    assert told == [
        (1, "Plain.", LessonState.ACTIVE, because()),
        (2, "Other.", LessonState.ARCHIVED, because(1, "removed")),
    ]


@pytest.mark.req("SK-22")
def test_any_timestamp_can_be_seen_again(engrams: EngramStore) -> None:
    (saved,) = engrams.save_new_versions_or_counters([PLAIN], because())
    engrams.save_new_versions_or_counters([replace(saved, text="Later.")], because(10))
    engrams.save_new_versions_or_counters([FULL], because(20))
    assert engrams.load_all_engrams_as_of(NOON - timedelta(seconds=1)) == {}
    assert {id: e.text for id, e in engrams.load_all_engrams_as_of(NOON + timedelta(minutes=5)).items()} == {
        "k0000002": "Plain."
    }
    assert {id: e.text for id, e in engrams.load_all_engrams_as_of(NOON + timedelta(minutes=30)).items()} == {
        "k0000001": FULL.text,
        "k0000002": "Later.",
    }


def test_a_transaction_is_kept_whole_or_not_at_all(engrams: EngramStore) -> None:
    def fails() -> None:
        with engrams.write_transaction():
            engrams.save_new_versions_or_counters([PLAIN], because())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert engrams.load_engrams_by_ids([PLAIN.id]) == {}
    assert engrams.load_changed_engrams(0).engrams == ()


def test_of_what_is_erased_only_the_id_is_left(engrams: EngramStore) -> None:
    engrams.save_new_versions_or_counters([FULL], because())
    engrams.erase([FULL.id, "nothere"], NOON)
    (left,) = engrams.load_changed_engrams(0).engrams
    assert (left.id, left.text, left.owner, left.state) == (FULL.id, "", "", LessonState.ERASED)
    assert left.body is None
    assert left.evidence == LessonProvenance()
    assert engrams.load_history(FULL.id) == ()


def test_many_are_saved_at_once(engrams: EngramStore) -> None:
    engrams.save_new_versions_or_counters([replace(PLAIN, id=f"k{n:07d}") for n in range(1200)], because())
    assert len(engrams.load_changed_engrams(0).engrams) == 1200
    assert len(engrams.load_engrams_by_ids([f"k{n:07d}" for n in range(1200)])) == 1200
