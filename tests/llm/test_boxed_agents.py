"""What the real program of each agent can reach in the box of a solver, tried by a command that its model asks for."""

from __future__ import annotations

import functools
import json
import os
import re
import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from habitus.app.learning.solver_box import open_solver_box
from habitus.llm.agents.program import AgentProgramPrompt
from habitus.llm.agents.running import run_program_and_parse_answer, temporary_workspace
from habitus.llm.agents.sign_ins import copy_sign_in_without_refresh_token
from habitus.llm.agents.solvers import find_solver_program
from habitus.sandbox.machine import probe_machine
from tests import npm
from tests.cli.test_solver_sign_ins import token
from tests.fake_provider import FakeProvider, Reply
from tests.llm.recordings import (
    anthropic_text,
    chat_call,
    chat_text,
    google_call,
    google_text,
    openai_call,
    openai_text,
)
from tests.llm.test_real_agents import PACKAGES, furnished
from tests.mcp.test_real_clients import calls

pytestmark = [
    pytest.mark.full,
    pytest.mark.req("IM-04", "SB-09"),
    pytest.mark.skipif(probe_machine().bubblewrap is None, reason="bubblewrap is not installed"),
]
SECRETS = ("AWS_SECRET_ACCESS_KEY", "OTHER_TOKEN", "SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS")
PROBE = """
import os, socket, subprocess
HOME, PORT, PID, SECRETS = GIVEN
def can(act):
    try:
        act()
        return "yes"
    except OSError:
        return "no"
def tunnel(target):
    with socket.create_connection(("127.0.0.1", 3128), 3) as line:
        line.sendall(f"CONNECT {target} HTTP/1.1\\r\\n\\r\\n".encode())
        if b" 403 " in line.recv(100):
            raise OSError
found = {
    "a key of the person": can(lambda: open(HOME + "/.ssh/id").read()),
    "the hidden tasks": can(lambda: open(HOME + "/evals/tasks.toml").read()),
    "the sign-in of another agent": can(lambda: open(HOME + "/.other/auth.json").read()),
    "the passwords of the system": can(lambda: open("/etc/shadow").read()),
    "writing to the system": can(lambda: open("/usr/planted", "w")),
    "writing in its folder": can(lambda: open("written", "w")),
    "processes of the host": can(lambda: os.kill(PID, 0)),
    "a port of this machine": can(lambda: socket.create_connection(("127.0.0.1", PORT), 2)),
    "that port by the proxy": can(lambda: tunnel(f"127.0.0.1:{PORT}")),
    "an address of the internet": can(lambda: socket.create_connection(("192.0.2.1", 443), 2)),
    "another host by the proxy": can(lambda: tunnel("example.com:443")),
    "variables with secrets of others": "yes" if "x" in map(os.environ.get, SECRETS) else "no",
}
nothing = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
subprocess.Popen(["sleep", "4217"], start_new_session=True, **nothing)
print("PROBE " + "; ".join(f"{key}: {value}" for key, value in found.items()) + " END")
"""
COMMAND = "python3 probe.py"
ASKS: dict[str, Callable[[], Reply]] = {
    "claude-code": lambda: calls(1, "Bash", command=COMMAND, description="x"),
    "codex": lambda: openai_call("exec_command", {"cmd": COMMAND}),
    "gemini-cli": lambda: google_call("run_shell_command", {"command": COMMAND, "description": "x"}),
    "opencode": lambda: chat_call("bash", {"command": COMMAND, "description": "x"}),
    "copilot": lambda: chat_call("bash", {"command": COMMAND, "description": "x"}),
    "pi": lambda: chat_call("bash", {"command": COMMAND}),
}
SAYS: dict[str, Callable[[str], Reply]] = {
    "claude-code": anthropic_text,
    "codex": openai_text,
    "gemini-cli": google_text,
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Where an agent's program is, installed once and apart from the others."""
    packages = {**PACKAGES, "claude-code": "@anthropic-ai/claude-code"}
    return functools.cache(lambda name: npm.install(tmp_path_factory.mktemp(name), packages[name]))


@pytest.mark.parametrize("name", ASKS)
async def test_a_real_program_in_the_box_reaches_its_folder_and_its_provider_and_nothing_else(
    programs: Callable[[str], Path], provider: FakeProvider, tmp_path: Path, name: str
) -> None:
    person, solver = tmp_path / "person", find_solver_program(name)
    given = _furnish(name, person, provider.address)
    path = f"{programs(name)}:{os.environ['PATH']}"
    environ = {"PATH": path, "HOME": str(person), **dict.fromkeys(SECRETS, "x"), **given}
    provider.gives(ASKS[name](), SAYS.get(name, chat_text)("ALTBERG"))
    async with temporary_workspace(Path.home() / ".cache" / "habitus") as room:
        (work := room / "work").mkdir()
        question = AgentProgramPrompt(
            system="", prompt="Which town is it?", model="", workspace=room, environ=environ, is_boxed=True
        )
        call = solver.build_call(question)
        with (
            socket.create_server(("127.0.0.1", 0)) as other,
        ):
            copy_sign_in_without_refresh_token(solver, question, datetime.now(UTC), timedelta(minutes=4))
            about = (str(person), other.getsockname()[1], os.getpid(), SECRETS)
            (work / "probe.py").write_text(PROBE.replace("GIVEN", repr(about)))
            said = await run_program_and_parse_answer(
                solver.program, question, call, work, 240, box=open_solver_box(solver, question, work)
            )
    sent = json.dumps([each.body for each in provider.requests[1:]])
    found = re.search(r"PROBE (.*?) END", sent)
    assert found, sent[-2000:]
    reached = dict(part.split(": ") for part in found[1].split("; "))
    assert {key for key, value in reached.items() if value == "yes"} == {"writing in its folder"}
    assert len(reached) == 12
    assert said.text == "ALTBERG"
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if b"sleep\x004217" in _read(path)]


