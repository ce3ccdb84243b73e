"""Real clients, unmodified: the official one of the generation before, the inspector, and Claude Code itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from habitus.app import Habitus, read_settings
from habitus.events import OutcomeKind
from tests import npm
from tests.conftest import Cli
from tests.fake_provider import FakeProvider, Reply, sse
from tests.mcp.test_resources import with_files
from tests.mcp.test_tools import DEFAULT, made, with_code

pytestmark = pytest.mark.full

OLD_CLIENT = """
import asyncio, json, os, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

async def main():
    server = StdioServerParameters(command=sys.argv[1], args=["mcp"], env=dict(os.environ))
    async with stdio_client(server) as pipes, ClientSession(*pipes) as session:
        await session.initialize()
        tools = [tool.name for tool in (await session.list_tools()).tools]
        said = await session.call_tool("recall_skill", {"name": "review-a-change"})
        learned = await session.call_tool("double_it", {"x": 21})
        read = await session.read_resource("skill://review-a-change/SKILL.md")
        prompt = await session.get_prompt("save_skill", {"hint": "tea"})
        print(json.dumps([tools, said.content[0].text, learned.content[0].text, read.contents[0].text,
            prompt.messages[0].content.text]))

asyncio.run(main())
"""


@pytest.fixture
def furnished(installed_cli: Cli) -> Cli:
    """With a tool that was learned."""
    with Habitus.open(read_settings(installed_cli.home, installed_cli.environ())) as habitus:
        made(habitus, {"double-it": with_code("double-it")})
    return installed_cli


@pytest.mark.req("CL-05")
def test_the_official_client_of_the_generation_before(furnished: Cli, others: Path) -> None:
    done = subprocess.run(
        [others, "-c", OLD_CLIENT, furnished.command[0]],
        env=furnished.environ(),
        cwd=furnished.cwd,
        capture_output=True,
        text=True,
        check=True,
    )
    tools, said, learned, read, prompt = json.loads(done.stdout)
    assert tools == [*DEFAULT, "double_it"]
    assert said.startswith("# Skill: review-a-change")
    assert learned == "42"
    assert read.startswith("---\nname: review-a-change\n")
    assert prompt.endswith("It should be about: tea")


@pytest.fixture(scope="module")
def inspector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return npm.install(tmp_path_factory.mktemp("npm"), npm.NODE, "@modelcontextprotocol/inspector@2.12.0")


@pytest.mark.req("CL-05")
def test_the_inspector(furnished: Cli, inspector: Path, tmp_path: Path) -> None:
    with Habitus.open(read_settings(furnished.home, furnished.environ())) as habitus:
        with_files(habitus)

    def inspect(method: str, *options: str) -> str:
        environ = {**os.environ, **furnished.environ(), "PATH": f"{inspector}:{os.environ['PATH']}"}
        given = [word for name, value in furnished.environ().items() for word in ("-e", f"{name}={value}")]
        program = [furnished.command[0], "mcp", "--method", method, *options]
        command = [str(inspector / "inspector"), "--cli", *given, *program]
        done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert [tool["name"] for tool in json.loads(inspect("tools/list"))["tools"]] == [*DEFAULT, "double_it"]
    called = json.loads(inspect("tools/call", "--tool-name", "double_it", "--tool-arg", "x=21"))
    assert called["content"][0]["text"] == "42"
    assert json.loads(inspect("resources/list"))["resources"]
    prompts = [prompt["name"] for prompt in json.loads(inspect("prompts/list"))["prompts"]]
    assert prompts == ["save_skill", "learn_from_session", "improve_skill", "draft_tasks", "review"]
    # It checks every field of the extension, and every digest by reading the file.
    strictly = ("--protocol-era", "modern", "--verify", "--require-digests")
    listed = [json.loads(line) for line in inspect("skills/list", *strictly).splitlines()]
    assert {"pour-tea", "review-a-change"} <= {one["name"] for one in listed}
    (got,) = map(json.loads, inspect("skills/get", "--uri", "skill://pour-tea/SKILL.md", *strictly).splitlines())
    assert got in listed
    assert (got["outcome"], len(got["files"]), got["conformance"], got["frontmatter"]) == ("verified", 4, [], [])
    place = ("--uri", "skill://pour-tea/references", "--protocol-era", "modern")
    children = json.loads(inspect("resources/directory/read", *place))["resources"]
    assert [child["name"] for child in children] == ["cups.md", "deep"]


def claude_code(others: Path) -> Path:
    (binary,) = others.parents[1].glob("lib/python*/site-packages/claude_agent_sdk/_bundled/claude")
    return binary


@pytest.mark.full
@pytest.mark.req("CL-09")
def test_claude_code_takes_our_plugin(others: Path, tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    environ = {**os.environ, "HOME": str(tmp_path), "HABITUS_HOME": str(tmp_path / ".habitus")}
    environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"

    def claude(*words: str | Path) -> str:
        command = [claude_code(others), *words]
        return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True).stdout

    for manifest in (root, root / "plugin"):
        assert "Validation passed" in claude("plugin", "validate", manifest)
    claude("plugin", "marketplace", "add", root)
    claude("plugin", "install", "habitus@habitus")
    assert "plugin:habitus:habitus" in claude("mcp", "list")
    assert "Connected" in claude("mcp", "list")


def answers(block: dict[str, Any]) -> Reply:
    """One answer as Anthropic streams it: a text, or a call."""
    is_text = block["type"] == "text"
    begins = {**block, "text": ""} if is_text else {**block, "input": {}}
    delta = (
        {"type": "text_delta", "text": block["text"]}
        if is_text
        else {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    )
    message = {
        "id": f"msg_{block.get('id', 'text')}",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [],
        "usage": {},
    }
    ends = {"stop_reason": "end_turn" if is_text else "tool_use", "stop_sequence": None}
    events: Sequence[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "usage": {"input_tokens": 1, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": begins},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ends, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    return sse(*((event["type"], event) for event in events))


def calls(number: int, tool: str, **given: Any) -> Reply:
    return answers({"type": "tool_use", "id": f"call_{number}", "name": tool, "input": given})


def results_in(messages: Sequence[dict[str, Any]]) -> dict[str, str]:
    """What each call came to, as the model reads it."""
    blocks = [block for message in messages if isinstance(message["content"], list) for block in message["content"]]
    found = {block["tool_use_id"]: block["content"] for block in blocks if block["type"] == "tool_result"}
    return {
        id: text if isinstance(text, str) else "".join(p.get("text", "") for p in text) for id, text in found.items()
    }


@pytest.mark.req("CL-05")
@pytest.mark.parametrize("searches", [False, True])
def test_claude_code_lists_our_tools_recalls_a_skill_and_calls_a_learned_tool(
    furnished: Cli, others: Path, provider: FakeProvider, searches: bool
) -> None:
    """With its tool search it keeps tools back until they are looked for, but not the two that it must always see."""
    learned = "mcp__habitus__double_it"
    steps = [
        calls(1, "mcp__habitus__recall_skill", name="review-a-change"),
        *([calls(2, "ToolSearch", query=f"select:{learned}")] if searches else []),
        calls(3, learned, x=21),
        calls(4, "mcp__habitus__report_outcome", ok=True) if not searches else answers({"type": "text", "text": "."}),
        answers({"type": "text", "text": "Done."}),
    ]
    provider.gives(*steps)
    config = furnished.cwd / "mcp.json"
    server = {"command": furnished.command[0], "args": ["mcp"], "env": furnished.environ()}
    config.write_text(json.dumps({"mcpServers": {"habitus": server}}))
    binary = claude_code(others)
    environ = {
        **furnished.environ(),
        "ANTHROPIC_BASE_URL": provider.address,
        "ANTHROPIC_API_KEY": "none",
        "ENABLE_TOOL_SEARCH": str(searches).lower(),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "MCP_TIMEOUT": "120000",
    }
    allowed = f"mcp__habitus__recall_skill,mcp__habitus__report_outcome,ToolSearch,{learned}"
    options = ["--mcp-config", str(config), "--strict-mcp-config", "--allowedTools", allowed, "--output-format", "json"]
    done = subprocess.run(
        [binary, "-p", "double 21", *options, "--model", "claude-sonnet-4-5"],
        env=environ,
        cwd=furnished.cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    offered = {tool["name"].removeprefix("mcp__habitus__") for tool in provider.requests[0].body["tools"]}
    ours = {"recall_skill", "search_skills"} if searches else {*DEFAULT, "double_it"}
    assert offered & {*DEFAULT, "double_it"} == ours
    results = results_in(provider.requests[-1].body["messages"])
    assert results["call_1"].startswith("# Skill: review-a-change")
    assert results["call_3"].splitlines()[0] == "42"  # it adds a line of its own
    with Habitus.open(read_settings(furnished.home, furnished.environ())) as habitus:
        (session,) = habitus.journal.list_session_ids()
        (turn,) = habitus.journal.list_session_turns(session)
        kind = OutcomeKind.INFRA if searches else OutcomeKind.OK
        assert (turn.source_type, [outcome.kind for outcome in turn.outcomes]) == ("mcp", [kind])
