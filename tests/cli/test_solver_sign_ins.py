"""The sign-in of a solver program: its copy in the box, which can't be renewed, and the provider that it reaches."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from habitus.app.operating.housekeeping import run_due_housekeeping
from habitus.errors import Refused
from habitus.llm.agents.program import AgentProgramPrompt
from habitus.llm.agents.sign_ins import copy_sign_in_without_refresh_token
from habitus.llm.agents.solvers import find_solver_program
from tests.cli.conftest import Direct
from tests.cli.test_climb import opened
from tests.cli.test_improve_solver import BOXED, furnish, put_program, rollouts
from tests.llm.agents import SAYS


def token(**claims: Any) -> str:
    """A token that says whose it is, as OpenID Connect has it."""
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.{claims.get('n', 0)}"


SOON, LATER = 60.0, 90_000.0


def sign_ins(agent: str, *, lasts: float = LATER, number: int = 1, who: str = "me") -> dict[str, Any]:
    """The sign-in of an agent, renewed `number` times."""
    expires = int((time.time() + lasts) * 1000)
    oauth = {"type": "oauth", "access": f"a{number}", "refresh": f"r{number}", "expires": expires}
    claims = {"n": number, "exp": expires // 1000, "sub": who, "https://api.openai.com/auth": {"user_id": who}}
    match agent:
        case "claude-code":
            said = {"accessToken": f"a{number}", "refreshToken": f"r{number}", "expiresAt": expires, "scopes": ["x"]}
            return {"claudeAiOauth": said}
        case "codex":
            tokens = {"id_token": token(**claims), "access_token": token(**claims), "refresh_token": f"r{number}"}
            return {"OPENAI_API_KEY": None, "tokens": {**tokens, "account_id": who}, "last_refresh": f"2026-{number}"}
        case "opencode":
            return {"openai": {**oauth, "access": token(**claims), "accountId": who}}
        case "pi":
            return {"openai-codex": {**oauth, "accountId": who}}
        case _:
            return {"access_token": f"a{number}", "expiry_date": expires, "token_type": "Bearer"}


FILES = {
    "claude-code": ".claude/.credentials.json",
    "codex": ".codex/auth.json",
    "opencode": ".local/share/opencode/auth.json",
    "pi": ".pi/agent/auth.json",
    "gemini-cli": ".gemini/oauth_creds.json",
}
ROTATING = ("claude-code", "codex", "opencode", "pi")


def sign_in(home: Path, agent: str, said: dict[str, Any]) -> Path:
    file = home / FILES[agent]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(said))
    return file


OTHERS = {"groq": {"type": "api_key", "key": "MINE"}, "mcpOAuth": {"x": {"accessToken": "MINE"}}}
SOLVER = {"pi": "pi:openai-codex/m", "opencode": "opencode:openai/m"}


def put_renewing_program(direct: Direct, agent: str, then: str = "") -> dict[str, str]:
    """Install a program that fails if it can renew its sign-in, replaces it by another account's, and answers."""
    solver = find_solver_program(agent)
    script = f"""copy="$HOME/{solver.sign_in}"
grep -rqE '"r1"|MINE' "$HOME" && exit 3
grep -qE '"a1"|e30[.]' "$copy" && [ ! -L "$copy" ] || exit 4
rm "$copy"; cat > "$copy" <<'END'\n{json.dumps(sign_ins(agent, number=2, who="somebody else"))}\nEND
{then}
cat <<'END'\n{SAYS[agent]("ALTBERG")}\nEND"""
    return put_program(direct, script, solver.program.command)


@BOXED
@pytest.mark.req("IM-10")
@pytest.mark.parametrize("agent", ROTATING)
def test_a_solver_can_use_a_sign_in_and_neither_renew_nor_replace_it(direct: Direct, agent: str) -> None:
    command = furnish(direct)
    file = sign_in(direct.cli.user_home, agent, mine := sign_ins(agent) | ({} if agent == "codex" else OTHERS))
    env = put_renewing_program(direct, agent)
    said = direct(*command, "--solver", SOLVER.get(agent, agent), "--budget", "$5", env=env)
    assert rollouts(direct)["say", True].outcome == "ok", said
    assert json.loads(file.read_text()) == mine


