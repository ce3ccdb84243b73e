"""The plugin: forms made from one source, and hooks that find Habitus once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from habitus.hosts.known_agents import AGENT_HOOKS
from habitus.resident_process import HOOK_SERVER, is_process_running, request_stop
from tests.cli.conftest import Direct

pytestmark = pytest.mark.req("CL-09")

ROOT = Path(__file__).parents[2]
HOOK = ROOT / "plugin" / "bin" / "hook.sh"


def test_every_form_is_made_from_one_source() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "plugin.py", "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    hooks = json.loads((ROOT / "plugin/hooks/hooks.json").read_text())["hooks"]
    assert list(hooks) == [one.event for one in AGENT_HOOKS]


def run_hook(event: str, home: Path, *, path: str) -> subprocess.CompletedProcess[str]:
    environ = {"HOME": str(home), "HABITUS_HOME": str(home / ".habitus"), "PATH": path, "HABITUS_USER": "ann"}
    told = json.dumps({"session_id": "1", "cwd": str(home), "prompt": "hello"})
    return subprocess.run(
        ["/bin/sh", HOOK, event], input=told, env=environ, capture_output=True, text=True, check=False
    )


@pytest.mark.full
def test_a_session_finds_habitus_once_and_its_hooks_use_what_was_noted(tmp_path: Path) -> None:
    ours = tmp_path / "bin"
    ours.mkdir()
    (ours / "habitus").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m habitus "$@"\n')
    (ours / "habitus").chmod(0o755)
    path = f"{ours}:{os.defpath}"
    assert run_hook("SessionStart", tmp_path, path=path).returncode == 0
    assert not (tmp_path / ".habitus").exists()  # not there, or moved: a hook makes none
    (tmp_path / ".habitus").mkdir()
    began = run_hook("SessionStart", tmp_path, path=path)
    assert (began.returncode, began.stderr) == (0, "")
    python, script, home = (tmp_path / ".habitus/plugin").read_text().splitlines()
    assert (Path(script).name, home) == ("hook.py", str(tmp_path / ".habitus"))
    assert os.access(python, os.X_OK)
    # The daemon would take the note of the session at once.
    request_stop(tmp_path / ".habitus", HOOK_SERVER)
    while is_process_running(tmp_path / ".habitus", HOOK_SERVER):
        time.sleep(0.05)
    ended = run_hook("Stop", tmp_path, path=os.defpath)  # without looking for it again
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    (line,) = (tmp_path / ".habitus/hooks.spool").read_text().splitlines()
    assert json.loads(line)["session"] == "1"
    note, log = tmp_path / ".habitus/plugin", tmp_path / "asked"
    (ours / "habitus").write_text(f'#!/bin/sh\necho asked > "{log}"\nexec "{sys.executable}" -m habitus "$@"\n')
    for newer, at, is_asked in ((note, 3e9, False), (ours / "habitus", 4e9, True)):  # an upgrade is noted again
        os.utime(newer, (at, at))
        assert run_hook("SessionStart", tmp_path, path=path).returncode == 0
        assert log.exists() is is_asked
    request_stop(tmp_path / ".habitus", HOOK_SERVER)


def test_without_habitus_one_line_says_so_and_the_agent_goes_on(tmp_path: Path) -> None:
    began = run_hook("SessionStart", tmp_path, path=os.defpath)
    assert (began.returncode, began.stdout.count("\n")) == (0, 1)
    assert began.stdout.startswith("Habitus is not installed. Install it from")
    assert run_hook("UserPromptSubmit", tmp_path, path=os.defpath).returncode == 0


def test_what_an_agent_reads_names_no_tool_that_only_the_server_has() -> None:
    """It is read whether or not the server is there; the server's own instructions name its tools."""
    plugin = ROOT / "plugin"
    read = [plugin / "skills/habitus/SKILL.md", *(plugin / "bin").iterdir(), plugin / "hooks/hooks.json"]
    assert [path.name for path in read if "recall_skill" in path.read_text("utf-8")] == []


