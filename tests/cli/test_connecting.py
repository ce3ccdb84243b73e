"""`habitus connect` and `disconnect`: agents' own configs, edited in place and put back."""

from __future__ import annotations

import json
import os
import sys
import threading
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from habitus.app import read_settings
from habitus.app.other_agents import connecting
from habitus.app.other_agents.connecting import ConnectionOptions
from habitus.files import TEMPORARY_PREFIX
from habitus.hosts import config_editing as editing
from habitus.hosts.known_agents import KNOWN_AGENTS, ConfigScope
from tests.cli.conftest import Direct

# As the agents' own documentation shows them, with what a person may have in them.
CONFIGS: Mapping[str, tuple[str, str]] = {
    "claude-code": (".claude.json", '{\n  "numStartups": 3,\n  "projects": {"/w": {"history": []}}\n}\n'),
    "codex": (".codex/config.toml", '# mine\nmodel = "o" # good\n\n[mcp_servers.docs]\ncommand = "docs"\n'),
    "cursor": (".cursor/mcp.json", '{"mcpServers": {"docs": {"command": "docs", "args": []}}}'),
    "gemini-cli": (".gemini/settings.json", '{\n  // mine\n  "theme": "dark",\n  "mcpServers": {}\n}\n'),
    "opencode": (".config/opencode/opencode.json", '{\n\t"$schema": "https://opencode.ai/config.json"\n}\n'),
    "vscode": (".config/Code/User/mcp.json", '{\r\n    "servers": {\r\n    },\r\n    "inputs": []\r\n}'),
    "copilot": (".copilot/mcp-config.json", '{"mcpServers": {}}'),
    "goose": (
        ".config/goose/config.yaml",
        "# mine\nGOOSE_MODEL: 'gpt'\nextensions:\n  docs:  # theirs\n    cmd: docs\n",
    ),
}


def put(direct: Direct, agent: str) -> Path:
    name, text = CONFIGS[agent]
    file = direct.cli.user_home / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode())
    return file


def said(agent: str, file: Path) -> Any:
    return editing.parse_config_text(file.read_bytes().decode(), KNOWN_AGENTS[agent].format)


def everything_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.req("CL-06")
@pytest.mark.parametrize("agent", CONFIGS)
@pytest.mark.skipif(sys.platform == "darwin", reason="VS Code's profile lies elsewhere")
def test_an_agent_is_connected_once_and_disconnected_byte_for_byte(direct: Direct, agent: str) -> None:
    file = put(direct, agent)
    before = everything_below(direct.cli.user_home)
    shown = direct.ok("connect", agent, "--dry-run")
    assert f"+++ {file}" in shown
    assert everything_below(direct.cli.user_home) == before
    direct.ok("connect", agent, "--yes")
    server = said(agent, file)[KNOWN_AGENTS[agent].servers]["habitus"]
    word = KNOWN_AGENTS[agent].command_key
    command = server[word] if agent == "opencode" else [server[word], *server["args"]]
    assert Path(command[0]).is_absolute()
    assert os.access(command[0], os.X_OK)
    assert command[1:] == ["--home", str(direct.home), "mcp"]
    connected = everything_below(direct.cli.user_home)
    assert "is already up to date" in direct.ok("connect", agent, "--yes")
    assert everything_below(direct.cli.user_home) == connected
    direct.ok("disconnect", agent, "--yes")
    assert everything_below(direct.cli.user_home) == before
    assert "not connected" in direct("disconnect", agent, "--yes").err


@pytest.mark.req("CL-06")
def test_keys_of_other_servers_are_not_shown_and_what_is_rewritten_meanwhile_is_kept(direct: Direct) -> None:
    file = direct.cli.user_home / ".claude.json"
    other = {"command": "node", "env": {"K": "sk-secret-17"}, "args": ["--key", "plain-secret"]}
    file.write_text(json.dumps({"mcpServers": {"a": other}, "model": "one"}, indent=2))
    for shown in (direct.ok("connect", "claude-code", "--dry-run"), direct.ok("connect", "claude-code", "--yes")):
        assert "secret" not in shown
    rewritten = json.loads(file.read_text()) | {
        "model": "two",
        "numStartups": 7,
    }  # by the program, while it is connected
    file.write_text(json.dumps(rewritten, indent=2))
    assert "secret" not in direct.ok("disconnect", "claude-code", "--dry-run")
    direct.ok("disconnect", "claude-code", "--yes")
    assert json.loads(file.read_text()) == {"mcpServers": {"a": other}, "model": "two", "numStartups": 7}


