"""Real programs of agents, from the package registry, against a provider on loopback."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from habitus.learning.transcripts.formats.registry import read_transcripts
from habitus.llm.agents import open_agent_model
from habitus.llm.agents.program import AgentProgramPrompt
from habitus.llm.agents.running import run_program_and_parse_answer
from habitus.llm.agents.solvers import find_solver_program
from habitus.llm.model import CompletionRequest, PersonMessage, ProviderError, TextContent, fetch_answer
from tests import npm
from tests.fake_provider import FakeProvider, Reply, fails
from tests.llm.recordings import chat_text, google_text, openai_text

pytestmark = [pytest.mark.full, pytest.mark.req("IM-05")]

PACKAGES = {
    "codex": "@openai/codex",
    "gemini-cli": "@google/gemini-cli",
    "opencode": "opencode-ai@1.18.18",  # published whole for every machine
    "copilot": "@github/copilot",
    "pi": "@mariozechner/pi-coding-agent@0.73",  # the last for Node 20
}
SAYS: dict[str, Callable[[str], Reply]] = {"codex": openai_text, "gemini-cli": google_text}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Where an agent's program is, installed once and apart from the others."""
    return functools.cache(lambda name: npm.install(tmp_path_factory.mktemp(name), PACKAGES[name]))


def furnished(name: str, person: Path, address: str) -> dict[str, str]:
    """A person who uses the agent with the provider at `address`, and has it run `touch LOOPED` as a server."""
    looped = {"command": "touch", "args": [str(person / "LOOPED")]}
    model = {"id": "m", "name": "m", "cost": {"input": 1, "output": 2, "cacheRead": 0, "cacheWrite": 0}}
    match name:
        case "codex":
            written = (
                f'model = "m"\nmodel_provider = "here"\nnotify = ["touch", "{person}/LOOPED"]\n[model_providers.here]\n'
                f'name = "here"\nbase_url = "{address}/v1"\nenv_key = "OPENAI_API_KEY"\nrequest_max_retries = 1\n'
                f'stream_max_retries = 1\n[mcp_servers.habitus]\ncommand = "touch"\nargs = ["{person}/LOOPED"]\n'
            )
            _write(person / ".codex" / "config.toml", written)
            _write(person / ".codex" / "AGENTS.md", "PRIVATE MEMORY")
            return {"OPENAI_API_KEY": "none"}
        case "gemini-cli":
            _write(person / ".gemini" / "settings.json", json.dumps({"mcpServers": {"habitus": looped}}))
            _write(person / ".gemini" / "GEMINI.md", "PRIVATE MEMORY")
            return {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": address, "GEMINI_MODEL": "gemini-2.5-flash"}
        case "opencode":
            at = {"baseURL": f"{address}/v1", "apiKey": "none"}
            models = {"m": {"name": "m", "cost": {"input": 1, "output": 2}}}
            here = {"npm": "@ai-sdk/openai-compatible", "options": at, "models": models}
            server = {"type": "local", "command": ["touch", str(person / "LOOPED")]}
            config = {"provider": {"here": here}, "model": "here/m", "mcp": {"habitus": server}}
            _write(person / ".config" / "opencode" / "opencode.json", json.dumps(config))
            _write(person / ".config" / "opencode" / "AGENTS.md", "PRIVATE MEMORY")
            return {}
        case "copilot":
            _write(person / ".copilot" / "mcp-config.json", json.dumps({"mcpServers": {"habitus": looped}}))
            given = {"BASE_URL": f"{address}/v1", "TYPE": "openai", "API_KEY": "none"}
            named = {f"COPILOT_PROVIDER_{key}": value for key, value in given.items()}
            return {**named, "COPILOT_MODEL": "m", "COPILOT_OFFLINE": "true"}
        case _:
            whole = {**model, "input": ["text"], "contextWindow": 100_000, "maxTokens": 4_000, "reasoning": False}
            mine = {"baseUrl": f"{address}/v1", "api": "openai-completions", "apiKey": "none", "models": [whole]}
            _write(person / ".pi" / "agent" / "models.json", json.dumps({"providers": {"here": mine}}))
            _write(person / ".pi" / "agent" / "settings.json", '{"defaultProvider": "here", "defaultModel": "m"}')
            _write(person / ".pi" / "agent" / "AGENTS.md", "PRIVATE MEMORY")
            return {}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize("name", PACKAGES)
async def test_a_real_program_answers_alone_leaves_no_transcript_and_says_what_is_wrong(
    programs: Callable[[str], Path], provider: FakeProvider, tmp_path: Path, name: str
) -> None:
    person = tmp_path / "person"
    given = furnished(name, person, provider.address)
    environ = {
        "PATH": f"{programs(name)}:{os.environ['PATH']}",
        "HOME": str(person),
        "SECRET": "PRIVATE MEMORY",
        **given,
    }
    provider.gives(SAYS.get(name, chat_text)("Steps."))
    model = open_agent_model(name, environ, 240)
    got = await fetch_answer(
        model,
        CompletionRequest(system="BE BRIEF", messages=(PersonMessage(parts=(TextContent(text="What is a skill?"),)),)),
    )
    assert (got.message.text, got.usage.input_tokens, got.usage.output_tokens) == ("Steps.", 50, 7)
    sent = json.dumps([each.body for each in provider.requests])
    assert "BE BRIEF" in sent
    assert "What is a skill?" in sent
    assert "PRIVATE MEMORY" not in sent
    assert len(provider.requests) == 1
    assert not (person / "LOOPED").exists()
    left = {str(path.relative_to(person)) for path in person.rglob("*") if path.is_file()}
    assert not [path for path in left if path.endswith((".jsonl", ".db"))], left

    provider.gives(fails(401, {"error": {"type": "authentication_error", "message": "invalid api key", "code": 401}}))
    with pytest.raises(ProviderError, match="is not signed in, or no longer"):
        await fetch_answer(
            model, CompletionRequest(system="", messages=(PersonMessage(parts=(TextContent(text="x"),)),))
        )


@pytest.mark.req("IM-04")
@pytest.mark.parametrize("name", PACKAGES)
async def test_a_real_program_solves_with_one_skill_and_writes_down_where_we_look(
    programs: Callable[[str], Path], provider: FakeProvider, tmp_path: Path, name: str
) -> None:
    person, room = tmp_path / "person", tmp_path / "room"
    given = furnished(name, person, provider.address)
    environ = {"PATH": f"{programs(name)}:{os.environ['PATH']}", "HOME": str(person), **given}
    provider.gives(SAYS.get(name, chat_text)("ALTBERG"))
    solver = find_solver_program(name)
    question = AgentProgramPrompt(system="", prompt="Which town is it?", model="", workspace=room, environ=environ)
    call = solver.build_call(question)
    _write(
        room / solver.skills / "name-a-town" / "SKILL.md", "---\nname: name-a-town\ndescription: UNMISTAKABLE\n---\nx\n"
    )
    (room / "work").mkdir()
    said = await run_program_and_parse_answer(solver.program, question, call, room / "work", 240)
    assert said.text == "ALTBERG"
    sent = json.dumps([each.body for each in provider.requests])
    assert "UNMISTAKABLE" in sent
    assert "PRIVATE MEMORY" not in sent
    assert not (person / "LOOPED").exists()
    (written,) = room.glob(solver.transcripts)
    (transcript,) = read_transcripts(written)
    assert "Which town is it?" in [said.text for turn in transcript.turns for said in turn.utterances]


@pytest.mark.req("CL-09")
def test_gemini_takes_our_plugin_as_an_extension(programs: Callable[[str], Path], tmp_path: Path) -> None:
    plugin = Path(__file__).parents[2] / "plugin"
    command = [str(programs("gemini-cli") / "gemini"), "extensions", "validate", str(plugin)]
    done = subprocess.run(
        command, env={**os.environ, "HOME": str(tmp_path)}, capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert "successfully validated" in done.stdout + done.stderr
