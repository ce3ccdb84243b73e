"""The proxy on its socket, the command lines in their sandboxes behind it, and what must not come through."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from habitus.errors import Refused
from habitus.files import Tree, build_tree_file, compute_tree_hash
from habitus.sandbox.credentials.command_lines import LIMITS, CommandLineRunner, SkillCommandLineServer
from habitus.sandbox.credentials.grants import CommandLineCall, GrantedCredentials, SkillCommandLine
from habitus.sandbox.files import GivenFolder
from habitus.sandbox.fork_servers import ForkServerPool
from habitus.sandbox.isolation import get_given_folder_path_inside
from habitus.sandbox.machine import MachineCapabilities, get_base_python
from habitus.sandbox.venvs import EnvironmentCache, VenvBuilder

pytestmark = pytest.mark.req("SB-10")

SECRET = "tuesday-horse-battery-7"
NOW = datetime(2026, 5, 1, tzinfo=UTC)
CLI = """
import argparse, json, os, sys

def build_parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("what")
    parser.add_argument("rest", nargs="*")
    return parser

def main():
    args = build_parser().parse_args()
    secret = os.environ.get("MAIL_PASSWORD", "")
    {body}
"""


def command_line(body: str, *, name: str = "mailer", **granted: Any) -> SkillCommandLine:
    files: Tree = {"scripts/cli.py": build_tree_file(CLI.replace("{body}", body.replace("\n", "\n    ")).encode())}
    values = {"variables": {"MAIL_PASSWORD": SECRET}, "sensitive": frozenset([SECRET]), "secrets": ("mail",)}
    return SkillCommandLine(
        skill=name,
        script="scripts/cli.py",
        content_hash=compute_tree_hash(files),
        files=files,
        folders={},
        granted=GrantedCredentials(**{**values, **granted}),
    )


@dataclass(kw_only=True)
class Shelf:
    """A directory of command lines, and the log of what was called."""

    lines: dict[str, SkillCommandLine] = field(default_factory=dict)
    closed: dict[str, str] = field(default_factory=dict)  # name → why
    calls: list[CommandLineCall] = field(default_factory=list)
    is_away: bool = False

    def get_checked_command_line(self, name: str) -> SkillCommandLine:
        if reason := self.closed.get(name):
            raise Refused(reason)
        return self.lines[name]

    def record(self, call: CommandLineCall) -> None:
        if self.is_away:
            raise OperationalError("INSERT", {}, Exception("no route"))
        self.calls.append(call)


Open = Callable[..., tuple[CommandLineRunner, Shelf]]


@pytest.fixture
async def opened(machine: MachineCapabilities, tmp_path: Path) -> AsyncIterator[Open]:
    """`opened(*lines)` makes a caller for these command lines; everything is closed at the end."""
    callers: list[CommandLineRunner] = []

    def given(digest: str) -> GivenFolder:
        folder = tmp_path / "given" / digest
        return GivenFolder(folder, find_visible_path=lambda: get_given_folder_path_inside(machine, folder))

    def make(
        *lines: SkillCommandLine, wall_s: float = LIMITS.wall_s, at: MachineCapabilities = machine
    ) -> tuple[CommandLineRunner, Shelf]:
        shelf = Shelf(lines={line.skill: line for line in lines})
        caller = CommandLineRunner(
            shelf,
            lambda: shelf.lines,
            shelf,
            ForkServerPool(at, tmp_path / "calls", allow_weaker=True),
            EnvironmentCache(tmp_path / "environments", VenvBuilder(os.environ, python=get_base_python())),
            open_given_folder=given,
            caller="ann",
            clock=lambda: NOW,
            limits=replace(LIMITS, wall_s=wall_s),
        )
        callers.append(caller)
        return caller, shelf

    yield make
    for caller in callers:
        await caller.close()


async def test_a_command_line_gets_what_it_was_granted_and_nothing_else(opened: Open, tmp_path: Path) -> None:
    body = (
        "print(json.dumps([len(secret), sorted(os.environ), sorted(os.listdir('.')), os.path.exists('/etc/passwd'), "
        "sys.argv, args.rest, sys.stdin.read()]))"
    )
    caller, shelf = opened(command_line(body))
    answer = await caller.run_command_line("mailer", ["look", "--", "-x", SECRET], b"body")
    assert answer.outcome.is_ok, answer
    length, variables, files, sees_host, argv, rest, stdin = json.loads(answer.stdout)
    assert (length, files, sees_host, stdin) == (len(SECRET), ["tool.py"], False, "body")
    assert not {"PYTHONPATH", "HABITUS_HOME", "SSH_AUTH_SOCK"}.intersection(variables)
    assert (argv[0], rest) == ("mailer", ["-x", "[redacted:known]"])
    expected = CommandLineCall(
        caller="ann",
        skill="mailer",
        arguments=("look", "--", "-x", "[redacted:known]"),
        outcome=answer.outcome,
        secrets=("mail",),
        timestamp=NOW,
    )
    assert shelf.calls == [expected]


LEAKS = """
import base64
match args.what:
    case "plain":
        print(secret)
    case "json":
        print(json.dumps({"status": "ok", "said": "it is " + secret}))
    case "base64":
        print(base64.b64encode(("user:" + secret).encode()).decode())
    case "stderr":
        sys.stderr.write(secret)
    case "error":
        raise ValueError(secret)
    case "fork":
        if os.fork():
            os.wait()
        else:
            print(secret)
