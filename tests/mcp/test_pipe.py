"""The command on a pipe, as agents start it: third-party clients, and what a bad client may send."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.skills import SkillsClientExtension

import habitus.mcp
from habitus.app import Habitus, read_settings
from habitus.events import OutcomeKind
from tests.conftest import Cli
from tests.mcp.test_tools import made, with_code

_SOURCES = {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
GREETING = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


class Pipe:
    """A client that writes what it likes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.last = 0

    def write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def send(self, method: str, params: Any) -> int:
        self.last += 1
        self.write(json.dumps({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}).encode())
        return self.last

    def hear(self) -> dict[str, Any]:
        """The next line, whatever it is."""
        assert self.process.stdout is not None
        line: dict[str, Any] = json.loads(self.process.stdout.readline())
        return line

    def answer(self, *ids: int) -> dict[int, Any]:
        """The answers to these requests, in whatever order they come."""
        found: dict[int, Any] = {}
        while set(found) != set(ids):
            line = self.hear()
            if line.get("id") in ids:
                found[line["id"]] = line
        return found

    def ask(self, method: str, **params: Any) -> Any:
        id = self.send(method, params)
        return self.answer(id)[id]

    def greet(self, version: str = "2025-11-25") -> Any:
        greeted = self.ask("initialize", **{**GREETING, "protocolVersion": version})
        self.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')
        return greeted


@contextmanager
def served(cli: Cli, *options: str) -> Iterator[Pipe]:
    command = [*(cli.program or cli.command), "mcp", *options]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=cli.cwd, env=cli.environ(), **pipes) as process:
        yield Pipe(process)
    assert process.returncode in (0, -signal.SIGTERM, 143)


