"""Claude Code itself, connected: its sessions fail, find their way, and the next one is told at once."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Cli
from tests.fake_provider import FakeProvider, Reply
from tests.mcp.test_real_clients import answers, calls, claude_code

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]

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
            [self.binary, "-p", prompt, "--allowedTools", "Bash", "--model", "claude-sonnet-4-5", *also],
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


@pytest.mark.req("CL-06")
def test_a_connected_session_is_told_our_rules_and_disconnecting_leaves_no_trace(claude: Claude) -> None:
    cli = claude.cli
    claude("hello")  # it has written its own files now
    before = own_files(cli)
    cli("lessons", "add", "Never push to main by force.", "--kind", "never")
    assert cli("connect", "claude-code", "--yes").code == 0
    asked = claude("run the tests", bash(1, "pytest"), bash(2, "uv run pytest"))
    assert "- Never push to main by force." in json.dumps(asked[0]["messages"])
    assert cli("disconnect", "claude-code", "--yes").code == 0
    assert own_files(cli) == before


def own_files(cli: Cli) -> dict[str, bytes]:
    """The config of the program, as it lies in the person's home."""
    places = [cli.user_home / ".claude.json", cli.user_home / ".claude" / "settings.json"]
    return {path.name: path.read_bytes() for path in places if path.exists()}