OTHERS = {
    "claude-code": (
        '{"mcpServers": {"a": {"command": "hid-1", "env": {"K": "hid-2"}, '
        '"args": ["--token", "hid-3", "habitus"]}}, "numStartups": 3, "list": [["hid-4"]], "pin": 471100, '
        '"few": 7193, "on": true, "off": false, "none": null, "both": [true, 7194]}'
    ),
    "codex": 'model = "hid-1" # hid-2\n[mcp_servers.a]\nargs = ["--token", "hid-3"]\nenv = { K = "hid-4" }\n',
    "goose": "# hid-1\nextensions:\n  a: {cmd: hid-2, envs: {K: hid-3}, args: [--token, hid-4]}\nkey: |\n  hid-5\n",
    "gemini-cli": '{\n  // hid-1\n  "mcpServers": {"a": {"env": {"K": "hid-2"}}},\n  "x": {"hidden": "hid-3"}}',
}


@pytest.mark.req("CL-06")
@pytest.mark.parametrize("agent", OTHERS)
def test_the_difference_shows_our_lines_whole_and_no_value_of_others(direct: Direct, agent: str) -> None:
    file = put(direct, agent)
    file.write_text(OTHERS[agent])
    shown = [direct.ok("connect", agent, "--dry-run"), direct.ok("connect", agent, "--yes")]
    shown.append(direct.ok("disconnect", agent, "--dry-run"))
    for text in shown:
        assert "hid-" not in text
        assert not any(each in text for each in ("471100", "719", "on: true", "off: false", "none: null", "[true"))
        assert f'"--home", "{direct.home}", "mcp"]' in text
    if agent == "claude-code":
        assert "numStartups: …" in shown[0]
        assert "K: …" in shown[0]
        # What a person added to our entry is not ours.
        config = json.loads(file.read_text())
        config["mcpServers"]["habitus"]["env"] = {"K": "hid-5"}
        file.write_text(json.dumps(config))
        assert "hid-" not in direct.ok("disconnect", agent, "--dry-run")


@pytest.mark.req("CL-06")
def test_what_is_written_is_in_the_shape_and_the_units_of_each_agent(direct: Direct) -> None:
    shapes = {}
    for agent in (name for name in CONFIGS if ConfigScope.PROJECT in KNOWN_AGENTS[name].config):
        direct.ok("connect", agent, "--yes", "--scope", "project")
        planned = connecting.plan_connection(
            read_settings(direct.home, direct.cli.environ()).model_copy(update={"cwd": direct.cli.cwd}),
            direct.cli.environ(),
            agent,
            ConnectionOptions(scope=ConfigScope.PROJECT),
        )
        file = planned.changes[0].request.file
        server = said(agent, file)[KNOWN_AGENTS[agent].servers]["habitus"]
        shapes[agent] = (str(file.relative_to(direct.cli.cwd)), {key: type(server[key]).__name__ for key in server})
    plain = {"command": "str", "args": "list"}
    assert shapes == {
        "claude-code": (".mcp.json", {"type": "str", "alwaysLoad": "bool", **plain}),
        "codex": (".codex/config.toml", plain),
        "cursor": (".cursor/mcp.json", plain),
        "gemini-cli": (".gemini/settings.json", plain),
        "opencode": ("opencode.json", {"type": "str", "enabled": "bool", "timeout": "int", "command": "list"}),
        "vscode": (".vscode/mcp.json", {"type": "str", **plain}),
    }
    assert json.loads((direct.cli.cwd / "opencode.json").read_text())["mcp"]["habitus"]["timeout"] == 30_000  # ms
    hooks = json.loads((direct.cli.cwd / ".claude/settings.local.json").read_text())["hooks"]
    assert {group["hooks"][0]["timeout"] <= 15 for (group,) in hooks.values()} == {True}  # seconds
    assert {"matcher" in group for (group,) in hooks.values()} == {False}  # an agent that runs them ignores it


@pytest.mark.req("CL-06")
def test_an_installation_whose_server_cannot_start_or_last_is_not_connected(
    direct: Direct, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = everything_below(direct.cli.user_home)
    source = Path(__file__).parents[2].as_uri()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "mcp", None)
        refused = direct("connect", "claude-code", "--yes")
    missing = "The server that an agent starts needs the extra 'mcp', which is not installed."
    hint = f"Run: uv tool install 'habitus[all] @ {source}', or: pip install 'habitus[mcp] @ {source}'."
    assert (refused.code, refused.out, refused.err) == (1, "", f"habitus: {missing} {hint}\n")
    cache = direct.cli.cwd / "cache"
    cache.mkdir()
    (cache / "CACHEDIR.TAG").write_text("Signature: 8a477f597d28d172789f06886806bc55")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "prefix", str(cache / "archive-v0" / "1"))  # as of `uvx`
        refused = direct("connect", "claude-code", "--yes")
    assert refused.err == (
        "habitus: This Habitus runs from a cache that can be cleared at any time. "
        f"Run: uv tool install 'habitus[all] @ {source}'.\n"
    )
    assert everything_below(direct.cli.user_home) == before


