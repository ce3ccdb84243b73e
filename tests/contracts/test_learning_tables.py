"""What learning counts, on every database that it may be counted in."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from habitus.learning.budget import CapReached, Spending
from habitus.learning.transcripts.learned_turns import LearnedBy, LearnedTurns

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.req("AG-02")
def test_tokens_are_reserved_settled_and_capped(engine: sa.Engine) -> None:
    purse = Spending(engine, clock=lambda: NOW, cap=100)
    purse.settle(purse.reserve(80), 30)
    purse.reserve(70)
    with pytest.raises(CapReached):
        purse.reserve(1)
    assert (purse.today().tokens, purse.today().calls) == (100, 2)
    assert [purse.is_first_to_tell(), purse.is_first_to_tell()] == [True, False]


@pytest.mark.req("EL-08")
def test_a_turn_is_learned_from_once_in_each_way(engine: sa.Engine) -> None:
    ledger = LearnedTurns(engine, clock=lambda: NOW)
    with ledger.first_time(["a", "b", "a"], LearnedBy.DETECTORS) as new:
        assert new == ["a", "b"]
    with ledger.first_time(["b", "c"], LearnedBy.DETECTORS) as new:
        assert new == ["c"]
    assert (ledger.is_new("a", LearnedBy.DETECTORS), ledger.is_new("a", LearnedBy.POST_MORTEM)) == (False, True)
