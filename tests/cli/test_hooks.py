"""Hooks as an agent runs them: the script in a process of its own, and the resident process behind it."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from habitus.app import Habitus, read_settings
from habitus.app.other_agents.hook_server import run_hook_daemon
from habitus.hosts import hook, known_agents
from habitus.operating_system import get_account_name
from habitus.resident_process import HOOK_SERVER, is_process_running, request_stop
from habitus.settings import Settings
from habitus.text import estimate_tokens
from tests.cli.conftest import Direct
from tests.conftest import Cli

NOT_FOUND = "Exit code 127\n/bin/bash: line 1: pytest: command not found"


@dataclass(frozen=True, kw_only=True, slots=True)
class Agent:
    """A session of an agent that runs our hooks."""

    cli: Cli
    session: str = "5f0c"

    async def runs(self, event: str, told: bytes = b"", **more: Any) -> str:
        """What a hook says to the model; it must end well, and say nothing else."""
        common = {"session_id": self.session, "cwd": str(self.cli.cwd), "hook_event_name": event}
        given = told or json.dumps({**common, **more}).encode()
        command = known_agents.make_hook_command(event, sys.executable, self.cli.home)
        process = await asyncio.create_subprocess_shell(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.cli.environ()
        )
        out, err = await process.communicate(given)
        assert (process.returncode, err) == (0, b"")
        if not out:
            return ""
        said = json.loads(out)["hookSpecificOutput"]
        assert said.pop("hookEventName") == event
        return str(said["additionalContext"])


@asynccontextmanager
async def resident(settings: Settings) -> AsyncIterator[None]:
    stop = asyncio.Event()
    running = asyncio.create_task(run_hook_daemon(settings, stop=stop))
    while not is_process_running(settings.home, HOOK_SERVER):
        await asyncio.sleep(0)
    try:
        yield
    finally:
        stop.set()
        await running


def settings_of(cli: Cli) -> Settings:
    """As a process of this account reads them."""
    return read_settings(cli.home, cli.environ({"USER": get_account_name()})).model_copy(update={"cwd": cli.cwd})


@pytest.mark.req("CL-06")
async def test_a_session_is_told_rules_then_what_fits_then_what_helped(direct: Direct) -> None:
    direct.ok("lessons", "add", "Never push to main by force.", "--kind", "never")
    direct.ok("lessons", "add", "Run the tests of this project with uv run pytest.")
    for session in ("one", "two"):
        calls = [*call(1, "pytest", NOT_FOUND, fails=True), *call(2, "uv run pytest", "3 passed")]
        await ended(direct.cli, session, said("run the tests"), *calls)
    async with resident(settings_of(direct.cli)):
        await Agent(cli=direct.cli, session="three").runs("SessionStart", source="startup")
    agent = Agent(cli=direct.cli)
    async with resident(settings_of(direct.cli)):
        assert "- Never push to main by force." in await agent.runs("SessionStart", source="startup")
        shown = await agent.runs("UserPromptSubmit", prompt="Run the tests of this project.")
        assert "- Run the tests of this project with uv run pytest." in shown
        assert estimate_tokens(shown) <= 300
        other = Agent(cli=direct.cli, session="9a1b")  # two at once
        thanks = [one.runs("UserPromptSubmit", prompt="Thanks!") for one in (agent, other)]
        assert await asyncio.gather(*thanks) == ["", ""]
        remedy = await agent.runs(
            "PostToolUseFailure", tool_name="Bash", tool_input={"command": "pytest"}, error=NOT_FOUND
        )
        assert "uv run pytest" in remedy
        reading: dict[str, Any] = {
            "tool_name": "Read",
            "tool_input": {"file_path": "/x"},
            "error": "File does not exist.",
        }
        assert await agent.runs("PostToolUseFailure", **reading) == ""
        assert "repeated_tool_error" in await agent.runs("PostToolUseFailure", **reading)
        assert await agent.runs("PostToolUseFailure", **reading, is_interrupt=True) == ""
        assert await agent.runs("Stop", transcript_path="/t.jsonl") == ""
    with Habitus.open(settings_of(direct.cli)) as habitus:
        turns = habitus.journal.list_session_turns("claude-code-5f0c")
        assert [turn.request for turn in turns] == ["Run the tests of this project.", "Thanks!"]
        assert {one.kind for one in turns[0].exposures} == {"lesson", "skill"}
        assert [len(turn.events) for turn in turns] == [0, 6]


@pytest.mark.full
async def test_hooks_without_a_resident_process_a_home_or_a_sensible_agent_say_nothing(direct: Direct) -> None:
    """Also what other agents tell that run Claude Code's hooks, too."""
    agent = Agent(cli=direct.cli)
    assert await agent.runs("UserPromptSubmit", prompt="Hello.") == ""
    async with resident(settings_of(direct.cli)):
        for told in (b"{", b"[]", b"\xff", b"null", b'{"sessionId": "x", "prompt": 7, "cwd": "/gone"}'):
            assert await agent.runs("UserPromptSubmit", told) == ""
        assert await agent.runs("PreToolUse", tool_name="Bash") == ""
    shutil.rmtree(direct.home)
    for event in (one.event for one in known_agents.AGENT_HOOKS):
        assert await agent.runs(event, prompt="Hello.") == ""
    assert not direct.home.exists()


