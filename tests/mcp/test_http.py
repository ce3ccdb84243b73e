"""The server over HTTP: for whoever has the token, on this machine, and for no page of another site."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from habitus.access import Access
from habitus.agent.user_input import SubmittedRequest
from habitus.app import Habitus
from habitus.app.conversations.hosting import HostTurnRequest
from habitus.app.operating.people import UserAccount, UserRole, open_user_accounts
from habitus.errors import Invalid
from habitus.journal.model import Turn
from habitus.mcp.http import serve_mcp_http
from habitus.mcp.offered_tools import is_tool_offered
from habitus.mcp.server_options import McpServerOptions
from tests.mcp.conftest import MODES, text_of

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
JSON = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


@dataclass(frozen=True)
class Served:
    url: str
    token: str

    @asynccontextmanager
    async def client(self, token: str = "", mode: str = "auto") -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {token or self.token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=300) as http,
            Client(streamable_http_client(self.url, http_client=http), mode=mode) as client,
        ):
            yield client


@asynccontextmanager
async def served(home: Path, **scope: Any) -> AsyncIterator[Served]:
    said: list[str] = []
    ready = asyncio.Event()

    def say(text: str) -> None:
        said.append(text)
        if len(said) == 2:
            ready.set()

    running = asyncio.create_task(serve_mcp_http(McpServerOptions(home=home, **scope), 0, say))
    await asyncio.wait_for(ready.wait(), 300)
    (url,) = re.findall(r"http://127\.0\.0\.1:\d+/mcp", said[0])
    try:
        yield Served(url=url, token=said[1].rpartition(" ")[2])
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.some(1)
@pytest.mark.req("CL-05")
@pytest.mark.parametrize("mode", MODES)
async def test_a_client_with_the_token_works_and_its_turn_ends_when_it_leaves(
    place: Path, habitus: Habitus, mode: str
) -> None:
    async with served(place) as server:
        async with server.client(mode=mode) as client:
            assert len((await client.list_tools()).tools) == 8
            assert "1. Boil water." in text_of(await client.call_tool("recall_skill", {"name": "brew-tea"}))
        if mode == "legacy":  # it says good-bye; the later protocol has no such word
            assert [turn.ended_on is not None for turn in turns(habitus)] == [True]
    assert [(turn.ended_on is not None, turn.source_type) for turn in turns(habitus)] == [(True, "mcp")]


# Every built-in tool by the least that a client has to be. A declaration that changes has to change here too.
ACCESS = {
    Access.VIEWER: {"list_lessons", "list_skills", "read_skill", "recall_skill", "search_skills", "why"},
    Access.REVIEWER: {"report_outcome"},
    Access.ADMIN: {"create_skill", "create_tool", "delete_skill", "disable_skill", "enable_skill", "manage_skills"}
    | {"memorize", "scratchpad", "update_skill"},
}


@pytest.mark.req("CL-04", "CL-05")
async def test_everybody_is_offered_the_tools_of_the_table(place: Path, habitus: Habitus) -> None:
    asked = HostTurnRequest(
        user_input=SubmittedRequest(text=""), user=habitus.get_user(), conversation="c", source_type="mcp"
    )
    tools = [tool for tool in await habitus.hosted_conversations.list_offered_tools(asked) if not tool.skill]
    assert {tool.name for tool in tools if tool.access is None} == {"edit_system_prompt"}
    offered = set[str]()
    for role in UserRole:
        scope = McpServerOptions(person=UserAccount(name=role.value, role=role), profile="all")
        offered |= ACCESS[role.access]
        assert {tool.name for tool in tools if is_tool_offered(tool, scope)} == offered
        looking = {tool.name for tool in tools if is_tool_offered(tool, replace(scope, read_only=True))}
        assert looking == ACCESS[Access.VIEWER]
    assert {tool.name for tool in tools if is_tool_offered(tool, McpServerOptions(profile="all"))} == offered


@pytest.mark.req("CL-04", "CL-05")
async def test_every_tool_called_by_everybody_answers_as_the_table_says(place: Path, habitus: Habitus) -> None:
    tokens = {
        role.access: open_user_accounts(habitus).add_or_reinvite_user(role.value, role).token for role in UserRole
    }
    every = sorted(set[str]().union(*ACCESS.values()))
    async with served(place, profile="all") as server:
        for access, token in {**tokens, Access.OWNER: server.token}.items():
            offered = set[str]().union(*(names for least, names in ACCESS.items() if least <= access))
            async with server.client(token) as client:
                answers = {name: text_of(await client.call_tool(name, {})) for name in every}
            assert {name for name, answer in answers.items() if "There is no tool" not in answer} == offered
        for stranger in ({}, {"Authorization": "Bearer wrong"}):
            assert await status_of(server, stranger) == 401


@pytest.mark.full
@pytest.mark.req("CL-04", "CL-05")
async def test_people_use_their_tokens_within_their_roles_and_are_named(place: Path, habitus: Habitus) -> None:
    tokens = {role: open_user_accounts(habitus).add_or_reinvite_user(role.value, role).token for role in UserRole}
    new = {"name": "make-soup", "title": "Soup", "description": "How soup is made", "content": "1. Cut leeks."}
    async with served(place) as server:
        for role, more in ((UserRole.VIEWER, set()), (UserRole.REVIEWER, {"report_outcome"})):
            async with server.client(tokens[role]) as client:
                offered = {tool.name for tool in (await client.list_tools()).tools}
                assert offered == {"search_skills", "recall_skill", "list_lessons", "why"} | more
                assert "There is no tool" in text_of(await client.call_tool("create_skill", new))
                await client.call_tool("recall_skill", {"name": "brew-tea"})
        async with server.client(tokens[UserRole.ADMIN]) as client:
            assert "proposed" in text_of(await client.call_tool("create_skill", new))
        (proposal,) = habitus.review.list_proposals_by_state()
        assert (proposal.change.name, proposal.author.name) == ("make-soup", "admin")
        open_user_accounts(habitus).remove_and_bar_account("admin")
        assert await status_of(server, {"Authorization": f"Bearer {tokens[UserRole.ADMIN]}"}) == 401
    assert {turn.user for turn in turns(habitus)} == {"viewer", "reviewer", "admin"}


async def status_of(server: Served, headers: dict[str, str]) -> int:
    async with httpx2.AsyncClient() as http:
        return (await http.post(server.url, content=json.dumps(PING), headers=JSON | headers)).status_code


@pytest.mark.req("CL-04")
async def test_a_session_is_continued_by_nobody_but_who_began_it(place: Path, habitus: Habitus) -> None:
    ben = {"Authorization": f"Bearer {open_user_accounts(habitus).add_or_reinvite_user('ben', UserRole.VIEWER).token}"}
    greeting = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    async with served(place) as server, httpx2.AsyncClient() as http:
        own = {**JSON, "Authorization": f"Bearer {server.token}"}
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": greeting}
        begun = await http.post(server.url, json=hello, headers=own)
        session = {"mcp-session-id": begun.headers["mcp-session-id"]}
        assert await status_of(server, {**own, **session}) == 200
        assert await status_of(server, {**ben, **session}) == 404


def turns(habitus: Habitus) -> list[Turn]:
    return [turn for id in habitus.journal.list_session_ids() for turn in habitus.journal.list_session_turns(id)]


@pytest.mark.req("CL-05", "SC-01")
async def test_nobody_else_is_let_in(place: Path, habitus: Habitus) -> None:
    async with served(place) as server, httpx2.AsyncClient() as http:

        async def status(**headers: str) -> int:
            return await status_of(server, headers)

        token = f"Bearer {server.token}"
        assert await status() == 401
        assert await status(Authorization="Bearer wrong") == 401
        assert await status(Authorization=server.token) == 401
        assert await status(Authorization=token, Host="evil.example") == 421
        assert await status(Authorization=token, Origin="http://evil.example") == 403
        assert await status(Authorization=token, Origin="null") == 403
        assert (await http.get(server.url.replace("/mcp", "/"), headers={"Authorization": token})).status_code == 404
        port = int(server.url.rpartition(":")[2].partition("/")[0])
        with pytest.raises(Invalid, match="Choose another --port"):
            await serve_mcp_http(McpServerOptions(home=place), port, lambda text: None)


@pytest.mark.req("OP-03")
async def test_whoever_watches_over_the_process_hears_that_it_lives_and_what_it_lacks(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(home) as at, httpx2.AsyncClient() as web:
        base = at.url.removesuffix("/mcp")
        assert (await web.get(f"{base}/healthz")).json() == {"status": "ok"}
        assert (await web.get(f"{base}/readyz")).json() == {"status": "ready", "reasons": []}
        monkeypatch.setenv("HABITUS_DATABASE", "postgresql://somebody:secret@127.0.0.1:9/none")
        degraded = await web.get(f"{base}/readyz")
        assert degraded.status_code == 200
        assert degraded.json() == {
            "status": "degraded",
            "reasons": ["The database is unreachable (Connection refused)."],
        }
        assert (await web.post(f"{base}/readyz")).status_code == 401