SIGNED_IN = ("claude-code", "codex", "opencode", "pi")


@pytest.mark.req("IM-10")
@pytest.mark.parametrize("name", SIGNED_IN)
async def test_a_real_program_works_with_a_sign_in_that_it_can_not_renew(
    programs: Callable[[str], Path], provider: FakeProvider, tmp_path: Path, name: str
) -> None:
    path = f"{programs(name)}:{os.environ['PATH']}"
    file, given = _sign_in(name, tmp_path, provider.address, datetime.now(UTC) + timedelta(minutes=10))
    before, solver = file.read_bytes(), find_solver_program(name)
    environ = {"PATH": path, "HOME": str(tmp_path), **given}
    provider.gives((openai_text if name in ("codex", "opencode") else anthropic_text)("ALTBERG"))
    async with temporary_workspace(Path.home() / ".cache" / "habitus") as room:
        (work := room / "work").mkdir()
        question = AgentProgramPrompt(
            system="", prompt="Which town is it?", model="", workspace=room, environ=environ, is_boxed=True
        )
        call = solver.build_call(question)
        copy_sign_in_without_refresh_token(solver, question, datetime.now(UTC), timedelta(minutes=4))
        said = await run_program_and_parse_answer(
            solver.program, question, call, work, 240, box=open_solver_box(solver, question, work)
        )
        copy = (room / solver.sign_in).read_text()
    assert said.text == "ALTBERG"
    assert "REFRESH" not in copy
    access = token(exp=0).split(".")[0] if name == "codex" else "sk-ant-oat01-ACCESS"
    asked = [each for each in provider.requests if each.path.partition("?")[0].endswith(("/messages", "/responses"))]
    assert [each.headers["authorization"].startswith(f"Bearer {access}") for each in asked] == [True]
    assert not [each for each in provider.requests if "grant_type" in json.dumps(each.body)]
    assert file.read_bytes() == before


def _sign_in(name: str, person: Path, address: str, until: datetime) -> tuple[Path, dict[str, str]]:
    """A sign-in that expires at a time and was last renewed long before; return its file and the environment."""
    access, expires = "sk-ant-oat01-ACCESS", int(until.timestamp() * 1000)
    if name == "claude-code":
        oauth = {"accessToken": access, "refreshToken": "REFRESH", "expiresAt": expires, "scopes": ["user:inference"]}
        return write_json(person / ".claude/.credentials.json", {"claudeAiOauth": oauth}), {
            "ANTHROPIC_BASE_URL": address
        }
    if name == "codex":
        auth = {"chatgpt_account_id": "acc", "chatgpt_user_id": "me", "chatgpt_plan_type": "plus"}
        mine = token(exp=expires // 1000, sub="me", **{"https://api.openai.com/auth": auth})
        tokens = {"id_token": mine, "access_token": mine, "refresh_token": "REFRESH", "account_id": "acc"}
        (person / ".codex").mkdir()
        (person / ".codex" / "config.toml").write_text(
            f'model = "m"\nmodel_provider = "here"\nchatgpt_base_url = "{address}"\n[model_providers.here]\n'
            f'name = "here"\nbase_url = "{address}/v1"\nrequires_openai_auth = true\n'
        )
        said = {"auth_mode": "chatgpt", "tokens": tokens, "last_refresh": "2026-01-01T00:00:00Z"}
        return write_json(person / ".codex/auth.json", said), {}
    if name == "opencode":
        # At an address with /v1 it would ask chatgpt.com itself.
        here = {"provider": {"openai": {"options": {"baseURL": address}}}, "model": "openai/gpt-5.4"}
        write_json(person / ".config/opencode/opencode.json", here)
        openai = {"type": "oauth", "access": access, "refresh": "REFRESH", "expires": expires, "accountId": "acc"}
        return write_json(person / ".local/share/opencode/auth.json", {"openai": openai}), {}
    write_json(person / ".pi/agent/models.json", {"providers": {"anthropic": {"baseUrl": address}}})
    settings = {"defaultProvider": "anthropic", "defaultModel": "claude-sonnet-4-5"}
    write_json(person / ".pi/agent/settings.json", settings)
    oauth = {"type": "oauth", "access": access, "refresh": "REFRESH", "expires": expires}
    return write_json(person / ".pi/agent/auth.json", {"anthropic": oauth}), {}


def write_json(path: Path, content: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def _furnish(name: str, person: Path, address: str) -> dict[str, Any]:
    """A person with the agent, a key, hidden tasks and the sign-in of another agent."""
    for file in (".ssh/id", "evals/tasks.toml", ".other/auth.json"):
        (person / file).parent.mkdir(parents=True, exist_ok=True)
        (person / file).write_text("PRIVATE")
    if name == "claude-code":
        return {"ANTHROPIC_BASE_URL": address, "ANTHROPIC_AUTH_TOKEN": "none", "ANTHROPIC_API_KEY": ""}
    return furnished(name, person, address)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
