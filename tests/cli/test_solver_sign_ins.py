"""The sign-in of a solver program: its copy in the box, what is written back, and the provider that it reaches."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from habitus.app.operating.housekeeping import run_due_housekeeping
from habitus.errors import Refused
from habitus.llm.agents.program import ProgramRequest
from habitus.llm.agents.sign_ins import copy_sign_in_into_box
from habitus.llm.agents.solvers import find_solver_program
from habitus.locks import hold_lock
from tests.cli.conftest import Direct
from tests.cli.test_climb import opened
from tests.cli.test_improve_solver import BOXED, furnish, put_program, rollouts
from tests.llm.agents import SAYS, claude


def _sign_in(direct: Direct, expires: float) -> Path:
    file = direct.cli.user_home / ".claude" / ".credentials.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"claudeAiOauth": {"accessToken": "old", "expiresAt": int(expires * 1000)}}))
    return file


@BOXED
@pytest.mark.req("IM-10")
def test_a_renewed_sign_in_comes_back_and_anything_else_does_not(direct: Direct) -> None:
    command, file = furnish(direct), _sign_in(direct, time.time() + 90_000)
    renew = """own="$CLAUDE_CONFIG_DIR/.credentials.json"\n[ -L "$own" ] && exit 3\n"""
    planted = f"""{renew}echo '{{"env": "planted"}}' > "$own"; echo '{claude("X")}'"""
    before = file.read_text()
    direct(*command, "--solver", "claude-code", "--budget", "$5", env=put_program(direct, planted))
    assert {one.outcome for one in rollouts(direct).values()} <= {"ok", "failed"}
    assert file.read_text() == before


@BOXED
@pytest.mark.req("IM-10")
def test_a_renewed_token_is_written_back(direct: Direct) -> None:
    command, file = furnish(direct), _sign_in(direct, time.time() + 90_000)
    renew = f"""own="$CLAUDE_CONFIG_DIR/.credentials.json"
