"""Claude Code itself, connected: its sessions fail, find their way, and the next one is told at once."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from habitus.app.other_agents.agent_skills import (
    RecordedSkillListing,
    compute_listing_budget,
    find_last_recorded_skill_listing,
)
from tests import npm
from tests.cli.test_hooks import call, ended, said
from tests.conftest import Cli
from tests.fake_provider import FakeProvider, Reply
from tests.mcp.test_real_clients import answers, calls, claude_code

pytestmark = pytest.mark.full

PLUGIN = Path(__file__).parents[2] / "plugin"

DONE = answers({"type": "text", "text": "Done."})


@dataclass(frozen=True, kw_only=True, slots=True)
class Claude:
    """The program on a person's home, with a provider that answers from a script."""

    cli: Cli
    binary: Path
    provider: FakeProvider

    def __call__(self, prompt: str, *replies: Reply, also: Sequence[str] = ()) -> list[dict[str, Any]]:
        """One session; what its model was asked, request by request."""
        self.provider.gives(*replies, DONE)
        before = len(self.provider.requests)
        environ = {
            **self.cli.environ({"PATH": f"{self.cli.user_home / 'bin'}:/usr/bin:/bin"}),
            "ANTHROPIC_BASE_URL": self.provider.address,
            "ANTHROPIC_API_KEY": "none",
            "ENABLE_TOOL_SEARCH": "false",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "MCP_TIMEOUT": "120000",
        }
        done = subprocess.run(
            [
                self.binary,
                "-p",
                prompt,
                "--allowedTools",
                "Bash",
                "--model",
                "claude-sonnet-4-5",
                *also,
            ],
            env=environ,
            cwd=self.cli.cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return [one.body for one in self.provider.requests[before:] if one.body and "tools" in one.body]


@pytest.fixture
def claude(installed_cli: Cli, others: Path, provider: FakeProvider) -> Iterator[Claude]:
    programs = installed_cli.user_home / "bin"
    programs.mkdir()
    (programs / "uv").write_text("#!/bin/sh\necho 3 passed\n")
    (programs / "uv").chmod(0o755)
    yield Claude(cli=installed_cli, binary=claude_code(others), provider=provider)
    (installed_cli.home / "hooks.lock").unlink(missing_ok=True)  # the resident process ends by itself


def bash(number: int, command: str) -> Reply:
    return calls(number, "Bash", command=command, description="run the tests")


@pytest.mark.req("CL-06", "EL-10")
def test_the_third_session_is_told_what_two_found_out_and_what_the_person_said(claude: Claude) -> None:
    cli = claude.cli
    claude("hello")  # it has written its own files now
    before = own_files(cli)
    assert cli("connect", "claude-code", "--yes").code == 0
    for _ in range(2):
        asked = claude("run the tests", bash(1, "pytest"), bash(2, "uv run pytest"))
        assert "uv run pytest" not in json.dumps(asked[1]["messages"])
    refused = "The user doesn't want to proceed with this tool use. The tool use was rejected."
    pushed = call(1, "git push --force origin main", refused, fails=True)
    asyncio.run(ended(cli, "corrected", said("publish it"), *pushed, said("Never push to main by force!")))
    asked = claude("hello")  # what is over is learned from when a session starts
    assert {"mcp__habitus__search_skills", "mcp__habitus__recall_skill"} <= {one["name"] for one in asked[0]["tools"]}
    (rule,) = until(lambda: [one for one in waiting(cli) if one["text"] == "Never push to main by force!"])
    assert cli("review", "approve", rule["id"]).code == 0
    asked = claude("run the tests", bash(1, "pytest"))
    assert "Never push to main by force" in json.dumps(asked[0]["messages"])
    (beside,) = [text for text in texts(asked[1]["messages"][-1]) if "PostToolUseFailure" in text]
    assert "In this project run `uv run pytest`" in beside
    assert cli("disconnect", "claude-code", "--yes").code == 0
    assert own_files(cli) == before


@pytest.mark.req("CL-09")
def test_the_plugin_has_its_tools_in_the_session_after_one_without_habitus(claude: Claude) -> None:
    """Claude Code stops starting a server that has failed, for eight sessions; so it never fails."""
    plugin = ("--plugin-dir", str(PLUGIN))

    def offered() -> tuple[set[str], str]:
        (asked,) = claude("hello", also=plugin)
        return {tool["name"] for tool in asked["tools"] if "habitus" in tool["name"]}, json.dumps(asked)

    tools, text = offered()
    assert tools == set()
    assert "Habitus is not installed." in text
    assert "recall_skill" not in text
    (program := claude.cli.user_home / "bin" / "habitus").write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -m habitus "$@"\n'
    )
    program.chmod(0o755)
    tools, text = offered()
    assert "mcp__plugin_habitus_habitus__recall_skill" in tools
    assert "Habitus is not installed." not in text