"""


async def test_a_secret_that_is_printed_is_taken_out_and_reported(opened: Open) -> None:
    caller, shelf = opened(command_line(LEAKS))
    for what in ("plain", "json", "base64", "stderr", "error", "fork"):
        answer = await caller.run_command_line("mailer", [what])
        seen = repr((answer, shelf.calls))
        assert SECRET not in seen
        assert base64.b64encode(f"user:{SECRET}".encode()).decode() not in seen
        assert "It printed a secret, which was removed." in shelf.calls[-1].outcome.reason, what
        assert "habitus-skill: It printed a secret, which was removed." in answer.stderr


@pytest.mark.parametrize("before", ["", "print('connecting')\n"])
async def test_an_error_that_it_reports_is_a_failure_whatever_its_exit_code(opened: Open, before: str) -> None:
    caller, _ = opened(command_line(f"{before}print(json.dumps({{'status': 'error', 'error': 'no such mailbox'}}))"))
    answer = await caller.run_command_line("mailer", ["x"])
    assert (answer.code, answer.outcome.kind, answer.outcome.reason) == (
        1,
        "failed",
        "It reports an error: no such mailbox",
    )


@pytest.mark.full
async def test_one_that_hangs_is_stopped_with_124_and_its_forks_with_it(opened: Open) -> None:
    caller, shelf = opened(
        command_line("print('begun', flush=True)\nos.fork()\nimport time; time.sleep(600)"), wall_s=5
    )
    answer = await caller.run_command_line("mailer", ["x"])
    assert (answer.code, answer.stdout, answer.outcome.kind) == (124, "begun\n", "infra")
    assert shelf.calls[0].outcome.reason == "It was stopped after 5 s."


async def test_an_unknown_skill_is_told_which_there_are(opened: Open) -> None:
    caller, shelf = opened(command_line("pass"), command_line("pass", name="weather"))
    answer = await caller.run_command_line("email", ["send"])
    said = "No command line 'email' may be called here. There are: mailer, weather."
    assert (answer.code, answer.stderr) == (127, f"habitus-skill: {said}\n")
    assert [(call.skill, call.is_refused, call.outcome.reason) for call in shelf.calls] == [("email", True, said)]


@pytest.mark.full
async def test_every_gate_is_looked_at_with_every_call(opened: Open) -> None:
    caller, shelf = opened(command_line("print('ok')"))
    assert (await caller.run_command_line("mailer", ["x"])).stdout == "ok\n"
    shelf.closed["mailer"] = "It is disabled."
    answer = await caller.run_command_line("mailer", ["x"])
    assert (answer.code, answer.stdout, answer.stderr) == (126, "", "habitus-skill: It is disabled.\n")
    assert [call.is_refused for call in shelf.calls] == [False, True]


@pytest.mark.full
async def test_two_sessions_have_each_their_own_grants(opened: Open) -> None:
    body = "print(sorted(name for name in os.environ if name in ('MAIL_PASSWORD', 'OTHER')))"
    one, _ = opened(command_line(body))
    two, _ = opened(command_line(body, variables={"OTHER": "value"}, sensitive=frozenset()))
    answers = await asyncio.gather(
        one.run_command_line("mailer", ["x"]),
        two.run_command_line("mailer", ["x"]),
        one.run_command_line("mailer", ["x"]),
    )
    assert [answer.stdout for answer in answers] == ["['MAIL_PASSWORD']\n", "['OTHER']\n", "['MAIL_PASSWORD']\n"]


async def test_what_it_was_not_given_is_said_when_it_fails(opened: Open) -> None:
    caller, _ = opened(
        command_line(
            "sys.exit('no password')",
            variables={},
            missing=("Its secret 'mail' is not granted: habitus secrets grant mail mailer",),
        )
    )
    answer = await caller.run_command_line("mailer", ["x"])
    assert answer.code == 1
    assert answer.stderr.splitlines() == [
        "no password",
        "habitus-skill: Its secret 'mail' is not granted: habitus secrets grant mail mailer",
    ]


async def test_hosts_that_cant_be_told_apart_are_no_hosts(opened: Open, machine: MachineCapabilities) -> None:
    weaker = replace(machine, bubblewrap=None)
    caller, shelf = opened(command_line("print('ran')", hosts=("example.org",)), at=weaker)
    answer = await caller.run_command_line("mailer", ["x"])
    assert (answer.code, answer.stdout) == (126, "")
    assert "Install bubblewrap." in answer.stderr
    assert shelf.calls[0].is_refused


# The socket


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / ("a-long-name-" * 9) / ".bin"  # longer than the address of a socket


async def exchanged(folder: Path, data: bytes, *, ends: bool = False) -> Any:
    """What the proxy answers to these bytes, as somebody on this machine sends them."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        reader, writer = await asyncio.open_unix_connection(f"/proc/self/fd/{handle}/socket", limit=1 << 24)
    finally:
        os.close(handle)
    try:
        writer.write(data)
        if ends:
            writer.write_eof()
        return json.loads(await reader.read())
    finally:
        writer.close()


