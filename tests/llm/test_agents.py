"""The person's own agent as a model: asked alone, read whole, and every way to fail one line with its hint."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import BaseModel

from habitus.errors import NotFound
from habitus.llm.agents import list_installed_programs, open_agent_model
from habitus.llm.agents.programs import PROGRAMS
from habitus.llm.model import (
    AssistantMessage,
    CompletionRequest,
    CompletionResult,
    ContextOverflowError,
    Image,
    PersonMessage,
    ProviderError,
    StopReason,
    TextContent,
    TokenUsage,
    ToolResultMessage,
    ToolSpec,
    fetch_answer,
)
from habitus.llm.structured import ask_structured
from tests.llm.agents import SAYS, claude, install

pytestmark = pytest.mark.req("IM-05")

QUESTION = (PersonMessage(parts=(TextContent(text="What is a skill?"),)),)


class Counted(BaseModel):
    input_tokens: int


READ = ToolSpec(name="read", description="Reads a file.", parameters={"type": "object"})


def environ(place: Path, **more: str) -> dict[str, str]:
    return {"PATH": f"{place}:{os.environ['PATH']}", "HOME": str(place / "person"), **more}


async def asked(
    name: str, place: Path, ask: CompletionRequest, *, patience_s: float = 60, **more: str
) -> CompletionResult:
    return await fetch_answer(open_agent_model(name, environ(place, **more), patience_s), ask)


async def test_every_program_is_asked_alone_and_its_usage_counted(tmp_path: Path) -> None:
    assert PROGRAMS.keys() == SAYS.keys()
    for name, says in SAYS.items():
        place = tmp_path / name
        program = install(place, name, says("Steps."))
        ask = CompletionRequest(system="Be brief.", messages=QUESTION)
        got = await asked(f"{name}:some-model", place, ask, CLAUDECODE="1", MY_SECRET="x", HABITUS_HOME="y")
        assert (got.message.text, got.stop) == ("Steps.", StopReason.END), name
        if name in ("copilot", "cursor-agent"):  # no file of usage here, and none at all
            assert got.usage.input_tokens > 0
            assert got.usage.output_tokens > 0
        else:
            assert (got.usage.input_tokens, got.usage.output_tokens, got.usage.cached_tokens) == (100, 7, 6), name
        if name in ("claude-code", "opencode", "pi"):
            assert got.usage.cost == 0.25
        seen = program.seen
        assert "some-model" in seen.arguments, name
        assert not {"CLAUDECODE", "MY_SECRET", "HABITUS_HOME"} & seen.environ.keys(), name
        assert (seen.files, Path(seen.cwd).exists()) == ([], False), name  # an empty folder, gone afterwards
        assert "What is a skill?" in seen.stdin + " ".join(seen.arguments), name
        assert [one.name for one in list_installed_programs({"PATH": str(place)})] == [name]


async def test_a_price_that_is_not_told_is_estimated(tmp_path: Path) -> None:
    install(tmp_path, "codex", SAYS["codex"]("Yes."))
    got = await asked("codex:gpt-5", tmp_path, CompletionRequest(system="", messages=QUESTION))
    assert got.usage.cost is not None
    assert got.usage.cost > 0


async def test_what_a_person_signed_in_with_is_linked_and_the_rest_of_their_settings_left_out(tmp_path: Path) -> None:
    theirs = tmp_path / "person" / ".codex"
    theirs.mkdir(parents=True)
    (theirs / "auth.json").write_text('{"tokens": "old"}')
    (theirs / "AGENTS.md").write_text("Call habitus first.")
    (theirs / "config.toml").write_text(
        'model = "gpt-5"\nmodel_provider = "mine"\nnotify = ["touch", "here"]\n'
        '[model_providers.mine]\nbase_url = "http://127.0.0.1:9/v1"\n[mcp_servers.habitus]\ncommand = "habitus"\n'
    )
    look = 'cp -rL "$CODEX_HOME" "$cd_seen/home"; echo new > "$CODEX_HOME/auth.json"'
    install(tmp_path, "codex", SAYS["codex"]("Yes."), then=look)
    await asked("codex", tmp_path, CompletionRequest(system="Be brief.", messages=QUESTION))
    given = tmp_path / "seen" / "home"
    assert (theirs / "auth.json").read_text() == "new\n"  # what it renews, it renews for the person
    assert sorted(path.name for path in given.iterdir()) == ["auth.json", "config.toml"]
    config = (given / "config.toml").read_text()
    assert '"base_url" = "http://127.0.0.1:9/v1"' in config
    assert "habitus" not in config.replace("habitus-ask-", "")
    assert "notify" not in config


@pytest.mark.parametrize(
    ("output", "code", "error", "said"),
    [
        (claude("Not logged in · Please run /login", is_error=True), 1, "", "type /login."),
        (claude("OAuth token has expired", is_error=True), 1, "", "is not signed in, or no longer"),
        (claude("API Error: Request rejected (429) · limit", is_error=True), 1, "", "has reached a limit"),
        (claude("You've hit your limit · resets 5pm", is_error=True), 1, "", "Wait until it is over"),
        ("", 1, "error: unknown option '--safe-mode'", "Bring it up to date: npm install -g @anthropic-ai/claude-code"),
        (claude("There's an issue with the selected model (x). It may not exist", is_error=True), 1, "", ":MODEL"),
        ("", 0, "", "gave no answer: nothing, with exit code 0. Try it by hand: claude"),
        ("Segmentation fault", 139, "", "gave no answer: Segmentation fault."),
        (claude(""), 0, "", "gave no answer"),
    ],
)
async def test_a_failure_is_one_line_with_its_hint(
    tmp_path: Path, output: str, code: int, error: str, said: str
) -> None:
    install(tmp_path, "claude-code", output, code=code, error=error)
    with pytest.raises(ProviderError, match="Claude Code") as caught:
        await asked("claude-code", tmp_path, CompletionRequest(system="", messages=QUESTION))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_too_long_a_request_a_program_that_hangs_and_one_that_is_missing(tmp_path: Path) -> None:
    ask = CompletionRequest(system="", messages=QUESTION)
    install(tmp_path, "claude-code", claude("Prompt is too long", is_error=True), code=1)
    with pytest.raises(ContextOverflowError):
        await asked("claude-code", tmp_path, ask)
    install(tmp_path, "copilot", SAYS["copilot"]("Yes."))
    with pytest.raises(ContextOverflowError, match="command line"):
        await asked("copilot", tmp_path, CompletionRequest(system="x" * 3_000_000, messages=QUESTION))
    install(tmp_path, "pi", then='sleep 600 & echo $! > "$cd_seen/pid"; wait')
    pid = tmp_path / "seen" / "pid"
    patience_s = 1
    while not pid.exists() and patience_s < 60:  # on a busy machine it begins late
        said = rf"Pi gave no answer in {patience_s} seconds\. Set model_silence higher"
        with pytest.raises(ProviderError, match=said):
            await asked("pi", tmp_path, ask, patience_s=patience_s)
        patience_s *= 3
    child = Path("/proc", pid.read_text().strip(), "status")
    assert not child.exists() or "zombie" in child.read_text()  # nothing that it started goes on
    with pytest.raises(NotFound, match=r"Codex is not here.*Install it: npm install -g @openai/codex"):
        open_agent_model("codex", {"PATH": str(tmp_path)}, 60)


async def test_calls_travel_as_one_json_answer_a_round(tmp_path: Path) -> None:
    calls = '{"text": "Let me look.", "calls": [{"tool": "read", "arguments": {"path": "a.csv"}}]}'
    program = install(tmp_path, "claude-code", claude("Sure!"), claude(f"```json\n{calls}\n```"))
    got = await asked("claude-code", tmp_path, CompletionRequest(system="Be brief.", messages=QUESTION, tools=(READ,)))
    (call,) = got.message.calls
    assert (got.stop, got.message.text, call.name, call.arguments) == (
        *(StopReason.CALLS, "Let me look.", "read"),
        '{"path": "a.csv"}',
    )
    assert (program.times, got.usage.input_tokens, got.usage.cost) == (2, 200, 0.5)  # the first was not JSON

    done = ToolResultMessage(call="c1", tool="read", content="1,2", images=(Image(data=b"x", media_type="image/png"),))
    talk = (*QUESTION, AssistantMessage(text=got.message.text, calls=got.message.calls), done)
    install(tmp_path, "claude-code", claude('{"text": "Two."}'))
    got = await asked("claude-code", tmp_path, CompletionRequest(system="", messages=talk, tools=(READ,)))
    assert (got.message, got.stop) == (AssistantMessage(text="Two."), StopReason.END)
    assert "<result>\nread (c1):\n1,2\n[An image, which can't be shown here.]\n</result>" in program.seen.stdin


async def test_a_round_that_never_is_json_is_the_programs_fault(tmp_path: Path) -> None:
    install(tmp_path, "claude-code", claude("I would rather talk."))
    with pytest.raises(ProviderError, match="name a stronger model: claude-code:MODEL"):
        await asked("claude-code", tmp_path, CompletionRequest(system="", messages=QUESTION, tools=(READ,)))


async def test_an_answer_of_a_shape_has_its_schema_in_the_request(tmp_path: Path) -> None:
    look = 'for each in "$@"; do case "$each" in *system.md) cp "$each" "$cd_seen/system";; esac; done'
    install(tmp_path, "claude-code", claude('{"input_tokens": 3}'), then=look)

    model = open_agent_model("claude-code", environ(tmp_path), 60)
    got = await ask_structured(model, Counted, system="Count.", messages=QUESTION)
    assert got.value.input_tokens == 3
    assert '"input_tokens"' in (tmp_path / "seen" / "system").read_text()
    assert got.usage == TokenUsage(input_tokens=100, output_tokens=7, cached_tokens=6, cost=0.25)