async def test_a_hook_whose_program_is_gone_blocks_nothing(direct: Direct, tmp_path: Path) -> None:
    gone = known_agents.make_hook_command("UserPromptSubmit", str(tmp_path / "gone" / "python"), direct.home)
    assert subprocess.run(gone, shell=True, capture_output=True, check=False).returncode == 0


@pytest.mark.req("CL-06")
async def test_ended_sessions_are_learned_from_at_the_next_start_and_open_ones_later(direct: Direct) -> None:
    (direct.home / hook.NOTED_SESSIONS_FILE).write_bytes(
        b'{"event": "Stop", "sess\n[]\n'
    )  # from a full disk, from somebody else
    failing = [row for number in range(4) for row in call(number, "pytest", "pytest: what?", fails=True)]
    transcript = await ended(direct.cli, "one", said("run the tests"), *failing)
    second = Agent(cli=direct.cli, session="two")
    direct.ok("learn", "pause")
    async with resident(settings_of(direct.cli)):
        await second.runs("SessionStart", source="startup")
    direct.ok("learn", "resume")
    assert direct.json("lessons", "list")["lessons"] == []
    async with resident(settings_of(direct.cli)):
        await second.runs("SessionStart", source="startup")
        await second.runs("Stop", transcript_path=str(transcript))
    assert "When the same error comes" in direct.ok("lessons", "list")
    assert json.loads((direct.home / hook.NOTED_SESSIONS_FILE).read_text())["session"] == "two"


@pytest.mark.req("LA-03")
async def test_a_procedure_of_three_noted_sessions_is_asked_about_once_unless_it_is_off(direct: Direct) -> None:
    async def release(version: str) -> None:
        commands = (f"git tag v{version}", f"git push origin v{version}", f"make announce VERSION={version}")
        rows = [row for number, command in enumerate(commands) for row in call(number, command, "ok")]
        await ended(direct.cli, version, said(f"release {version}"), *rows)
        async with resident(settings_of(direct.cli)):
            await Agent(cli=direct.cli, session="next").runs("SessionStart", source="startup")

    for version in ("1.4.0", "1.5.0"):
        await release(version)
    direct.ok("config", "set", "schedule.mine", "off")
    await release("2.0.0")
    assert direct.json("review", "list")["proposals"] == []
    direct.ok("config", "unset", "schedule.mine")
    for version in ("2.1.0", "3.0.0"):
        await release(version)
        (pending,) = json.loads(direct("review", "list", "--json").out)["proposals"]  # once, a reminder stands beside
        assert pending["reasons"][0] == "you did this 4 times; keep it as a skill?"
        assert "git push origin v${version}" in direct.ok("review", "show", str(pending["id"]))
    direct.ok("review", "reject", str(pending["id"]), "--reason", "not this")
    await release("3.1.0")
    assert direct.json("review", "list")["proposals"] == []


