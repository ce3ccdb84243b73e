"""Switched off, a busy day leaves no draw, no job and no cost; switched on, it leaves all three."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from mcp.client import Client

from habitus.app import Habitus, read_settings
from habitus.app.operating.jobs import Scheduler, open_job_queue
from habitus.mcp.server import LazyHome, make_mcp_server
from habitus.mcp.server_options import McpServerOptions
from habitus.operating_system import get_account_name
from habitus.settings import ScheduleSettings
from tests.cli.conftest import Direct
from tests.cli.test_climb import opened
from tests.cli.test_improve import _furnished, _script

NAME = "name-a-town"
KINDS = sorted(set(ScheduleSettings.model_fields) - {"timezone"})
# What is drawn, queued and paid, as the database has it.
LEFT = {
    "draws": "SELECT count(*) FROM exposures WHERE propensity < 1",
    "seeds": "SELECT count(*) FROM evidence_seed",
    "comparisons": "SELECT count(*) FROM live_comparisons",
    "jobs": "SELECT count(*) FROM jobs",
    "tokens": "SELECT (SELECT coalesce(sum(tokens), 0) FROM learning_spending)"
    " + (SELECT coalesce(sum(tokens), 0) FROM improve_rollouts)",
}


def _count(direct: Direct) -> dict[str, int]:
    with closing(sqlite3.connect(direct.home / "habitus.db")) as database:
        return {what: database.execute(query).fetchone()[0] for what, query in LEFT.items()}


async def _work_over_mcp(home: Path) -> None:
    behind = LazyHome(McpServerOptions(home=home))
    try:
        async with Client(make_mcp_server(behind)) as client:
            await client.call_tool("recall_skill", {"name": NAME})
            await client.call_tool("report_outcome", {"ok": False, "reason": "it is in small letters"})
    finally:
        await behind.close()


def _spend_a_day(direct: Direct, model: Mapping[str, str]) -> None:
    """Work by the turn API, MCP and the chat, with mistakes; then a night in which a worker has its schedules."""
    with opened(direct, model) as habitus:
        for number in range(30):
            with habitus.turn("Name a town.", conversation=f"c{number}") as turn:
                turn.run("recall_skill", {"name": NAME})
                turn.done("Altberg", ok=number % 3 == 0)
    asyncio.run(_work_over_mcp(direct.home))
    assert "Altberg" in direct.ok("chat", "Name a town.", env=model)
    settings = read_settings(direct.home, {**direct.cli.environ(model), "USER": get_account_name()})
    with Habitus.open(settings) as habitus:
        clock, scheduler = habitus.clock, Scheduler(habitus, open_job_queue(habitus))
        habitus.clock = lambda: clock() + timedelta(days=1)
        scheduler.add_due_jobs()
    direct("jobs", "work", "--until-idle", env=model)


@pytest.mark.full
@pytest.mark.req("IM-07", "IM-08", "LA-05")
@pytest.mark.parametrize("is_on", [False, True])
def test_switched_off_a_busy_day_leaves_no_draw_no_job_and_no_cost(direct: Direct, tmp_path: Path, is_on: bool) -> None:
    _furnished(direct, 24)
    # A person asks for one improvement, and pays for it.
    first = {"HABITUS_MODEL": _script(tmp_path / "first.json", 24, 1)}
    direct("skills", "improve", NAME, "--rounds", "1", "--yes", env=first)
    switches = {"evidence.compare_versions": "0.2", "schedule.improve": "daily at 3"} if is_on else {
        "evidence.compare_versions": "0",
        "evidence.withhold": "0",
        "memory": "off",
        "acc_mode": "off",
        **dict.fromkeys((f"schedule.{kind}" for kind in KINDS), "off"),
    }  # fmt: skip
    for key, new in switches.items():
        direct.ok("config", "set", key, new)
    before, report = _count(direct), direct.json("report")
    assert before["tokens"] > 0
    assert before["draws"] == before["seeds"] == before["comparisons"] == 0
    approved = direct("review", "approve", "1").out
    assert ("20% of conversations get the version before it" in approved) is is_on
    (tmp_path / "model.json").write_text(json.dumps([{"say": "Altberg"}] * 500))
    _spend_a_day(direct, {"HABITUS_MODEL": f"script:{tmp_path / 'model.json'}"})
    after, spent = _count(direct), direct.json("report")
    assert spent["requests"]["requests"] == 32
    if not is_on:
        assert after == before
        assert {**spent["cost"], "decisions": 0} == {**report["cost"], "decisions": 0}
        assert (spent["cost"]["decisions"], report["cost"]["decisions"]) == (1, 0)
    else:
        assert all(after[what] > before[what] for what in LEFT)
        assert spent["cost"]["tokens"] + spent["cost"]["budget_tokens"] > report["cost"]["tokens"]
