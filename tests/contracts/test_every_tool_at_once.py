"""Every MCP tool, by three people at once: each gets the answer it gets alone."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client

from habitus.app import Habitus, read_settings
from habitus.app.operating.people import UserRole, open_user_accounts
from habitus.skills.model import Skill
from tests.contracts.test_everybody_at_once import PEOPLE, STEPS, database
from tests.homes import furnish
from tests.mcp.conftest import text_of
from tests.mcp.test_http import served

Given = Callable[[str], dict[str, Any]]
TWICE = 2  # each person calls each tool that only looks as often, so that many calls of one person meet too

DEFAULT_LOOKING: dict[str, Given] = {
    "recall_skill": lambda who: {"name": f"{who}-soup-0"},
    "search_skills": lambda who: {"query": f"How {who}-soup-0 is made", "limit": 3},
    "list_lessons": lambda who: {},
    "why": lambda who: {"name": f"{who}-soup-0", "task": "Make soup"},
}
DEFAULT_CHANGING: dict[str, Given] = {
    "create_skill": lambda who: {"name": f"{who}-stew", "title": "Stew", "description": f"Of {who}", "content": STEPS},
    "update_skill": lambda who: {"name": f"{who}-soup-0", "operation": "append", "content": f"2. {who} stirs."},
    "memorize": lambda who: {"text": f"The soup of {who} is eaten by the pot of {who}.", "kind": "lesson"},
}
OTHER_LOOKING: dict[str, Given] = {
    "list_skills": lambda who: {"tag": who},
    "read_skill": lambda who: {"name": f"{who}-soup-0"},
    "manage_skills": lambda who: {"action": "list"},
}
OTHER_CHANGING: dict[str, Given] = {
    "delete_skill": lambda who: {"name": f"{who}-soup-1"},
    "disable_skill": lambda who: {"name": f"{who}-soup-2"},
    "enable_skill": lambda who: {"name": f"{who}-soup-3"},
    "create_tool": lambda who: {
        "name": f"{who}-adds",
        "description": f"Adds for {who}",
        "parameters_schema": {"type": "object", "properties": {}},
        "python_code": "print(2)",
        "test_payload": {},
    },
    "scratchpad": lambda who: {"action": "exec", "code": f"whose = '{who}'\nprint(whose)"},
}
LAST: dict[str, Given] = {"report_outcome": lambda who: {"ok": True, "reason": f"{who} ate it."}}


@pytest.mark.full
@pytest.mark.req("OP-05")
@pytest.mark.parametrize(
    ("kind", "profile"),
    [
        ("sqlite", "default"),
        pytest.param("sqlite", "all", marks=pytest.mark.full),
        pytest.param("postgresql", "all", marks=pytest.mark.full),
    ],
)
def test_every_tool_answers_many_as_it_answers_one(
    kind: str, profile: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for place, step in (("home", together), ("other", one_by_one)):
        with database(kind, request) as url:
            environ = {"HOME": str(tmp_path), "HABITUS_USER": "ann", "HABITUS_DURABLE": "false"}
            for name, value in (environ | ({"HABITUS_DATABASE": url} if url else {})).items():
                monkeypatch.setenv(name, value)
            monkeypatch.chdir(tmp_path)
            home = furnish(tmp_path / place)
            tokens = furnish_people(home)
            found.append(asyncio.run(called(home, tokens, step, profile)))
    for alone, many in zip(found[1], found[0], strict=True):
        assert many == alone


def furnish_people(home: Path) -> dict[str, str]:
    """Three people, and the skills that each of them is going to call about."""
    with Habitus.open(read_settings(home)) as habitus:
        skills = [
            Skill(name=f"{who}-soup-{number}", description=f"How {who}-soup-{number} is made", body=STEPS, tags=(who,))
            for who in PEOPLE
            for number in range(4)
        ]
        for skill in skills:
            habitus.skills.create(skill, habitus.build_author())
        return {who: open_user_accounts(habitus).add_or_reinvite_user(who, UserRole.ADMIN).token for who in PEOPLE[1:]}


Step = Callable[[Sequence[Awaitable[str]]], Awaitable[Sequence[str]]]


async def together(calls: Sequence[Awaitable[str]]) -> Sequence[str]:
    return await asyncio.gather(*calls)


async def one_by_one(calls: Sequence[Awaitable[str]]) -> Sequence[str]:
    return [await call for call in calls]


async def called(home: Path, tokens: dict[str, str], step: Step, profile: str) -> list[Sequence[str]]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(served(home, profile=profile))
        clients = {who: await stack.enter_async_context(server.client(tokens.get(who, ""))) for who in PEOPLE}
        return await answers(clients, step, profile)


async def answers(clients: dict[str, Client], step: Step, profile: str) -> list[Sequence[str]]:
    """What each tool said to each person: those that only look first, then those that change something."""

    async def call(who: str, name: str, given: dict[str, Any]) -> str:
        said = text_of(await clients[who].call_tool(name, given))
        others = [other for other in PEOPLE if other != who]
        assert not any(re.search(rf"\b{other}\b", said) for other in others) or name == "search_skills", said
        return f"{name} to {who}: {steady(said)}"

    is_all = profile == "all"
    groups = [
        DEFAULT_LOOKING | (OTHER_LOOKING if is_all else {}),
        DEFAULT_CHANGING | (OTHER_CHANGING if is_all else {}),
        LAST,
    ]
    offered = {tool.name for tool in (await clients["ann"].list_tools()).tools}
    assert offered == {name for group in groups for name in group}  # a new one is called too
    return [
        await step(
            [
                call(who, name, given(who))
                for name, given in group.items()
                for who in PEOPLE
                for _ in range(TWICE if group is groups[0] else 1)
            ]
        )
        for group in groups
    ]


def steady(said: str) -> str:
    """Without ids and numbers that are drawn one after the other, and what was measured."""
    said = re.sub(r'"(proposal": \d+|id": "\w+")', "DRAWN", re.sub(r"\b[0-9a-f]{8,}\b", "ID", said))
    return re.sub(r"\b\d+([.,]\d+)? (ms|s|seconds)\b", "TIME", said)