@pytest.mark.req("CL-06")
def test_where_there_is_nothing_to_connect_to_that_is_said(direct: Direct) -> None:
    assert "no way to do that with Pi. There are: claude-code" in direct("connect", "pi", "--yes").err
    ran = direct("connect", "goose", "--yes", "--scope", "project")
    assert (ran.code, ran.err) == (1, "habitus: Goose has no settings for a project. It has them for a user.\n")


@pytest.mark.req("CL-06")
def test_what_others_wrote_since_stays_when_it_is_disconnected(direct: Direct) -> None:
    file = put(direct, "claude-code")
    settings = direct.cli.user_home / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "theirs"}]}]}}')
    direct.ok("connect", "claude-code", "--yes")
    for path in (file, settings):  # as a program does that writes its config anew
        path.write_text(json.dumps({**json.loads(path.read_text()), "new": True}, indent=4))
    direct.ok("disconnect", "claude-code", "--yes")
    assert json.loads(file.read_text()) == {**json.loads(CONFIGS["claude-code"][1]), "new": True}
    theirs = {"Stop": [{"hooks": [{"type": "command", "command": "theirs"}]}]}
    assert json.loads(settings.read_text()) == {"hooks": theirs, "new": True}


@pytest.mark.req("CL-06")
def test_an_entry_of_that_name_that_somebody_made_comes_back(direct: Direct) -> None:
    file = put(direct, "cursor")
    file.write_text('{"mcpServers": {"habitus": {"command": "mine"}}}')
    direct.ok("connect", "cursor", "--yes")
    file.write_text(file.read_text() + "\n")
    direct.ok("disconnect", "cursor", "--yes")
    assert json.loads(file.read_text()) == {"mcpServers": {"habitus": {"command": "mine"}}}


@pytest.mark.req("CL-06")
def test_each_hook_can_be_refused(direct: Direct) -> None:
    shown = direct.ok("connect", "claude-code", "--yes", "--no-hook", "stop", "--no-hook", "UserPromptSubmit")
    settings = direct.cli.user_home / ".claude" / "settings.json"
    assert list(json.loads(settings.read_text())["hooks"]) == ["SessionStart", "PostToolUseFailure", "SessionEnd"]
    assert "PostToolUseFailure: tells it what helped" in shown
    direct.ok("connect", "claude-code", "--yes", "--no-hook", "all")
    assert not settings.exists()
    direct.ok("connect", "claude-code", "--yes")
    direct.ok("connect", "claude-code", "--yes", "--scope", "project")  # it would run both
    assert not (direct.cli.cwd / ".claude").exists()
    assert "Did you mean 'SessionStart'?" in direct("connect", "claude-code", "--no-hook", "SesionStart").err


@pytest.mark.parametrize(
    ("agent", "text"),
    [
        ("claude-code", '{"numStartups": 3,'),
        ("claude-code", "{\n  // Claude Code reads no comments\n}"),
        ("codex", "model = \n"),
        ("opencode", '{"mcp": {"x": }}'),
        ("cursor", '{"version": 7, "mcpServers": {}}'),
        ("gemini-cli", '{"$version": 99}'),
        ("vscode", '{"servers": ["a list"]}'),
    ],
)
def test_a_config_that_can_not_be_read_is_left_alone(direct: Direct, agent: str, text: str) -> None:
    file = put(direct, agent)
    file.write_text(text)
    ran = direct("connect", agent, "--yes")
    assert (ran.code, file.read_text()) == (1, text)
    assert ran.err.startswith(f"habitus: {file} can't be edited: ")
    assert ran.err.endswith("Nothing was changed.\n")
    assert ran.err.count("\n") == 1


def test_a_read_only_config_is_left_alone(direct: Direct) -> None:
    file = put(direct, "codex")
    file.chmod(0o444)
    assert f"{file} is read-only." in direct("connect", "codex", "--yes").err
    assert file.read_text() == CONFIGS["codex"][1]


def test_a_linked_config_is_written_where_it_lies(direct: Direct) -> None:
    file = put(direct, "codex")
    kept = direct.cli.user_home / "dotfiles.toml"
    file.rename(kept)
    kept.chmod(0o640)
    file.symlink_to(kept)
    direct.ok("connect", "codex", "--yes")
    assert file.is_symlink()
    assert "habitus" in tomllib.loads(kept.read_text())["mcp_servers"]
    assert kept.stat().st_mode & 0o777 == 0o640
    direct.ok("disconnect", "codex", "--yes")
    assert (file.is_symlink(), kept.read_text()) == (True, CONFIGS["codex"][1])