@pytest.mark.req("CL-05")
async def test_fastmcp_lists_and_gets_skills_by_the_extension_and_calls_tools(
    run_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTMCP_CHECK_FOR_UPDATES", "off")
    assert run_cli("skills", "new", "brew-tea", "-d", "How tea is brewed").code == 0
    transport = StdioTransport(run_cli.program[0], ["mcp"], env=run_cli.environ(), cwd=str(run_cli.cwd))
    async with Client(transport, extensions=[SkillsClientExtension()]) as client:
        skills = {skill.frontmatter.name: skill for skill in await client.list_skills()}
        assert {"brew-tea", "review-a-change"} <= set(skills)
        assert await client.get_skill("skill://brew-tea/SKILL.md") == skills["brew-tea"]
        assert "recall_skill" in {tool.name for tool in await client.list_tools()}
        said = await client.call_tool("recall_skill", {"name": "brew-tea"})
        assert "# Skill: brew-tea" in said.content[0].text


@pytest.mark.req("CL-05", "SC-01")
def test_garbage_is_passed_over_and_the_next_request_is_answered(run_cli: Cli) -> None:
    with served(run_cli) as pipe:
        for garbage in (b"", b"hello", b"{", b"[]", b"\xff\xfe\x00", b'{"jsonrpc": "1.0"}', b"null", b"1" * 100_000):
            pipe.write(garbage)
        assert pipe.greet()["result"]["serverInfo"]["name"] == "habitus"
        assert pipe.ask("no/such/method")["error"]["code"] == -32601
        assert pipe.ask("tools/call", name=7)["error"]["code"] == -32602
        assert pipe.ask("tools/call", name="recall_skill", arguments=[1])["error"]["code"] == -32602
        for name, arguments in (("recall_skill", {"nam": "x"}), ("nothing", {}), ("create_skill", {"name": 1})):
            said = pipe.ask("tools/call", name=name, arguments=arguments)["result"]
            assert said["isError"] is True
            assert said["content"][0]["text"].startswith("Error: ")
        deep: Any = "x"
        for _ in range(100):
            deep = [deep]
        assert pipe.ask("tools/call", name="search_skills", arguments={"query": deep})["result"]["isError"] is True
        assert len(pipe.ask("tools/list")["result"]["tools"]) == 8


@pytest.mark.req("CL-05", "SC-01")
def test_an_unknown_protocol_version_gets_one_that_is_known(run_cli: Cli) -> None:
    with served(run_cli) as pipe:
        greeted = pipe.ask("initialize", **{**GREETING, "protocolVersion": "3000-01-01"})
        assert greeted["result"]["protocolVersion"] == "2025-11-25"
    with served(run_cli) as pipe:
        envelope = {f"io.modelcontextprotocol/{key}": value for key, value in {"protocolVersion": "3000-01-01"}.items()}
        assert pipe.ask("tools/list", _meta=envelope)["error"]["code"] in (-32022, -32602)
    with served(run_cli) as pipe:
        assert pipe.ask("tools/list")["error"]["code"] == -32602  # nobody has greeted


_LISTS = ("tools/list", "prompts/list", "resources/list")


@pytest.mark.req("CL-05")
@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
def test_a_home_that_nobody_has_used_is_answered_for_by_the_package(run_cli: Cli, version: str) -> None:
    """Before the server is loaded, and as the server itself answers; else: make docs."""
    shipped = json.loads((Path(habitus.mcp.__file__).parent / "first_answers.json").read_text())
    with served(run_cli) as pipe:
        early = [pipe.greet(version)["result"], *(pipe.ask(method)["result"] for method in _LISTS)]
        assert early == [shipped[f"{method} {version}"] for method in ("initialize", *_LISTS)]
        # The server's turn: it has got the early requests before this one.
        assert pipe.ask("tools/call", name="list_lessons", arguments={})["result"]["isError"] is False
        assert [pipe.ask(method)["result"] for method in _LISTS] == early[1:]
    assert not [*run_cli.home.glob("cache/mcp-*.json")]  # where an answer that differs would be kept


@pytest.mark.req("CL-05")
def test_the_first_client_of_a_home_with_a_learned_tool_is_offered_it(run_cli: Cli) -> None:
    """No answer is cached yet, and those of an empty home would leave the tool out."""
    with Habitus.open(read_settings(run_cli.home, run_cli.environ())) as home:
        made(home, {"double-it": with_code("double-it")})
    with served(run_cli) as pipe:
        pipe.greet()
        tools, _, resources = (pipe.ask(method)["result"] for method in _LISTS)
        assert "double_it" in [tool["name"] for tool in tools["tools"]]
        assert "double-it" in [resource["name"] for resource in resources["resources"]]


@pytest.mark.req("CL-05")
def test_the_next_client_has_its_tools_before_anything_is_imported_and_is_told_what_changed(run_cli: Cli) -> None:
    """From the answers that were remembered; every call is answered by the server itself."""
    assert run_cli("skills", "new", "brew-coffee", "-d", "How coffee is brewed").code == 0
    with served(run_cli) as pipe:
        pipe.greet()
        pipe.ask("resources/list")
        assert "# Skill: brew-coffee" in str(
            pipe.answer(pipe.send("tools/call", {"name": "recall_skill", "arguments": {"name": "brew-coffee"}}))
        )
        first = [pipe.ask(method)["result"] for method in _LISTS]
    (kept,) = (run_cli.home / "cache").glob("mcp-*.json")
    answers = json.loads(kept.read_text())
    assert answers["answers"]["resources/list 2025-11-25"] == first[2]
    assert run_cli("skills", "new", "brew-tea", "-d", "How tea is brewed").code == 0
    answers["answers"]["tools/list 2025-11-25"] = {"tools": [{"name": "gone", "inputSchema": {"type": "object"}}]}
    kept.write_text(json.dumps(answers))
    with served(run_cli) as pipe:
        pipe.greet()
        early = [pipe.ask(method)["result"] for method in _LISTS]
        assert early == [answers["answers"]["tools/list 2025-11-25"], *first[1:]]
        pipe.send("tools/call", {"name": "recall_skill", "arguments": {"name": "brew-tea"}})
        heard = [pipe.hear() for _ in range(3)]
        assert "# Skill: brew-tea" in str([one["result"] for one in heard if "result" in one])
        changes = {"notifications/tools/list_changed", "notifications/resources/list_changed"}
        assert {one["method"] for one in heard if "method" in one} == changes
        assert pipe.ask("tools/call", name="gone")["result"]["isError"] is True
        assert pipe.ask("tools/list")["result"] == first[0]
        assert "brew-tea" in str(pipe.ask("resources/list"))


@pytest.mark.req("CL-05")
def test_a_client_of_the_later_protocol_is_answered_early_too(run_cli: Cli) -> None:
    about = {"protocolVersion": "2026-07-28", "clientInfo": GREETING["clientInfo"], "clientCapabilities": {}}
    meta = {f"io.modelcontextprotocol/{key}": value for key, value in about.items()}
    wanted = {"toolsListChanged": True}
    seen = []
    for _ in range(2):
        with served(run_cli) as pipe:
            discovered = pipe.ask("server/discover", _meta=meta)["result"]
            pipe.send("subscriptions/listen", {"_meta": meta, "notifications": wanted})
            acknowledged = pipe.hear()
            seen.append((discovered, acknowledged, pipe.ask("tools/list", _meta=meta)["result"]))
            assert pipe.ask("tools/call", _meta=meta, name="list_lessons", arguments={})["result"]["isError"] is False
    assert seen[0] == seen[1]
    assert seen[0][1]["method"] == "notifications/subscriptions/acknowledged"


def test_greeting_a_client_needs_nothing_but_the_standard_library() -> None:
    look = "import sys, habitus.cli.start; print({'mcp', 'typer', 'pydantic', 'asyncio', 'pathlib'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-S", "-P", "-c", look], capture_output=True, text=True, env=_SOURCES)
    assert ran.stdout == "set()\n", ran.stderr


