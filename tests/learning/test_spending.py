"""The daily cap on what learning spends: persistent, shared by processes, and said once."""

from __future__ import annotations

import json
import logging
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from habitus import sql
from habitus.learning.budget import BudgetReachedError, DailyTokenUsage, DailyTokenUsageStore
from habitus.learning.post_mortem import Cerebellum
from habitus.llm.model import AssistantMessage, CompletionResult, ProviderError, StopReason, TokenUsage
from habitus.llm.scripted import ScriptedModel, hanging_reply, says
from habitus.redact import PATTERNS_ONLY
from habitus.sandbox.model import Cell
from tests.learning.keeper import NOW, RecordingKeeper, spending

FAILED = Cell(code="1/0", description="divide", error="ZeroDivisionError: division by zero")


@pytest.mark.req("AG-02")
async def test_what_a_call_took_is_what_is_shown() -> None:
    purse = spending()
    said = CompletionResult(
        message=AssistantMessage(text='{"lessons": []}'),
        stop=StopReason.END,
        usage=TokenUsage(input_tokens=700, output_tokens=34),
    )
    await _flush(ScriptedModel([said]), purse)
    assert purse.get_usage_today() == DailyTokenUsage(day="2030-01-01", tokens=734, calls=1, cap=200_000)
    assert purse.get_usage_today().summary == "734 of 200,000 tokens spent today in 1 call"


async def _flush(model: ScriptedModel, purse: DailyTokenUsageStore, patience_s: float = 60.0) -> Cerebellum:
    made = Cerebellum(model, RecordingKeeper().encode, spending=purse, redactor=PATTERNS_ONLY, patience_s=patience_s)
    made.on_post_execute(FAILED)
    await made.flush()
    return made


@pytest.mark.req("AG-02")
async def test_over_the_cap_no_call_is_made_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    purse = spending(cap=100)
    with caplog.at_level(logging.WARNING):
        first = await _flush(ScriptedModel([]), purse)
        await _flush(ScriptedModel([]), purse)
    assert first.buffered_count == 1
    assert purse.get_usage_today().tokens == 0
    said = [record.message for record in caplog.records]
    assert len(said) == 1
    assert said[0].startswith("Learning may spend 100 tokens a day, and 0 are spent; this call could take ")


@pytest.mark.req("AG-02")
async def test_every_request_counts_whatever_came_back() -> None:
    purse, model = spending(), ScriptedModel([says("no JSON"), ProviderError("down"), hanging_reply(after="Well, ")])
    await _flush(model, purse)  # an answer of no use, and then none
    once = purse.get_usage_today()
    assert (once.calls, once.tokens > 2 * 300) == (2, True)
    await _flush(model, purse, 0.5)  # nobody waited for its end
    assert (purse.get_usage_today().calls, purse.get_usage_today().tokens > once.tokens + 300) == (3, True)


@pytest.mark.req("AG-02")
def test_a_new_day_has_its_own_tokens() -> None:
    day = [NOW]
    purse = DailyTokenUsageStore(sql.create_in_memory_engine(), clock=lambda: day[0], cap=100)
    purse.settle(purse.reserve(100), 100)
    with pytest.raises(BudgetReachedError):
        purse.reserve(1)
    day[0] = datetime(2030, 1, 2, tzinfo=UTC)
    assert purse.get_usage_today().tokens == 0
    purse.reserve(100)


_SPEND = """
import sys
from datetime import UTC, datetime
from habitus import sql
from habitus.learning.budget import BudgetReachedError, DailyTokenUsageStore
engine = sql.open_engine_with_current_schema(sys.argv[1])
purse = DailyTokenUsageStore(engine, clock=lambda: datetime(2030, 1, 1, tzinfo=UTC), cap=100)
taken = 0
for _ in range(40):
    try:
        purse.settle(purse.reserve(7), 5)
        taken += 5
    except BudgetReachedError:
        pass
print(taken)
"""


@pytest.mark.full
@pytest.mark.req("AG-02")
def test_processes_together_never_spend_more_than_the_cap(tmp_path: Path, python: str) -> None:
    url = sql.build_sqlite_url(tmp_path / "spending.db")
    engine = sql.open_engine_with_current_schema(url)
    running = [subprocess.Popen([python, "-c", _SPEND, url], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    taken = [json.loads(process.communicate()[0]) for process in running]
    purse = DailyTokenUsageStore(engine, clock=lambda: NOW, cap=100)
    assert purse.get_usage_today().tokens == sum(taken)
    assert 90 <= sum(taken) <= 100
    engine.dispose()
