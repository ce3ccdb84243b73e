"""What learning counts, on every database that it may be counted in."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from habitus.learning.budget import BudgetReachedError, DailyTokenUsageStore
from habitus.learning.transcripts.learned_turns import LearnedTurnStore, LearningMethodKind

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.req("AG-02")
def test_tokens_are_reserved_settled_and_capped(engine: sa.Engine) -> None:
    purse = DailyTokenUsageStore(engine, clock=lambda: NOW, cap=100)
    purse.settle(purse.reserve(80), 30)
    purse.reserve(70)
    with pytest.raises(BudgetReachedError):
        purse.reserve(1)
    assert (purse.get_usage_today().tokens, purse.get_usage_today().calls) == (100, 2)
    assert [purse.claim_cap_notice(), purse.claim_cap_notice()] == [True, False]


@pytest.mark.req("EL-08")
def test_a_turn_is_learned_from_once_in_each_way(engine: sa.Engine) -> None:
    ledger = LearnedTurnStore(engine, clock=lambda: NOW)
    with ledger.claim_new_turns(["a", "b", "a"], LearningMethodKind.DETECTORS) as new:
        assert new == ["a", "b"]
    with ledger.claim_new_turns(["b", "c"], LearningMethodKind.DETECTORS) as new:
        assert new == ["c"]
    assert (
        ledger.is_new_turn("a", LearningMethodKind.DETECTORS),
        ledger.is_new_turn("a", LearningMethodKind.POST_MORTEM),
    ) == (
        False,
        True,
    )