@pytest.mark.full
@pytest.mark.req("CL-05")
def test_a_hundred_calls_at_once_are_all_answered(run_cli: Cli) -> None:
    with served(run_cli) as pipe:
        pipe.greet()
        calls = [{"name": "search_skills", "arguments": {"query": f"review a change {n}"}} for n in range(98)]
        made = {"title": "T", "description": "D", "content": "1. Do."}
        calls += [{"name": "create_skill", "arguments": {"name": f"skill-{n}", **made}} for n in range(2)]
        answers = pipe.answer(*[pipe.send("tools/call", call) for call in calls])
        assert [answer for answer in answers.values() if answer["result"]["isError"]] == []
    with Habitus.open(read_settings(run_cli.home, run_cli.environ())) as habitus:
        (session,) = habitus.journal.list_session_ids()
        (turn,) = habitus.journal.list_session_turns(session)
        assert len([event for event in turn.events if event.kind.value == "tool_result"]) == 100


@pytest.mark.some(1)
@pytest.mark.req("CL-05", "SC-02")
@pytest.mark.parametrize("way", ["closes", "terminates"])
def test_a_client_that_goes_away_in_a_call_leaves_its_turn_written_down(run_cli: Cli, way: str) -> None:
    with served(run_cli, "--tools", "all") as pipe:
        pipe.greet()
        pipe.ask("tools/call", name="recall_skill", arguments={"name": "review-a-change"})
        pipe.send("tools/call", {"name": "scratchpad", "arguments": {"action": "exec", "code": "while True: pass"}})
        if way == "terminates":
            os.kill(pipe.process.pid, signal.SIGTERM)
            pipe.process.wait()
    with Habitus.open(read_settings(run_cli.home, run_cli.environ())) as habitus:
        (session,) = habitus.journal.list_session_ids()
        (turn,) = habitus.journal.list_session_turns(session)
        assert turn.ended_on is not None
        assert [outcome.kind for outcome in turn.outcomes] == [OutcomeKind.INFRA]