sed s/old/new/ "$own" > "$own.x" && mv "$own.x" "$own"; echo '{claude("X")}'"""
    direct(*command, "--solver", "claude-code", "--budget", "$5", env=put_program(direct, renew))
    assert json.loads(file.read_text())["claudeAiOauth"]["accessToken"] == "new"


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


@contextmanager
def running(home: Path, room: Path, agent: str, model: str = "") -> Iterator[Path]:
    """A run of the program, with its copy of the sign-in."""
    solver = find_solver_program(agent)
    question = ProgramRequest(system="", prompt="x", model=model, workspace=room, environ={"HOME": str(home)})
    room.mkdir(parents=True)
    solver.build_call(question)
    with copy_sign_in_into_box(solver, question, datetime.now(UTC), timedelta(minutes=10)):
        assert not (room / solver.sign_in).is_symlink()
        yield room / solver.sign_in


@BOXED
@pytest.mark.req("IM-10")
@pytest.mark.parametrize("agent", ["codex", "opencode", "pi"])
def test_every_agent_that_replaces_its_token_gives_it_back(direct: Direct, agent: str) -> None:
    command, renewed = furnish(direct), sign_ins(agent, number=2)
    other = {} if agent == "codex" else {"groq": {"type": "api_key", "key": "mine"}}
    file = sign_in(direct.cli.user_home, agent, sign_ins(agent) | other)
    place = {"codex": "$CODEX_HOME", "opencode": "$XDG_DATA_HOME/opencode", "pi": "$PI_CODING_AGENT_DIR"}[agent]
    script = f"""grep -q mine "{place}/auth.json" && exit 3\ncat > "{place}/auth.json" <<'END'
{json.dumps(renewed)}
END
cat <<'END'\n{SAYS[agent]("ALTBERG")}\nEND"""
    name = {"pi": "pi:openai-codex/m", "opencode": "opencode:openai/m"}.get(agent, agent)
    said = direct(*command, "--solver", name, "--budget", "$5", env=put_program(direct, script, agent))
    assert rollouts(direct)["say", True].outcome == "ok", said
    assert json.loads(file.read_text()) == renewed | other
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.req("IM-10")
@pytest.mark.parametrize("agent", ROTATING)
def test_the_token_of_another_account_or_another_structure_is_not_taken(tmp_path: Path, agent: str) -> None:
    mine, theirs = sign_ins(agent), sign_ins(agent, number=2, who="somebody else")
    (provider, renewed), *_ = sign_ins(agent, number=2).items()
    odd: list[Any] = [{}, [], {"env": "x"}, "link", "pipe", "loop"]
    if agent in ("claude-code", "codex"):
        # Of the others, whose sign-in has an entry for each provider, only that of the run is looked at.
        odd.append({**sign_ins(agent, number=2), "apiKeyHelper": "/planted"})
    if isinstance(renewed, dict):
        odd += [{provider: {**renewed, "command": "x"}}, {provider: {**renewed, "type": 1, "scopes": 1, "x": 1}}]
    if agent != "claude-code":
        # Nobody can read from a token of Claude Code whose it is.
        odd.append(theirs)
    if agent == "codex":
        tokens = mine["tokens"] | {"id_token": theirs["tokens"]["id_token"], "refresh_token": "r"}
        odd += [mine | {"tokens": tokens}, mine | {"tokens": tokens | {"id_token": "opaque"}}]
    for number, one in enumerate(odd):
        file = sign_in(tmp_path, agent, mine)
        with running(tmp_path, tmp_path / str(number) / "room", agent) as copy:
            if one in ("link", "pipe", "loop"):
                copy.unlink()
                elsewhere = sign_in(tmp_path / "elsewhere", agent, theirs)
                os.mkfifo(copy) if one == "pipe" else copy.symlink_to(elsewhere if one == "link" else copy)
            else:
                copy.write_text(json.dumps(one))
        assert json.loads(file.read_text()) == mine, one


@pytest.mark.req("IM-10")
@pytest.mark.parametrize("agent", ROTATING)
def test_of_two_runs_at_once_the_first_renewal_counts_and_the_persons_own_stays(tmp_path: Path, agent: str) -> None:
    file = sign_in(tmp_path, agent, sign_ins(agent))
    first, second = (sign_ins(agent, number=number) for number in (2, 3))
    with (
        running(tmp_path, tmp_path / "one" / "room", agent) as one,
        running(tmp_path, tmp_path / "two" / "room", agent) as two,
    ):
        two.write_text(json.dumps(first))
        one.write_text(json.dumps(second))
    assert json.loads(file.read_text()) == first
    for who in ("me", "somebody else"):
        own = sign_ins(agent, number=4, who=who)
        with running(tmp_path, tmp_path / who / "room", agent) as copy:
            copy.write_text(json.dumps(second))
            file.write_text(json.dumps(own))
        assert json.loads(file.read_text()) == own


@BOXED
@pytest.mark.req("IM-10")
def test_what_a_killed_run_renewed_is_written_back_unless_the_sign_in_has_changed(direct: Direct) -> None:
    command, folders = furnish(direct), direct.cli.user_home / ".cache" / "habitus"
    mine, renewed, later = (sign_ins("codex", number=number) for number in (1, 2, 3))
    file = sign_in(direct.cli.user_home, "codex", mine)
    left = _kill_run_that_renewed(direct, [*command, "--solver", "codex", "--budget", "$5"], renewed)
    shutil.move(left, kept := direct.cli.cwd / "kept")

    def sweep(*renewals: dict[str, Any]) -> Any:
        """Return what the person's file says after these killed runs were swept."""
        for number, one in enumerate(renewals):
            killed = folders / f"habitus-ask-{number}"
            shutil.copytree(kept, killed)
            (killed / "room" / "codex" / "auth.json").write_text(json.dumps(one))
        with opened(direct) as habitus:
            run_due_housekeeping(habitus)
        assert not [*folders.glob("habitus-ask-?")]
        return json.loads(file.read_text())

    assert json.loads(file.read_text()) == mine
    assert sweep(renewed) == renewed
    assert file.stat().st_mode & 0o777 == 0o600
    # The person, or another run, has renewed it since, or signed in with another account.
    for now in (later, sign_ins("codex", who="somebody else")):
        file.write_text(json.dumps(now))
        assert sweep(renewed) == now
    # Of two at once, either may be the first; neither puts the token of another account there.
    file.write_text(json.dumps(mine))
    assert sweep(renewed, later) in (renewed, later)
    file.write_text(json.dumps(mine))
    assert sweep(sign_ins("codex", number=2, who="somebody else"), {}, {"env": "planted"}) == mine
    # Who has signed out stays so.
    file.write_text("{}")
    assert sweep(renewed) == {}