async def test_the_resident_process_ends_when_its_home_is_gone_or_another_holds_it(direct: Direct) -> None:
    settings = settings_of(direct.cli)
    async with resident(settings):
        assert (settings.home / "hooks.socket").stat().st_mode & 0o777 == 0o600
        await run_hook_daemon(settings)  # the second one finds the first
        request_stop(settings.home, HOOK_SERVER)
        async with resident(settings):
            pass  # another one begins while the first still ends
    await run_hook_daemon(settings, idle_s=0.01)
    assert not (settings.home / "hooks.socket").exists()


@pytest.mark.req("CL-06")
async def test_a_home_that_was_moved_is_not_made_again(direct: Direct) -> None:
    agent = Agent(cli=direct.cli)
    async with resident(settings_of(direct.cli)):
        await agent.runs("SessionStart", source="startup")
        await agent.runs("UserPromptSubmit", prompt="Run the tests.")
        direct.home.rename(direct.home.with_name("moved"))
        for event in (one.event for one in known_agents.AGENT_HOOKS):
            assert await agent.runs(event, prompt="Hello.", tool_name="Bash", error=NOT_FOUND) == ""
    assert not direct.home.exists()


@pytest.mark.req("CL-06")
async def test_hooks_do_not_wait_for_a_locked_database(direct: Direct) -> None:
    agent = Agent(cli=direct.cli)
    async with resident(settings_of(direct.cli)):
        await agent.runs("SessionStart", source="startup")
        with closing(sqlite3.connect(direct.home / "habitus.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            for event in (one.event for one in known_agents.AGENT_HOOKS):
                began = time.monotonic()
                await agent.runs(event, prompt="Run the tests.", tool_name="Bash", error=NOT_FOUND)
                assert time.monotonic() - began < 1, event


@pytest.mark.full
async def test_a_resident_process_that_does_not_answer_stops_nothing(
    direct: Direct, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(direct.home)
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(hook.SOCKET_FILE)
        deaf.listen()
        for event in (one.event for one in known_agents.AGENT_HOOKS):
            assert await Agent(cli=direct.cli).runs(event, prompt="Hello.") == ""


@pytest.mark.full
async def test_the_first_hook_of_a_session_starts_the_resident_process(direct: Direct) -> None:
    direct.ok("lessons", "add", "Never push to main by force.", "--kind", "never")
    agent = Agent(cli=direct.cli)
    assert "- Never push to main by force." in await agent.runs("SessionStart", source="startup")
    direct.home.rename(direct.home.with_name("moved"))
    while is_process_running(direct.home, HOOK_SERVER):  # it sees that within seconds
        await asyncio.sleep(0.1)


Row = dict[str, Any]


def said(text: str) -> Row:
    return {"type": "user", "message": {"role": "user", "content": text}}


def call(number: int, command: str, result: str, *, fails: bool = False) -> tuple[Row, Row]:
    """A call in a transcript of Claude Code, and what it came to."""
    use = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": command}}
    came = {"type": "tool_result", "tool_use_id": f"t{number}", "content": result, "is_error": fails}
    return (
        {"type": "assistant", "message": {"id": f"m{number}", "role": "assistant", "content": [use]}},
        {"type": "user", "message": {"role": "user", "content": [came]}},
    )


async def ended(cli: Cli, session: str, *rows: Row) -> Path:
    """A session that is over, as its hooks have noted it."""
    transcript = cli.user_home / f"{session}.jsonl"
    more = {"sessionId": session, "cwd": str(cli.cwd), "version": "2.1.240"}
    stamps = [f"2026-05-01T10:00:{number:02}.000Z" for number in range(len(rows))]
    lines = [json.dumps({**row, **more, "timestamp": at}) for row, at in zip(rows, stamps, strict=True)]
    transcript.write_text("".join(f"{line}\n" for line in lines))
    agent = Agent(cli=cli, session=session)
    await agent.runs("Stop", transcript_path=str(transcript))
    await agent.runs("SessionEnd", transcript_path=str(transcript))
    return transcript