def test_two_connects_at_once_leave_one_entry(direct: Direct) -> None:
    file = put(direct, "claude-code")
    settings = read_settings(direct.home, direct.cli.environ())
    plans = [
        connecting.plan_connection(settings, direct.cli.environ(), "claude-code", ConnectionOptions()) for _ in range(4)
    ]
    threads = [threading.Thread(target=connecting.apply_connection_plan, args=(settings, plan)) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(json.loads(file.read_text())["mcpServers"]) == ["habitus"]
    direct.ok("disconnect", "claude-code", "--yes")
    assert file.read_text() == CONFIGS["claude-code"][1]


@pytest.mark.req("CL-06")
def test_what_the_agent_rewrites_between_our_look_and_our_write_is_kept(direct: Direct) -> None:
    """Also in the moment in which our own file is written beside it, and on the way back."""
    direct.cli.user_home.joinpath(".claude").mkdir()
    file, rewriting = direct.cli.user_home / ".claude" / "settings.json", [True]
    file.write_text("{}")
    settings = read_settings(direct.home, direct.cli.environ())
    rewrites = iter(range(10_000))

    def rewrite(event: str, arguments: tuple[Any, ...]) -> None:
        opens = str(arguments[0]) if event == "open" and rewriting else ""
        if opens.startswith(str(file.parent / TEMPORARY_PREFIX)) and rewriting.pop():
            model = f"model {next(rewrites)}"
            file.write_text(json.dumps({**json.loads(file.read_text()), "model": model}, indent=4))

    sys.addaudithook(rewrite)  # it stays, and does nothing once the list is empty
    plan = connecting.plan_connection(settings, direct.cli.environ(), "claude-code", ConnectionOptions(hooks=["Stop"]))
    file.write_text('{"theme": "dark"}')
    connecting.apply_connection_plan(settings, plan)
    now = json.loads(file.read_text())
    assert (now["theme"], now["model"], len(now["hooks"]["Stop"])) == ("dark", "model 0", 1)
    back = connecting.plan_disconnection(settings, direct.cli.environ(), "claude-code", ConfigScope.USER)
    rewriting.append(True)
    connecting.apply_connection_plan(settings, back)
    assert json.loads(file.read_text()) == {"theme": "dark", "model": "model 1"}


def test_an_entry_of_our_name_that_nobody_was_shown_is_not_overwritten(direct: Direct) -> None:
    file = put(direct, "cursor")
    settings = read_settings(direct.home, direct.cli.environ())
    plan = connecting.plan_connection(settings, direct.cli.environ(), "cursor", ConnectionOptions())
    theirs = '{"mcpServers": {"habitus": {"command": "mine"}}}'
    file.write_text(theirs)
    with pytest.raises(Exception, match="was changed meanwhile"):
        connecting.apply_connection_plan(settings, plan)
    assert file.read_text() == theirs


def test_nothing_is_changed_unasked_and_keys_in_a_config_are_not_shown(direct: Direct) -> None:
    file = put(direct, "cursor")
    file.write_text('{\n  "env": {"OPENAI_API_KEY": "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"},\n  "a": 1\n}')
    ran = direct("connect", "cursor")
    assert ran.code == 1
    assert "Add --yes" in ran.err
    assert "sk-proj" not in ran.out
    assert "Experimental: its files are known from third parties only." in ran.out
    assert "mcpServers" not in file.read_text()


@pytest.mark.req("CL-06")
def test_a_block_of_instructions_holds_personal_rules_only_in_a_personal_file(direct: Direct) -> None:
    direct.ok("lessons", "add", "Never push to main by force.", "--kind", "never")
    shared = direct.cli.cwd / "AGENTS.md"
    shared.write_text("# Project\n\nUse tabs.\n")
    direct.ok("connect", "codex", "--yes", "--scope", "project", "--block")
    direct.ok("connect", "opencode", "--yes", "--scope", "project", "--block")
    assert "search_skills" in shared.read_text()
    assert "force" not in shared.read_text()
    direct.ok("connect", "codex", "--yes", "--scope", "project", "--block", "--with-rules")
    assert "- Never push to main by force." in shared.read_text()
    direct.ok("connect", "codex", "--yes", "--block")
    assert "- Never push to main by force." in (direct.cli.user_home / ".codex" / "AGENTS.md").read_text()
    direct.ok("disconnect", "codex", "--yes", "--scope", "project")
    assert "search_skills" in shared.read_text()  # the other agent still reads it
    direct.ok("disconnect", "opencode", "--yes", "--scope", "project")
    assert shared.read_text() == "# Project\n\nUse tabs.\n"