def _kill_run_that_renewed(direct: Direct, command: list[str], renewed: dict[str, Any]) -> Path:
    """Start a run whose program renews its copy of the sign-in, kill it then with SIGKILL, and return its folder."""
    script = f"""cat > "$CODEX_HOME/new" <<'END'\n{json.dumps(renewed)}\nEND
mv "$CODEX_HOME/new" "$CODEX_HOME/auth.json"; sleep 3219"""
    env, output = direct.cli.environ(put_program(direct, script, "codex")), direct.cli.cwd / "output"
    with (
        output.open("wb") as out,
        subprocess.Popen(
            [*direct.cli.command, *command], cwd=direct.cli.cwd, env=env, stdout=out, stderr=out
        ) as process,
    ):
        try:
            while True:
                assert process.poll() is None, output.read_text()
                for copy in direct.cli.user_home.glob(".cache/habitus/habitus-ask-*/room/codex/auth.json"):
                    with suppress(OSError, ValueError):
                        if json.loads(copy.read_bytes()) == renewed:
                            return copy.parents[2]
                time.sleep(0.02)
        finally:
            process.kill()


@pytest.mark.req("IM-10")
@pytest.mark.parametrize("is_renewed_meanwhile", [True, False])
def test_a_sign_in_is_written_back_under_a_lock(tmp_path: Path, is_renewed_meanwhile: bool) -> None:
    file = sign_in(tmp_path, "codex", sign_ins("codex"))
    renewed, own = sign_ins("codex", number=2), sign_ins("codex", number=3)

    def renew() -> None:
        with running(tmp_path, tmp_path / "room", "codex") as copy:
            copy.write_text(json.dumps(renewed))

    with ThreadPoolExecutor(1) as pool:
        with hold_lock(file.parent):
            done = pool.submit(renew)
            # Another run is at it: this one waits, and then looks again.
            with pytest.raises(TimeoutError):
                done.result(1)
            assert json.loads(file.read_text()) == sign_ins("codex") | {"tokens": ANY}
            if is_renewed_meanwhile:
                file.write_text(json.dumps(own))
        done.result(30)
    assert json.loads(file.read_text()) == (own if is_renewed_meanwhile else renewed)


@pytest.mark.req("IM-10")
def test_a_renewal_leaves_the_other_providers_as_they_are_now(tmp_path: Path) -> None:
    file = sign_in(tmp_path, "pi", sign_ins("pi") | {"groq": {"type": "api_key", "key": "old"}})
    (tmp_path / ".pi/agent/settings.json").write_text('{"defaultProvider": "openai-codex"}')
    with running(tmp_path, tmp_path / "room", "pi") as copy:
        assert json.loads(copy.read_text()).keys() == {"openai-codex"}
        copy.write_text(json.dumps(sign_ins("pi", number=2) | {"xai": {"type": "api_key", "key": "planted"}}))
        file.write_text(json.dumps(sign_ins("pi") | {"groq": {"type": "api_key", "key": "new"}}))
    # What else the program wrote makes it no renewal that counts for others.
    assert json.loads(file.read_text())["groq"] == {"type": "api_key", "key": "new"}
    assert "xai" not in json.loads(file.read_text())


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


def _hosts(home: Path, name: str, **environ: str) -> set[str]:
    agent, _, model = name.partition(":")
    given = {"HOME": str(home), **environ}
    question = ProgramRequest(system="", prompt="x", model=model, workspace=Path(), environ=given, is_boxed=True)
    solver = find_solver_program(agent)
    return {*solver.find_hosts(question), *solver.list_given_addresses(question)}


@pytest.mark.req("IM-10")
def test_an_agent_with_many_providers_gets_the_hosts_of_the_one_in_use(tmp_path: Path) -> None:
    codex_hosts, keys = {"chatgpt.com", "auth.openai.com"}, {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}
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
