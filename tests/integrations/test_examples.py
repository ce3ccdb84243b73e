"""The examples, as a reader would run them: the real SDKs against a provider on loopback."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from habitus.app import Habitus, read_settings
from habitus.events import OutcomeKind
from habitus.journal.model import SkillPlacementKind
from habitus.journal.usage import get_deciding_or_heaviest_outcome
from habitus.skills.model import Skill
from tests.conftest import Cli
from tests.fake_provider import FakeProvider, Reply, fake_provider

EXAMPLES = Path(__file__).parents[2] / "examples"
QUESTION = "What time is it, in tea time?"


def replied(body: object) -> Reply:
    return Reply(headers={"Content-Type": "application/json"}, body=json.dumps(body).encode())


def by_anthropic(call: tuple[str, Mapping[str, object]] | None, text: str = "") -> Reply:
    use = {"type": "tool_use", "id": f"id-{call[0]}", "name": call[0], "input": call[1]} if call else None
    return replied(
        {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "claude",
            "content": [use or {"type": "text", "text": text}],
            "stop_reason": "tool_use" if call else "end_turn",
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
    )


def by_openai(call: tuple[str, Mapping[str, object]] | None, text: str = "") -> Reply:
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if call:
        function = {"name": call[0], "arguments": json.dumps(call[1])}
        message["tool_calls"] = [{"id": f"id-{call[0]}", "type": "function", "function": function}]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if call else "stop"}
    return replied({"id": "c", "object": "chat.completion", "created": 1, "model": "gpt", "choices": [choice]})


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch, home: Path, tmp_path: Path) -> Iterator[FakeProvider]:
    with fake_provider() as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.address)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.address}/v1")
        for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
            monkeypatch.setenv(name, "not-a-key")
        monkeypatch.setenv("HABITUS_HOME", str(home))
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.chdir(tmp_path)
        yield server


@pytest.mark.some(1)
@pytest.mark.req("CL-07")
@pytest.mark.parametrize(
    ("example", "answer"),
    [("pydantic_ai_agent", by_openai), ("anthropic_loop", by_anthropic), ("openai_loop", by_openai)],
)
def test_an_example_runs_and_its_turn_is_journalled(
    example: str,
    answer: Callable[..., Reply],
    provider: FakeProvider,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        habitus.skills.create(
            Skill(name="tea-time", description="What tea time is", body="1. At five."), habitus.build_author()
        )
    provider.gives(answer(("recall_skill", {"name": "tea-time"})), answer(("clock", {})), answer(None, "Nearly."))
    monkeypatch.setattr(sys, "argv", [example, QUESTION])
    runpy.run_path(str(EXAMPLES / f"{example}.py"), run_name="__main__")
    assert capsys.readouterr().out == "Nearly.\n"
    first, second, third = [json.dumps(request.body) for request in provider.requests]
    assert "tea-time" in first
    assert '"clock"' in first
    assert "1. At five." in second
    assert "id-clock" in third
    with Habitus.open(read_settings(home)) as habitus:
        (session,) = habitus.journal.list_sessions()
        (turn,) = habitus.journal.list_session_turns(session.id)
    assert turn.request == QUESTION
    assert ("tea-time", SkillPlacementKind.LOADED) in {(entry.name, entry.place) for entry in turn.selected}
    judged = get_deciding_or_heaviest_outcome(turn.outcomes)
    assert judged is not None
    assert judged.kind is OutcomeKind.OK


@pytest.mark.req("CL-07")
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_short_and_little_of_it_is_ours(path: Path) -> None:
    lines = path.read_text().splitlines()
    ours = [line for line in lines if "habitus" in line.lower() or "turn." in line]
    assert len(lines) <= 25
    assert len(ours) <= 10


@pytest.mark.req("CL-05")
def test_the_client_over_mcp_finds_a_skill(run_cli: Cli, program: Path, python: str) -> None:
    environ = run_cli.environ({"PATH": f"{program.parent}:{os.environ['PATH']}"})
    example = [python, str(EXAMPLES / "mcp_client.py"), "summarise a CSV"]
    done = subprocess.run(example, cwd=run_cli.cwd, env=environ, capture_output=True, text=True, check=True)
    offered, *found = done.stdout.splitlines()
    assert "recall_skill" in offered
    assert "- data-summary" in "\n".join(found)