ASKED = json.dumps({"skill": "mailer", "arguments": ["x"], "stdin": ""}).encode() + b"\n"


async def test_one_line_of_json_each_way(opened: Open, folder: Path) -> None:
    caller, _ = opened(command_line("print('sent')"))
    proxy = SkillCommandLineServer(caller, folder, uid=os.getuid())
    await proxy.open()
    await proxy.open()  # the second does nothing
    assert stat.S_IMODE((folder / "socket").stat().st_mode) == 0o600
    assert await exchanged(folder, ASKED) == {"stdout": "sent\n", "stderr": "", "code": 0}
    await proxy.close()
    assert not (folder / "socket").exists()


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (ASKED[:-1], "That is half a line."),
        (b"x" * (10 << 20), "It is longer than 1 MiB."),
        (b"[]\n", "That is no call: it has a skill, arguments and a stdin."),
        (
            b'{"skill": "mailer", "arguments": [1], "stdin": ""}\n',
            "That is no call: it has a skill, arguments and a stdin.",
        ),
        (b"[" * 100_000 + b"\n", "That is no call: it has a skill, arguments and a stdin."),
        (
            b'{"skill": "mailer", "arguments": ["\\ud800"], "stdin": ""}\n',
            "That is no call: it has a skill, arguments and a stdin.",
        ),
        (b"\xff\n", "That is no call: it has a skill, arguments and a stdin."),
    ],
    ids=["half a line", "ten megabytes", "no object", "no texts", "deep", "half a character", "no text"],
)
async def test_what_is_no_such_line_is_refused_and_logged(opened: Open, folder: Path, sent: bytes, reason: str) -> None:
    caller, shelf = opened(command_line("print('sent')"))
    proxy = SkillCommandLineServer(caller, folder, uid=os.getuid())
    await proxy.open()
    try:
        answer = await exchanged(folder, sent, ends=not sent.endswith(b"\n"))
        assert answer == {"stdout": "", "stderr": f"habitus-skill: {reason}\n", "code": 126}
    except ConnectionError:
        pass  # what was not read to its end may take the answer with it
    await proxy.close()
    assert [(call.is_refused, call.outcome.reason) for call in shelf.calls] == [(True, reason)]


async def test_somebody_else_is_refused_and_logged(opened: Open, folder: Path) -> None:
    caller, shelf = opened(command_line("print('sent')"))
    proxy = SkillCommandLineServer(caller, folder, uid=os.getuid() + 1)
    await proxy.open()
    answer = await exchanged(folder, ASKED)
    await proxy.close()
    said = f"The user with the id {os.getuid()} may not ask here."
    assert answer == {"stdout": "", "stderr": f"habitus-skill: {said}\n", "code": 126}
    assert [(call.skill, call.is_refused, call.outcome.reason) for call in shelf.calls] == [("", True, said)]


async def test_what_cant_be_logged_is_not_answered(opened: Open, folder: Path) -> None:
    caller, shelf = opened(command_line("print('sent')"))
    shelf.is_away = True
    proxy = SkillCommandLineServer(caller, folder, uid=os.getuid())
    await proxy.open()
    said = "The database does not answer: the call can't be logged. Try again later."
    assert await exchanged(folder, ASKED) == {"stdout": "", "stderr": f"habitus-skill: {said}\n", "code": 125}
    await proxy.close()


async def test_a_call_that_nobody_waits_for_is_stopped(opened: Open, folder: Path) -> None:
    caller, shelf = opened(command_line("import time; time.sleep(600)"))
    proxy = SkillCommandLineServer(caller, folder, uid=os.getuid())
    await proxy.open()
    with socket.socket(socket.AF_UNIX) as line:
        handle = os.open(folder, os.O_RDONLY)
        line.connect(f"/proc/self/fd/{handle}/socket")
        os.close(handle)
        line.sendall(ASKED)
    while not shelf.calls:
        await asyncio.sleep(0)
    await proxy.close()
    assert shelf.calls[0].outcome.reason == "It was stopped because the caller disconnected."