@BOXED
@pytest.mark.req("IM-10")
@pytest.mark.parametrize("agent", ROTATING)
def test_a_killed_run_beside_another_leaves_the_sign_in_as_the_person_has_renewed_it(
    direct: Direct, agent: str, tmp_path: Path
) -> None:
    command, folders = furnish(direct), direct.cli.user_home / ".cache" / "habitus"
    file = sign_in(direct.cli.user_home, agent, sign_ins(agent))
    env = direct.cli.environ(put_renewing_program(direct, agent, 'touch "$HOME/replaced"; sleep 3219'))
    run = [*direct.cli.command, *command, "--solver", SOLVER.get(agent, agent), "--budget", "$5"]
    output = tmp_path / "output"
    with output.open("wb") as out, subprocess.Popen(run, cwd=direct.cli.cwd, env=env, stdout=out, stderr=out) as killed:
        while not (left := [*folders.glob("habitus-ask-*/room/replaced")]):
            assert killed.poll() is None, output.read_text()
            time.sleep(0.02)
        file.write_text(json.dumps(renewed := sign_ins(agent, number=3)))
        # A second run has what the person has now.
        assert _copy(direct.cli.user_home, tmp_path / "room", agent) == _without_refresh_tokens(renewed)
        killed.kill()
    assert json.loads(file.read_text()) == renewed
    os.utime(left[0].parents[1], (0, 0))
    with opened(direct) as habitus:
        run_due_housekeeping(habitus)
    assert not left[0].exists()
    assert json.loads(file.read_text()) == renewed


def _copy(home: Path, room: Path, agent: str) -> Any:
    """Return the sign-in that a run of the agent gets."""
    solver, model = find_solver_program(agent), SOLVER.get(agent, "").partition(":")[2]
    question = AgentProgramPrompt(system="", prompt="x", model=model, workspace=room, environ={"HOME": str(home)})
    room.mkdir()
    solver.build_call(question)
    copy_sign_in_without_refresh_token(solver, question, datetime.now(UTC), timedelta(minutes=10))
    return json.loads((room / solver.sign_in).read_text())


def _without_refresh_tokens(said: dict[str, Any]) -> dict[str, Any]:
    """Return a sign-in with empty refresh tokens, renewed at any time."""
    part = {key: _without_refresh_tokens(value) if isinstance(value, dict) else value for key, value in said.items()}
    empty = dict.fromkeys({"refresh", "refreshToken", "refresh_token"} & part.keys(), "")
    return part | empty | dict.fromkeys({"last_refresh"} & part.keys(), ANY)


@pytest.mark.req("IM-10")
@pytest.mark.parametrize("agent", ["gemini-cli", "pi:github-copilot/m", "opencode:github-copilot/m"])
def test_a_sign_in_whose_renewal_replaces_nothing_is_renewed_in_the_copy(tmp_path: Path, agent: str) -> None:
    name, _, model = agent.partition(":")
    past = int((time.time() - 60) * 1000)
    mine: dict[str, Any] = {"access_token": "a", "refresh_token": "r", "expiry_date": past}
    if model:
        mine = {"github-copilot": {"type": "oauth", "access": "a", "refresh": "r", "expires": past}}
    sign_in(tmp_path, name, mine)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SOLVER, name, agent)
        assert _copy(tmp_path, tmp_path / "room", name) == mine


@BOXED
@pytest.mark.req("IM-10")
def test_a_file_of_variables_grants_no_more_than_the_environment(direct: Direct) -> None:
    command = furnish(direct)
    sign_in(direct.cli.user_home, "gemini-cli", sign_ins("gemini-cli"))
    (direct.cli.user_home / ".gemini/.env").write_text("GEMINI_API_KEY=k\nexport AWS_SECRET_ACCESS_KEY=MINE\nX=MINE\n")
    script = f"""grep -rq MINE "$HOME" && exit 3\ngrep -q GEMINI_API_KEY=k "$HOME/.gemini/.env" || exit 4
cat <<'END'\n{SAYS["gemini-cli"]("ALTBERG")}\nEND"""
    said = direct(*command, "--solver", "gemini-cli", "--budget", "$5", env=put_program(direct, script, "gemini"))
    assert rollouts(direct)["say", True].outcome == "ok", said


@pytest.mark.req("IM-10")
@pytest.mark.parametrize("agent", FILES)
def test_a_sign_in_that_expires_during_the_run_is_refused_before_it(direct: Direct, agent: str) -> None:
    command = furnish(direct)
    file = sign_in(direct.cli.user_home, agent, said := sign_ins(agent, lasts=SOON))
    program = find_solver_program(agent).program
    env = put_program(direct, f"cat <<'END'\n{SAYS[agent]('ALTBERG')}\nEND", program.command)
    refused = direct(*command, "--solver", agent, "--budget", "$5", env=env)
    assert (refused.code, f"The sign-in of {program.title} expires during the run" in refused.err) == (1, True)
    # So is one that lasts longer than a rollout, but not as long as the run may take.
    file.write_text(json.dumps(said := sign_ins(agent, lasts=1_800)))
    assert direct(*command, "--solver", agent, "--budget", "40m", env=env).code == 1
    assert rollouts(direct) == {}
    assert json.loads(file.read_text()) == said


