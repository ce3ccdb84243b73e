"""What is kept and what makes room, with the figures that the source gives."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.errors import Invalid
from habitus.memory import model
from habitus.memory.model import (
    Engram,
    LessonCounters,
    LessonKind,
    LessonScope,
    TrustLevel,
    compute_lesson_utility,
    select_dropped_by_compaction,
    select_lessons_over_cap,
    select_prunable_lessons,
)
from habitus.settings import RetentionSettings

KEEP = RetentionSettings()
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def engram(
    number: int = 0,
    *,
    retrievals: int = 0,
    helpful: int = 0,
    confidence: float = 0.5,
    verified: bool = False,
    frequency: int = 1,
    trust: TrustLevel = TrustLevel.AUTOMATIC,
) -> Engram:
    return Engram(
        id=f"e{number:07d}",
        text=f"Lesson {number}.",
        kind=LessonKind.LESSON,
        scope=LessonScope.USER,
        confidence=confidence,
        verified=verified,
        trust=trust,
        counters=LessonCounters(frequency=frequency, retrievals=retrievals, helpful=helpful),
        created_on=NOON + timedelta(minutes=number),
    )


@pytest.mark.req("LP-06")
@pytest.mark.parametrize(
    ("given", "value"),
    [
        (engram(), 0.7193),
        (engram(verified=True), 1.0193),
        (engram(retrievals=5, helpful=0), 0.2168),
        (engram(retrievals=5, helpful=2), 0.6622),
    ],
    ids=["fresh", "verified", "never helped", "helped"],
)
def test_utility_is_what_the_source_says(given: Engram, value: float) -> None:
    assert round(compute_lesson_utility(given), 4) == value


@pytest.mark.req("LP-06")
@given(st.integers(0, 50), st.integers(0, 50), st.floats(0, 1), st.integers(0, 10**6))
def test_utility_is_never_less_for_having_helped(
    retrievals: int, helpful: int, confidence: float, frequency: int
) -> None:
    counted = {"retrievals": retrievals, "confidence": confidence, "frequency": frequency}
    helpful = min(helpful, retrievals)
    value = compute_lesson_utility(engram(helpful=helpful, **counted))  # type: ignore[arg-type]  # numbers, as they are meant
    assert 0 < value <= 1.7
    if helpful < retrievals:
        assert compute_lesson_utility(engram(helpful=helpful + 1, **counted)) > value  # type: ignore[arg-type]  # as above
    assert compute_lesson_utility(engram(helpful=helpful, verified=True, **counted)) > value  # type: ignore[arg-type]  # as above


@pytest.mark.req("LP-07")
def test_of_too_many_lessons_the_newest_the_verified_and_the_useful_stay() -> None:
    useless = [engram(n, retrievals=9, helpful=0) for n in range(10)]
    useful = [engram(n, retrievals=9, helpful=8) for n in range(10, 55)]
    verified = engram(60, retrievals=9, helpful=0, verified=True)
    by_person = engram(61, retrievals=9, helpful=0, trust=TrustLevel.USER)
    newest = engram(70, confidence=0.0, retrievals=20)
    gone = select_lessons_over_cap([newest, verified, by_person, *useless, *useful], 50)
    assert {e.id for e in gone} == {e.id for e in useless[2:]}
    assert select_lessons_over_cap(useful, 50) == []


@pytest.mark.req("LP-07")
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()), max_size=80))
def test_the_cap_holds_whatever_comes(counted: list[tuple[int, int, bool]]) -> None:
    many = [engram(n, retrievals=r, helpful=min(h, r), verified=v) for n, (r, h, v) in enumerate(counted)]
    gone = {e.id for e in select_lessons_over_cap(many, 50)}
    assert len(many) - len(gone) == min(len(many), 50)
    if sum(e.verified for e in many) < 50:
        assert not any(e.verified for e in many if e.id in gone)
    if many:
        assert many[-1].id not in gone


@pytest.mark.req("LP-07")
def test_pruning_takes_at_most_a_quarter_and_only_what_never_helped() -> None:
    useless = [engram(n, retrievals=5 + n, helpful=0) for n in range(6)]
    others = [
        engram(10, retrievals=4, helpful=0),
        engram(11, retrievals=30, helpful=1),
        engram(12, retrievals=9, verified=True),
        engram(13, retrievals=9, trust=TrustLevel.USER),
        *(engram(n) for n in range(14, 20)),
    ]
    pruned = select_prunable_lessons([*useless, *others], KEEP.lesson_days, NOON)
    assert [e.id for e in pruned] == [e.id for e in reversed(useless)][:4]
    assert pruned[0].reason == "shown again and again, and it never helped"


@pytest.mark.req("LP-07")
def test_a_lesson_that_was_not_shown_for_long_expires_unless_it_is_pinned() -> None:
    later = NOON + timedelta(days=KEEP.lesson_days)
    shown = replace(engram(1), counters=LessonCounters(last_retrieved=NOON + timedelta(days=1)))
    fresh = [replace(engram(n), created_on=later) for n in range(5, 10)]
    pruned = select_prunable_lessons([engram(0), shown, engram(2, verified=True), *fresh], KEEP.lesson_days, later)
    assert [(e.id, e.reason) for e in pruned] == [("e0000000", f"not shown since {NOON:%Y-%m-%d}")]


@pytest.mark.req("ME-07")
def test_a_compaction_keeps_by_place_and_never_lets_go_of_what_is_pinned() -> None:
    entries = [engram(0), engram(1, trust=TrustLevel.USER), engram(2), engram(3, verified=True), engram(4)]
    assert [e.id for e in select_dropped_by_compaction(entries, [0])] == ["e0000002", "e0000004"]
    for nonsense in ([], [7], [-1, 2]):
        with pytest.raises(Invalid, match="All entries were kept"):
            select_dropped_by_compaction(entries, nonsense)


def test_without_a_model_the_most_useful_stay() -> None:
    entries = [engram(n, retrievals=9, helpful=n % 9) for n in range(30)]
    kept = model.select_indexes_kept_by_compaction(entries, 20)
    assert len(kept) == 20
    assert min(compute_lesson_utility(entries[n]) for n in kept) >= max(
        compute_lesson_utility(e) for n, e in enumerate(entries) if n not in kept
    )