def test_the_plugin_never_fetches_a_package_by_its_name(tmp_path: Path) -> None:
    """Whoever registers that name would run code in every session."""
    (fetchers := tmp_path / "bin").mkdir()
    for name in ("uvx", "uv", "pipx", "pip", "npx"):
        (fetchers / name).write_text(f'#!/bin/sh\ntouch "{tmp_path}/fetched"\n')
        (fetchers / name).chmod(0o755)
    path = f"{fetchers}:{os.defpath}"
    run_hook("SessionStart", tmp_path, path=path)
    asked: list[dict[str, object]] = [
        {"id": 0, "method": "initialize", "params": {"protocolVersion": "2025-03-26", "capabilities": {}}},
        {"method": "notifications/initialized"},
        {"id": "one", "method": "tools/list"},
        {"id": 2, "method": "ping"},
        {"id": 3, "method": "prompts/list"},
    ]
    answered = subprocess.run(
        ["/bin/sh", HOOK.with_name("habitus.sh"), "mcp"],
        input="".join(json.dumps({"jsonrpc": "2.0", **one}) + "\n" for one in asked),
        env={"HOME": str(tmp_path), "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    answers = {one["id"]: one for one in map(json.loads, answered.stdout.splitlines())}
    assert answered.returncode == 0
    assert answers[0]["result"]["protocolVersion"] == "2025-03-26"
    assert answers[0]["result"]["instructions"].startswith("Habitus is not installed.")
    assert answers["one"]["result"] == {"tools": []}
    assert answers[2]["result"] == {}
    assert answers[3]["error"]["code"] == -32601
    assert set(answers) == {0, "one", 2, 3}
    assert not (tmp_path / "fetched").exists()


def test_the_plugin_starts_the_installation_that_was_noted(tmp_path: Path) -> None:
    (ours := tmp_path / "venv").mkdir()
    for name in ("python", "habitus"):
        (ours / name).write_text('#!/bin/sh\necho "$0 $*"\n')
        (ours / name).chmod(0o755)
    (tmp_path / ".habitus").mkdir()
    (tmp_path / ".habitus/plugin").write_text(f"{ours}/python\n/x/hook.py\n{tmp_path}\n")
    command = ["/bin/sh", str(HOOK.with_name("habitus.sh")), "mcp"]
    environ = {"HOME": str(tmp_path), "PATH": os.defpath}
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert ran.stdout == f"{ours}/habitus mcp\n"


def test_plugin_and_connect_are_never_both(direct: Direct) -> None:
    direct.ok("jobs", "hooks", "--note")
    note = direct.home / "plugin"
    assert note.exists()
    direct.ok("connect", "claude-code", "--yes")
    assert "Habitus is connected already, so its plugin rests" in direct.ok("jobs", "hooks", "--note")
    assert not note.exists()
    direct.ok("disconnect", "claude-code", "--yes")
    settings = direct.cli.user_home / ".claude/settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(json.dumps({"enabledPlugins": {"habitus@habitus": True}}))
    ran = direct("connect", "claude-code", "--yes")
    hint = "Remove it first: claude plugin uninstall habitus@habitus."
    assert (ran.code, ran.out, ran.err) == (1, "", f"habitus: Claude Code has our plugin already. {hint}\n")


@pytest.fixture
def busy_cores() -> Iterator[None]:
    """Every core of the machine has something else to do."""
    with ExitStack() as burning:
        for _ in range(os.cpu_count() or 1):
            burner = burning.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            burning.callback(burner.kill)
        yield


WAITED_FOR_S = 5.0  # by Claude Code, before its first request


@pytest.mark.full
@pytest.mark.usefixtures("busy_cores")
def test_with_every_core_busy_ten_fresh_homes_have_the_tools_in_the_first_request(tmp_path: Path) -> None:
    (ours := tmp_path / "bin").mkdir()
    (ours / "habitus").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m habitus "$@"\n')
    (ours / "habitus").chmod(0o755)
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "claude-code", "version": "2"},
    }
    asked = [{"id": 1, "method": "initialize", "params": params}, {"id": 2, "method": "tools/list"}]
    late: list[float] = []
    for number in range(10):
        (home := tmp_path / f"home-{number}").mkdir()
        environ = {"HOME": str(home), "PATH": f"{ours}:{os.defpath}"}
        began = time.monotonic()
        with subprocess.Popen(
            ["/bin/sh", HOOK.with_name("habitus.sh"), "mcp"],
            env=environ,
            cwd=home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as server:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write("".join(json.dumps({"jsonrpc": "2.0", **one}) + "\n" for one in asked))
            server.stdin.flush()
            answers = [json.loads(server.stdout.readline()) for _ in asked]
            took = time.monotonic() - began
            server.terminate()
        assert "recall_skill" in {tool["name"] for tool in answers[1]["result"]["tools"]}
        late += [took] if took >= WAITED_FOR_S else []
    assert late == []


@pytest.mark.full
@pytest.mark.usefixtures("busy_cores")
def test_with_every_core_busy_connecting_adds_one_entry_and_disconnecting_leaves_each_byte(direct: Direct) -> None:
    file = direct.cli.user_home / ".claude.json"
    file.write_text('{"numStartups": 3,   "mcpServers": {"other": {"command": "x"}}}\n')
    before = file.read_bytes()
    direct.ok("connect", "claude-code", "--yes")
    assert list(json.loads(file.read_bytes())["mcpServers"]) == ["other", "habitus"]
    direct.ok("disconnect", "claude-code", "--yes")
    assert file.read_bytes() == before