OAUTH = {"type": "oauth", "access": "a", "refresh": "r", "expires": int((time.time() + LATER) * 1000)}
UNSUPPORTED: list[tuple[str, dict[str, str], dict[str, str], str]] = [
    ("opencode:anthropic/m", {FILES["opencode"]: json.dumps({"anthropic": OAUTH})}, {}, "signed in at 'anthropic'"),
    ("opencode", {FILES["opencode"]: json.dumps({"google": OAUTH})}, {}, "signed in at 'google'"),
    ("opencode", {FILES["opencode"]: json.dumps({"poe": OAUTH})}, {}, "signed in at 'poe'"),
    (
        "opencode",
        {FILES["opencode"]: '{"https://a": {"type": "wellknown"}}'},
        {},
        "address of 'https://a' is not known",
    ),
    ("pi", {FILES["pi"]: json.dumps({"google-gemini-cli": OAUTH})}, {}, "signed in at 'google-gemini-cli'"),
    ("claude-code", {}, {"CLAUDE_CODE_USE_BEDROCK": "1"}, "sign-in of a cloud (CLAUDE_CODE_USE_BEDROCK)"),
    ("claude-code", {".claude.json": '{"primaryApiKey": "k"}'}, {}, "has its key in .claude.json"),
    ("claude-code", {".claude/settings.json": '{"apiKeyHelper": "x"}'}, {}, "from its apiKeyHelper"),
    ("codex", {".codex/config.toml": 'cli_auth_credentials_store = "keyring"'}, {}, "by the system's keyring"),
    ("codex", {".codex/config.toml": 'model_provider = "amazon-bedrock"'}, {}, "from AWS_BEARER_TOKEN_BEDROCK"),
    ("gemini-cli", {".gemini/settings.json": '{"security": {"auth": {"selectedType": "vertex-ai"}}}'}, {}, "vertex-ai"),
    (
        "gemini-cli",
        {
            ".gemini/settings.json": '{"security": {"auth": {"selectedType": "gemini-api-key"}}}',
            ".gemini/gemini-credentials.json": "00:11:22",
        },
        {},
        "has its sign-in encrypted",
    ),
    ("copilot", {".copilot/config.json": '{"logged_in_users": [{"login": "me"}]}'}, {}, "by the system's keyring"),
]


@BOXED
@pytest.mark.req("IM-10")
def test_a_sign_in_that_does_not_work_in_the_box_is_refused_before_the_first_rollout(
    direct: Direct, tmp_path: Path
) -> None:
    command = furnish(direct)
    for number, (name, files, given, problem) in enumerate(UNSUPPORTED):
        person = tmp_path / str(number)
        for file, content in files.items():
            (person / file).parent.mkdir(parents=True, exist_ok=True)
            (person / file).write_text(content)
        env = put_program(direct, "touch ran", find_solver_program(name.partition(":")[0]).program.command)
        refused = direct(*command, "--solver", name, "--budget", "$5", env={**env, **given, "HOME": str(person)})
        assert (refused.code, len(refused.err.splitlines()), problem in refused.err) == (1, 1, True), refused
    assert rollouts(direct) == {}


@pytest.mark.req("IM-10")
def test_a_renewal_that_is_due_at_once_is_refused(tmp_path: Path) -> None:
    sign_in(tmp_path, "opencode", {"openai": {**OAUTH, "expires": 0}})
    with pytest.raises(Refused, match="expires during the run"):
        _copy(tmp_path, tmp_path / "room", "opencode")


@BOXED
@pytest.mark.req("IM-10")
def test_a_solver_has_no_key_of_a_provider_that_it_does_not_use(direct: Direct) -> None:
    command = furnish(direct)
    script = f"""[ "$ANTHROPIC_API_KEY$OPENAI_API_KEY" = MINE ] && [ "$XAI_API_KEY" = "" ] || exit 3
cat <<'END'\n{SAYS["pi"]("ALTBERG")}\nEND"""
    keys = {"OPENAI_API_KEY": "MINE", "ANTHROPIC_API_KEY": "OTHER", "XAI_API_KEY": "OTHER"}
    said = direct(
        *command, "--solver", "pi:openai/m", "--budget", "$5", env={**keys, **put_program(direct, script, "pi")}
    )
    assert rollouts(direct)["say", True].outcome == "ok", said