def texts(message: dict[str, Any]) -> list[str]:
    """What a message says, block by block, and below the results of calls."""
    blocks = message["content"]
    inner = [block["content"] for block in blocks if block["type"] == "tool_result"]
    return [block["text"] for block in blocks if block["type"] == "text"] + [text for text in inner if text]


def waiting(cli: Cli) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cli("review", "list", "--json").out)["proposals"]
    return found


def until(look: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """What is there after a while: learning goes on beside the session."""
    deadline = time.monotonic() + 600
    while not (found := look()) and time.monotonic() < deadline:
        pass  # looking takes its time
    return found


def own_files(cli: Cli) -> dict[str, bytes]:
    """The config of the program, as it lies in the person's home."""
    places = [cli.user_home / ".claude.json", cli.user_home / ".claude" / "settings.json"]
    return {path.name: path.read_bytes() for path in places if path.exists()}


@pytest.mark.req("CL-08")
@pytest.mark.parametrize("version", ["2.1.197", "2.1.240", "2.1.285", "2.1.310", "2.1.325"])
def test_check_says_which_descriptions_its_listing_has_lost(claude: Claude, tmp_path: Path, version: str) -> None:
    """The same names as the program's own listing, before and after the fix; and without skills of the person's, as
    much room as that version is known to take for its own."""
    (tmp_path / "npm").mkdir()
    program = npm.install(tmp_path / "npm", f"@anthropic-ai/claude-code@{version}") / "claude"
    claude = replace(claude, binary=program)

    def seen() -> RecordedSkillListing:
        claude("hello")
        return find_last_recorded_skill_listing(claude.cli.user_home.glob(".claude/projects/*/*.jsonl"))

    alone = seen()
    by_version = compute_listing_budget([], RecordedSkillListing(version=version), {}, {})
    assert by_version == replace(compute_listing_budget([], alone, {}, {}), how_many="about ")
    skills = claude.cli.user_home / ".claude" / "skills"
    for number in range(25):
        folder = skills / f"skill-{number:02}"
        folder.mkdir(parents=True)
        head = f"---\nname: {folder.name}\ndescription: Number {number}. {'words ' * (20 + number * 5)}\n---\n"
        (folder / "SKILL.md").write_text(head + "1. Do it.\n")
    (skills / "skill-00" / "SKILL.md").write_text("---\nname: skill-00\ndescription: [\n---\nDo it.\n")

    def lost() -> tuple[int, list[str]]:
        real = re.findall(r"(?m)^- (skill-\d+)$", seen().listing)
        (report,) = json.loads(claude.cli("check", "--json", "--agent", "claude-code").out)["agents"]
        remarks = [each for each in report["remarks"] if "without a description" in each["what"]]
        said = int(re.findall(r"lists (\d+) of", remarks[0]["what"])[0]) if remarks else 0
        if remarks:
            setting = remarks[0]["hint"].removeprefix("set ").partition(" in ")[0]
            (claude.cli.user_home / ".claude" / "settings.json").write_text(f"{{{setting}}}")
        return said, real

    said, real = lost()
    assert said == len(real) > 0
    assert lost() == (0, [])
