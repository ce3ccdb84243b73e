"""A person with Claude Code and no key: what asks a model asks that, as commands are typed."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from habitus.events import OutcomeKind
from habitus.skills.choosing.evals import FailedStageTrialStore
from habitus.tasks.files import serialize_task
from tests.cli.conftest import Direct
from tests.cli.pseudo_terminal import at_a_terminal
from tests.cli.test_climb import DRAFT as CODE_DRAFT
from tests.cli.test_climb import followed, opened, taught
from tests.conftest import Cli
from tests.fake_provider import FakeProvider, fails, fake_provider
from tests.learning.dream.test_dreaming import _RIGHT, CHALLENGE
from tests.llm.agents import FakeProgram, claude, install
from tests.llm.recordings import anthropic_text

pytestmark = pytest.mark.req("IM-05")

NO_SERVERS = dict.fromkeys(("OLLAMA_HOST", "LLAMACPP_BASE_URL", "VLLM_BASE_URL"), "127.0.0.1:9")
DRAFT = {
    "label": "join_tables",
    "name": "Join tables",
    "when_to_use": "Tables are joined",
    "declarative_md": "1. Look for blanks in both keys.\n2. Join.",
}


def path_to(program: FakeProgram) -> dict[str, str]:
    return {"PATH": f"{program.place}:{os.environ['PATH']}", **NO_SERVERS}


def test_our_own_agent_works_with_it_and_a_chat_does_not(direct: Direct) -> None:
    calls = {"calls": [{"tool": "recall_skill", "arguments": {"name": "review-a-change"}}]}
    fake = install(
        direct.cli.cwd / "bin", "claude-code", claude(json.dumps(calls)), claude('{"text": "By reading it."}')
    )
    env = {**path_to(fake), "HABITUS_MODEL": "claude-code:opus"}
    assert direct("chat", "How do I review a change?", env=env).out == "By reading it.\n"
    assert "# Skill: review-a-change" in fake.seen.stdin
    assert fake.seen.arguments[-2:] == ["--model", "opus"]

    refused = direct("chat", env=env)
    assert (refused.code, refused.err) == (
        1,
        "habitus: Claude Code can be the model for learning, drafting and improving, not for a chat. To chat, use "
        "Claude Code itself with our server: habitus connect claude-code, or set another: --model provider:model.\n",
    )
    told = claude("I read it."), claude("[1, 2]"), claude('"yes"')
    fake = install(direct.cli.cwd / "bin", "claude-code", *told)
    plain = direct("chat", "How do I review a change?", env=env)
    assert plain.code == 1
    assert "malformed answer: the answer: Input should be a JSON object" in plain.err
    assert "_TextAndToolCallsAnswer" not in plain.err
    near = direct("chat", "x", "--model", "claude-coed", env=env)
    assert near.err == "habitus: 'claude-coed' names no provider. Did you mean 'claude-code'?\n"
    found = {check["name"]: check for check in direct.json("doctor", env=env)["checks"]}
    assert found["model"]["detail"] == "claude-code:opus"
    assert "Claude Code (claude-code)" in found["agents as models"]["detail"]


def test_its_faults_are_infra_and_no_failure_of_a_skill(direct: Direct) -> None:
    id = taught(direct, verified=False)
    for said, code in ((claude("Not logged in · Please run /login", is_error=True), 1), (claude("Hm."), 0)):
        env = path_to(install(direct.cli.cwd / "bin", "claude-code", said, code=code))
        ran = direct("chat", "Sum up.", "--model", "claude-code", env=env)
        assert ran.code == 1
        promoted = direct("lessons", "promote", id, "--model", "claude-code", env=env)
        assert (promoted.code, "Not proposed: " in promoted.out) == (1, True)
    with opened(direct) as habitus:
        kinds = [
            outcome.kind
            for session in habitus.journal.list_session_ids()
            for turn in habitus.journal.list_session_turns(session)
            for outcome in turn.outcomes
            if turn.request == "Sum up."
        ]
        assert kinds == [OutcomeKind.INFRA] * 2
        assert not FailedStageTrialStore(habitus.shared, habitus.clock).list_all_failure_reasons()


def test_who_has_no_model_is_offered_the_agent_that_is_here(run_cli: Cli) -> None:
    fake = install(run_cli.cwd / "bin", "claude-code", claude('{"text": "By reading it."}'))
    env = run_cli.environ(path_to(fake))
    command = [*run_cli.program, "chat", "How?"]
    with at_a_terminal(command, env=env, cwd=run_cli.cwd, columns=200) as terminal:
        terminal.wait_for("No model is set. Use Claude Code, which is installed? [y/N]: ")
        terminal.type("y\r")
        terminal.wait_for("To make it permanent: habitus config set model claude-code")
        terminal.wait_for("By reading it.")
        assert terminal.ended() == 0
    told = run_cli("chat", "How?", env=path_to(fake)).err
    assert "  Or use Claude Code, which is installed: export HABITUS_MODEL=claude-code\n" in told


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with fake_provider() as provider:
        yield provider


@pytest.fixture
def real(direct: Direct, provider: FakeProvider) -> dict[str, str]:
    """The environment of a person with Claude Code itself, which has our hooks, our server and a memory of its own."""
    found = importlib.util.find_spec("claude_agent_sdk")
    binary = Path(found.origin).parent / "_bundled" / "claude" if found and found.origin else None
    if binary is None or not binary.exists():
        pytest.skip("there is no Claude Code (pip install --no-deps claude-agent-sdk)")
    (bin := direct.cli.cwd / "bin").mkdir()
    (bin / "claude").symlink_to(binary)
    person = direct.cli.user_home
    (person / ".claude").mkdir()
    touch = [{"hooks": [{"type": "command", "command": f"touch {person}/LOOPED"}]}]
    events = ("SessionStart", "UserPromptSubmit", "Stop", "SessionEnd")
    (person / ".claude" / "settings.json").write_text(json.dumps({"hooks": dict.fromkeys(events, touch)}))
    server = {"type": "stdio", "command": "touch", "args": [f"{person}/LOOPED"]}
    (person / ".claude.json").write_text(json.dumps({"mcpServers": {"habitus": server}}))
    (person / ".claude" / "CLAUDE.md").write_text("PRIVATE MEMORY")
    return {
        "PATH": f"{bin}:{os.environ['PATH']}",
        "ANTHROPIC_BASE_URL": provider.address,
        "ANTHROPIC_API_KEY": "",
        "ANTHROPIC_AUTH_TOKEN": "none",
        **NO_SERVERS,
    }


def test_the_real_claude_code_drafts_a_skill_and_nothing_loops_back(
    direct: Direct, provider: FakeProvider, real: dict[str, str]
) -> None:
    id = taught(direct, verified=False)
    provider.gives(anthropic_text(json.dumps(DRAFT)))
    said = direct("lessons", "promote", id, "--model", "claude-code:claude-sonnet-4-5", env=real).out
    assert "Pending review: " in said, said
    assert direct.json("review", "list")["proposals"][0]["name"] == "join-tables"
    asked = [each.body for each in provider.requests if "/messages" in each.path and "count" not in each.path]
    assert len(asked) == 1
    assert (asked[0]["tools"], asked[0]["model"]) == ([], "claude-sonnet-4-5")
    assert "PRIVATE MEMORY" not in json.dumps(asked[0])
    person = direct.cli.user_home
    assert not (person / "LOOPED").exists()
    assert not list((person / ".claude").rglob("*.jsonl"))  # nothing for `learn` to read


@pytest.mark.full
def test_with_the_real_claude_code_and_no_key_a_skill_is_drafted_a_challenge_dreamt_and_a_step_climbed(
    direct: Direct, provider: FakeProvider, real: dict[str, str]
) -> None:
    model = ("--model", "claude-code:claude-sonnet-4-5")
    provider.gives(anthropic_text(json.dumps(DRAFT)))
    direct("lessons", "promote", taught(direct, verified=False), *model, env=real)
    direct.ok("review", "approve", str(direct.json("review", "list")["proposals"][0]["id"]))
    assert direct.json("skills", "show", "join-tables")["name"] == "join-tables"
    followed(direct)
    provider.gives(anthropic_text(json.dumps(CODE_DRAFT)))
    assert direct("skills", "climb", "add-up", *model, env=real).code == 0
    direct.ok("review", "approve", str(direct.json("review", "list")["proposals"][0]["id"]))
    assert direct.ok("tools", "run", "add-up", '{"numbers": [20, 22]}') == "42\n"
    file = direct.cli.cwd / "challenge.toml"
    file.write_text(serialize_task(CHALLENGE))
    call = {"tool": "scratchpad", "arguments": {"action": "exec", "name": "challenge", "code": _RIGHT}}
    provider.gives(anthropic_text(json.dumps({"calls": [call]})), anthropic_text('{"text": "Done."}'))
    dreamt = direct.ok("learn", "dream", *model, "--challenges", str(file), env=real)
    assert "nothing to learn (it was solved at once)" in dreamt
    assert '"a,b"' not in json.dumps([each.body for each in provider.requests])
    provider.gives(fails(401, {"type": "error", "error": {"type": "authentication_error", "message": "invalid token"}}))
    failed = direct("chat", "x", "--model", "claude-code", env=real)
    assert failed.code == 1
    assert "Claude Code is not signed in, or no longer: " in failed.out + failed.err