def _hosts(home: Path, name: str, **environ: str) -> set[str]:
    agent, _, model = name.partition(":")
    given = {"HOME": str(home), **environ}
    question = AgentProgramPrompt(system="", prompt="x", model=model, workspace=Path(), environ=given, is_boxed=True)
    solver = find_solver_program(agent)
    return {*solver.find_hosts(question), *solver.list_provider_addresses_from_environment(question)}


@pytest.mark.req("IM-10")
def test_an_agent_with_many_providers_gets_the_hosts_of_the_one_in_use(tmp_path: Path) -> None:
    codex_hosts, keys = {"chatgpt.com"}, {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}
    for agent, openai in (("pi", "openai-codex"), ("opencode", "openai")):
        # By the name of the model, the only key, the only sign-in, or the settings.
        assert _hosts(tmp_path, f"{agent}:anthropic/m", **keys) == {"api.anthropic.com"}
        assert _hosts(tmp_path, agent, XAI_API_KEY="k") == {"api.x.ai"}
        with pytest.raises(Refused, match="has anthropic and openai, and it is not said which to use"):
            _hosts(tmp_path, agent, **keys)
        file = sign_in(tmp_path, agent, sign_ins(agent))
        api = {"api.openai.com"} if agent == "opencode" else set()
        assert _hosts(tmp_path, agent, **keys) == codex_hosts | api
        assert _hosts(tmp_path, f"{agent}:groq/m", GROQ_BASE_URL="https://g", OPENAI_BASE_URL="https://o") == {
            *("api.groq.com", "https://g")
        }
        file.write_text(json.dumps(sign_ins(agent) | {"anthropic": {"type": "oauth"}}))
        with pytest.raises(Refused, match=f"has anthropic and {openai}"):
            _hosts(tmp_path, agent)
    (tmp_path / ".pi/agent/settings.json").write_text('{"defaultProvider": "mistral"}')
    assert _hosts(tmp_path, "pi") == _hosts(tmp_path, "pi:meta/llama") == {"api.mistral.ai"}
    (tmp_path / ".config/opencode").mkdir(parents=True)
    (tmp_path / ".config/opencode/opencode.json").write_text('{"model": "deepseek/m"}')
    assert _hosts(tmp_path, "opencode") == {"api.deepseek.com"}
    assert _hosts(tmp_path, "copilot", COPILOT_PROVIDER_BASE_URL="https://own") == {"https://own"}
    assert _hosts(tmp_path, "copilot", GH_HOST="acme.ghe.com") == {"api.acme.ghe.com", "copilot-api.acme.ghe.com"}
    own_host = {"api.acme.ghe.com", "copilot-api.acme.ghe.com"}
    sign_in(tmp_path, "pi", {"github-copilot": {"type": "oauth", "enterpriseUrl": "acme.ghe.com"}})
    sign_in(tmp_path, "opencode", {"github-copilot": {"type": "oauth", "enterpriseUrl": "https://acme.ghe.com/"}})
    for agent in ("pi", "opencode"):
        assert _hosts(tmp_path, f"{agent}:github-copilot/m") == own_host
    (tmp_path / ".copilot").mkdir()
    (tmp_path / ".copilot/config.json").write_text('{"last_logged_in_user": {"host": "https://acme.ghe.com"}}')
    assert _hosts(tmp_path, "copilot") == own_host
    (tmp_path / ".copilot/config.json").write_text('{"last_logged_in_user": {"host": "https://github.com"}}')
    kinds = ("api", "api.individual", "api.business", "api.enterprise")
    assert _hosts(tmp_path, "copilot") == {"api.github.com", *(f"{kind}.githubcopilot.com" for kind in kinds)}


@BOXED
@pytest.mark.req("IM-10")
def test_the_notice_names_what_a_boxed_solver_can_reach(direct: Direct) -> None:
    command = furnish(direct)
    env = put_program(direct, "exit 1", "pi")
    plan = " ".join(direct.ok(*command[:-1], "--solver", "pi:anthropic/m", "--dry-run", env=env).split())
    assert (
        "It runs in a box: it sees the system's programs, that folder and a copy of its sign-in, no other file of "
        "yours, no task and no other process, and reaches only api.anthropic.com." in plan
    )
    refused = direct(*command[:-1], "--solver", "pi", "--dry-run", env=env)
    assert (refused.code, len(refused.err.splitlines())) == (1, 1)
    assert (
        "Pi is signed in nowhere, and it is not said which to use. Name it: --solver pi:PROVIDER/MODEL" in refused.err
    )
