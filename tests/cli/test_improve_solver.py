"""`habitus skills improve --solver claude-code`: the program itself solves, and its transcript is the rollout."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from habitus.app.learning.improve_store import open_improve_store
from habitus.app.learning.solver_box import open_solver_box
from habitus.llm.agents.program import AgentProgramPrompt
from habitus.llm.agents.running import temporary_workspace
from habitus.llm.agents.solvers import find_solver_program
from habitus.sandbox.machine import probe_machine
from habitus.skills.trees import TASKS_FILE
from habitus.tasks.checks import PythonValidatorCheck, ReplyMatchesPatternCheck, ToolCalledCheck
from habitus.tasks.files import serialize_tasks
from habitus.tasks.model import Task
from habitus.tasks.rollouts import Rollout, TaskSplit
from tests.cli.conftest import Direct
from tests.cli.test_agent_as_model import provider, real
from tests.cli.test_climb import opened
from tests.fake_provider import FakeProvider, Reply
from tests.llm.agents import SAYS, claude, codex
from tests.mcp.test_real_clients import answers, calls, results_in

__all__ = ["provider", "real"]
SKILL = "---\nname: name-a-town\ndescription: Names a town.\n---\n1. Write its name as it stands.\n"
WRITE = Task(
    id="write",
    request="Write the town of hint.txt into town.txt.",
    files={"hint.txt": "Altberg"},
    checks=(
        PythonValidatorCheck(code="assert open('town.txt').read().strip() == 'ALT' + 'BERG'"),
        ToolCalledCheck(command="hint.txt"),
    ),
)
SAY = Task(id="say", request="Which town is it?", checks=(ReplyMatchesPatternCheck(pattern="^[A-Z]+$"),))


def furnish(direct: Direct) -> list[str]:
    """A skill with two tasks on the gate, and the command that tries a candidate on them."""
    folder = direct.home / "skills" / "name-a-town"
    (folder / TASKS_FILE).parent.mkdir(parents=True)
    (folder / "SKILL.md").write_text(SKILL)
    (folder / TASKS_FILE).write_text(serialize_tasks([WRITE, SAY]))
    (direct.cli.cwd / "better.md").write_text(SKILL + "2. Use capitals throughout, whatever the hint has.\n")
    with opened(direct) as habitus:
        open_improve_store(habitus).add_task_splits("name-a-town", {"write": TaskSplit.GATE, "say": TaskSplit.GATE})
    better = str(direct.cli.cwd / "better.md")
    return ["skills", "improve", "name-a-town", "--candidate", better, "--rounds", "1", "--yes"]


def rollouts(direct: Direct) -> dict[tuple[str, bool], Rollout]:
    with opened(direct) as habitus:
        return {(one.task, one.is_new): one for one in open_improve_store(habitus).list_rollouts()}


_TRANSCRIPT = [
    {"type": "user", "message": {"role": "user", "content": "Write the town"}, "uuid": "1", "sessionId": "s"},
    {
        "type": "assistant",
        "uuid": "2",
        "message": {
            "id": "m",
            "content": [
                {"type": "tool_use", "id": "a", "name": "Skill", "input": {"skill": "name-a-town"}},
                {"type": "tool_use", "id": "b", "name": "Bash", "input": {"command": "cat hint.txt"}},
            ],
        },
    },
    {
        "type": "user",
        "uuid": "3",
        "message": {"content": [{"type": "tool_result", "tool_use_id": "b", "content": "Altberg"}]},
    },
]


@pytest.mark.full
@pytest.mark.req("IM-04")
def test_a_program_solves_in_a_home_with_only_this_version_and_its_transcript_is_read_back(direct: Direct) -> None:
    command = furnish(direct)
    signed_in = direct.cli.user_home / ".claude" / ".credentials.json"
    signed_in.parent.mkdir()
    signed_in.write_text('{"claudeAiOauth": {"accessToken": "signed in"}}')
    (signed_in.parent / "CLAUDE.md").write_text("PRIVATE")
    lines = "\n".join(map(json.dumps, _TRANSCRIPT))
    env = put_program(
        direct,
        f"""
own="$CLAUDE_CONFIG_DIR"
grep -q "signed in" "$own/.credentials.json" || exit 3
[ -z "$(find "$HOME" | grep -e evals -e CLAUDE.md -e better)" ] || exit 4
case "$*" in *"--model opus") ;; *) exit 5 ;; esac
mkdir -p "$own/projects/x"; cat > "$own/projects/x/s.jsonl" <<'END'
{lines}
END
up=cat; town=Altberg
grep -q capitals "$own/skills/name-a-town/SKILL.md" && up='tr a-z A-Z' && town=ALTBERG
[ -f hint.txt ] && $up < hint.txt > town.txt
echo '{claude("TOWN")}' | sed "s/TOWN/$town/"
""",
    )
    assert (
        "Claude Code solves the tasks itself, on this machine and as you"
        in direct(*command[:-1], "--solver", "claude-code", "--dry-run", env=env).out
    )
    said = direct(*command, "--solver", "claude-code:opus", "--budget", "$5", env=env).out
    assert "not shown: 0 → 100 of 100 on 2 tasks" in said
    found = rollouts(direct)
    assert {key: one.outcome for key, one in found.items()} == {
        **dict.fromkeys([("write", True), ("say", True)], "ok"),
        **dict.fromkeys([("write", False), ("say", False)], "failed"),
    }
    assert all((one.is_opened, one.tokens, one.dollars) == (True, 107, 0.25) for one in found.values())
    with opened(direct) as habitus:
        (candidate,) = open_improve_store(habitus).list_candidates("name-a-town")
    assert (candidate.solver, candidate.model) == ("claude-code:opus", "opus")
    assert "(solver: claude-code:opus)" in " ".join(direct.ok("skills", "improvements", "name-a-town").split())
    assert not list((direct.cli.user_home / ".cache" / "habitus").iterdir())


def put_program(direct: Direct, script: str, name: str = "claude") -> dict[str, str]:
    """Install a script as the program; return the environment to find it in."""
    program = direct.cli.cwd / "bin" / name
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"PATH": f"{program.parent}:{os.environ['PATH']}"}


BOXED = pytest.mark.skipif(probe_machine().bubblewrap is None, reason="bubblewrap is not installed")


@BOXED
@pytest.mark.req("IM-10", "SB-09")
def test_a_solver_reaches_neither_files_nor_processes_nor_hosts_nor_keys_of_the_person(direct: Direct) -> None:
    command, home = furnish(direct), direct.cli.user_home
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id").write_text("KEY")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        reached = f"""
leaks=""
for path in '{home}/.ssh/id' '{direct.home}/skills' '{direct.home}' '{direct.cli.cwd}/better.md'; do
  [ -e "$path" ] && leaks="$leaks $path"
done
[ -e /proc/{os.getpid()}/cmdline ] && grep -q pytest /proc/{os.getpid()}/cmdline && leaks="$leaks processes"
env | grep -q -e AWS_SECRET -e OTHER_TOKEN -e DBUS && leaks="$leaks environment"
env | grep -q ANTHROPIC_API_KEY || leaks="$leaks no-key"
touch /usr/planted 2>/dev/null && leaks="$leaks /usr"
python3 - <<'END' || leaks="$leaks network"
import os, socket, sys
def answers(port, request=b""):
    try:
        with socket.create_connection(("127.0.0.1", port), 2) as line:
            line.sendall(request)
            return line.recv(100).decode() if request else "open"
    except OSError:
        return ""
refused = answers(3128, b"CONNECT 127.0.0.1:{port} HTTP/1.1\\r\\n\\r\\n")
sys.exit(bool(answers({port})) or " 403 " not in refused)
END
sleep 3217 &
echo '{claude("LEAKS")}' | sed "s:LEAKS:${{leaks:-NONE}}:"
"""
        secrets = {"AWS_SECRET_ACCESS_KEY": "x", "OTHER_TOKEN": "x", "ANTHROPIC_API_KEY": "x"}
        env = {**put_program(direct, reached), **secrets, "DBUS_SESSION_BUS_ADDRESS": "x"}
        said = direct(*command, "--solver", "claude-code", "--budget", "$5", env=env).out
    found = rollouts(direct)
    # The check of this task takes capitals alone, and the names of leaks have other letters.
    assert {found["say", is_new].outcome for is_new in (True, False)} == {"ok"}, said
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if b"sleep\x003217" in _read(path)]
    assert left == []


@pytest.mark.req("IM-10")
def test_no_task_decides_which_tools_a_solver_has(direct: Direct) -> None:
    """One of the tasks brings files and checks for them, the other asks for words alone."""
    command = furnish(direct)
    tools = "--tools Skill,Read,Glob,Grep,Write,Edit,Bash --allowedTools Skill,Bash --permission-mode acceptEdits"
    script = f"""case "$*" in *"{tools}") echo '{claude("ALTBERG")}' ;; *) exit 5 ;; esac"""
    said = direct(*command, "--solver", "claude-code", "--budget", "$5", env=put_program(direct, script)).out
    found = rollouts(direct)
    assert {key: one.outcome for key, one in found.items() if key[1]} == {
        ("write", True): "failed",
        ("say", True): "ok",
    }, said


@pytest.mark.req("IM-10")
def test_without_a_box_only_the_persons_own_skills_are_solved_and_seen(direct: Direct, tmp_path: Path) -> None:
    command = furnish(direct)
    theirs = tmp_path / "theirs" / "sum-up"
    theirs.mkdir(parents=True)
    (theirs / "SKILL.md").write_text("---\nname: sum-up\ndescription: Sums up a list.\n---\n1. Add up.\n")
    direct.ok("skills", "import", str(theirs.parent))
    direct.ok("tasks", "add", "sum-up", "--request", "x", "--expect", "y", "--id", "mine")
    own = direct.home / "skills" / "water-plants"
    own.mkdir()
    (own / "SKILL.md").write_text(SKILL.replace("name-a-town", "water-plants"))
    seen = tmp_path / "seen"
    script = (
        f"""for one in "$CLAUDE_CONFIG_DIR"/skills/*; do echo "${{one##*/}}" >> '{seen}'; done; echo '{claude("X")}'"""
    )
    # No folder of the system, where bubblewrap is.
    env = {"PATH": put_program(direct, script)["PATH"].partition(":")[0]}
    plan = direct.ok(*command[:-1], "--solver", "claude-code", "--dry-run", env=env)
    assert "can read your files, reach the network and start programs, so it solves only with skills of your" in plan
    direct(*command, "--solver", "claude-code", "--budget", "$5", env=env)
    others = {"name-a-town", "water-plants"}
    assert others <= set(seen.read_text().split())
    assert "sum-up" not in seen.read_text()

    refused = direct("skills", "improve", "sum-up", *command[3:], "--solver", "claude-code", "--budget", "$5", env=env)
    assert refused.code == 1
    assert "Claude Code can't be held on this machine, and 'sum-up' is not yours: it was imported from" in refused.err


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@BOXED
@pytest.mark.req("IM-10")
def test_links_pipes_and_deep_folders_that_a_solver_leaves_are_removed_unread(direct: Direct) -> None:
    """What the box leaves is read outside of it."""
    command = furnish(direct)
    theirs = direct.cli.user_home / ".claude" / "projects" / "x" / "real.jsonl"
    theirs.parent.mkdir(parents=True)
    private = {"type": "user", "message": {"role": "user", "content": "PRIVATE TALK"}, "uuid": "1", "sessionId": "s"}
    theirs.write_text("\n".join(map(json.dumps, [private, *_TRANSCRIPT[1:]])))
    plant = f"""own="$CLAUDE_CONFIG_DIR/projects/x"; mkdir -p "$own"
ln -s '{theirs}' "$own/a.jsonl"; mkfifo "$own/b.jsonl"; ln -s /dev/zero "$own/c.jsonl"
ln -s '{theirs.parent}' "$CLAUDE_CONFIG_DIR/projects/y"; ln -s d.jsonl "$own/d.jsonl"
cd "$HOME"; python3 -c 'import os
for _ in range(1200): os.mkdir("deep"); os.chdir("deep")' || exit 3
echo '{claude("ALTBERG")}'"""
    said = direct(*command, "--solver", "claude-code", "--budget", "$5", env=put_program(direct, plant))
    found = rollouts(direct)
    assert {one.outcome for one in found.values()} == {"ok", "failed"}, said
    assert "PRIVATE TALK" not in repr(found)
    assert not any(one.is_opened for one in found.values())
    # What no recursive removal can remove is removed as well.
    assert [*(direct.cli.user_home / ".cache" / "habitus").iterdir()] == []


# Each is planted where the host reads after the run, by the formats that it recognizes.
_PLANTED = {
    "files beside a transcript that are pipes": (
        "gemini-cli",
        """own="$HOME/.gemini/tmp/x"; mkdir -p "$own/chats"; mkfifo "$own/.project_root"
cat > "$own/chats/session-1.json" <<'END'\n{"sessionId": "s", "projectHash": "x", "messages": []}\nEND""",
    ),
    "messages beside a session that are links": (
        "opencode",
        """own="$HOME/data/opencode"; mkdir -p "$own/message" "$own/part"
echo '{"id": "ses_1", "directory": "/x"}' > "$own/opencode-1.db"
ln -s 'THEIRS/message' "$own/message/opencode-1"; ln -s 'THEIRS/part' "$own/part/m"; ln -s 'THEIRS/part' "$own/part/x"
mkfifo "$own/part/pipe.json" """,
    ),
    "a pipe as the journal of a database": (
        "opencode",
        """python3 -c 'import sqlite3
with sqlite3.connect("x") as one: one.execute("CREATE TABLE session (id)")'
mv x "$HOME/data/opencode/opencode-1.db"; mkfifo "$HOME/data/opencode/opencode-1.db-journal" """,
    ),
    "an endless view": (
        "opencode",
        """python3 -c 'import sqlite3
with sqlite3.connect("x") as one: one.execute("CREATE VIEW session AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL "
"SELECT id + 1 FROM n) SELECT id, 1 AS directory FROM n")'
mv x "$HOME/data/opencode/opencode-1.db" """,
    ),
    "folders too deep to look through": (
        "codex",
        """mkdir -p "$CODEX_HOME/sessions"; cd "$CODEX_HOME/sessions"; python3 -c 'import os
for _ in range(1200): os.mkdir("deep"); os.chdir("deep")' """,
    ),
    "a pipe as settings": ("codex", """rm "$CODEX_HOME/config.toml"; mkfifo "$CODEX_HOME/config.toml" """),
    "a pipe as usage": ("copilot", """rm -f "$HOME/usage.json"; mkfifo "$HOME/usage.json" """),
    "a large file with nothing in it": (
        "codex",
        """mkdir -p "$CODEX_HOME/sessions"; truncate -s 900G "$CODEX_HOME/sessions/rollout-1.jsonl" """,
    ),
}


@BOXED
@pytest.mark.req("IM-10")
@pytest.mark.parametrize("what", _PLANTED)
def test_what_a_solver_plants_for_the_host_to_read_is_neither_followed_nor_waited_for(
    direct: Direct, what: str, tmp_path: Path
) -> None:
    command, (agent, plant) = furnish(direct), _PLANTED[what]
    call = {"type": "tool", "callID": "c", "tool": "bash", "state": {"input": {"command": "PRIVATE TALK"}}}
    theirs = {"message/m": {"role": "user"}, "part/a": {"type": "text", "text": "Sum up."}, "part/b": call}
    for name, content in theirs.items():
        (file := tmp_path / f"{name}.json").parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(content))
    script = plant.replace("THEIRS", str(tmp_path)) + f"\ncat <<'END'\n{SAYS[agent]('ALTBERG')}\nEND"
    name = {"opencode": "opencode:openai/m"}.get(agent, agent)
    env = direct.cli.environ(put_program(direct, script, find_solver_program(agent).program.command))
    said = subprocess.run(
        [*direct.cli.command, *command, "--solver", name, "--budget", "$5"],
        cwd=direct.cli.cwd,
        env=env,
        check=False,
        capture_output=True,
        timeout=120,
    )
    found = rollouts(direct)
    assert found["say", True].outcome == "ok", said
    assert "PRIVATE TALK" not in repr(found)
    assert [*(direct.cli.user_home / ".cache" / "habitus").iterdir()] == []


@pytest.mark.req("IM-04")
def test_an_agent_whose_own_sandbox_does_not_start_counts_for_nothing(direct: Direct) -> None:
    command = furnish(direct)
    broken = "bwrap: execvp codex-linux-sandbox: No such file or directory"
    elsewhere = f"""case "$CODEX_HOME" in '{direct.cli.user_home}/.cache/habitus/'*) ;; *) exit 4 ;; esac"""
    env = put_program(direct, f"{elsewhere}\ncat <<'END'\n{codex(broken)}\nEND", "codex")
    said = direct(*command, "--solver", "codex", "--budget", "$5", env=env).out
    assert f"the program says: {broken}" in " ".join(said.split())
    assert {one.outcome for one in rollouts(direct).values()} == {"infra"}


@pytest.mark.req("IM-04")
def test_an_agent_whose_every_command_fails_for_want_of_a_helper_counts_for_nothing(direct: Direct) -> None:
    command, broken = furnish(direct), "bwrap: execvp sandbox-helper: No such file or directory"
    result = {"type": "tool_result", "tool_use_id": "b", "content": broken, "is_error": True}
    lines = "\n".join(map(json.dumps, [*_TRANSCRIPT[:2], {**_TRANSCRIPT[2], "message": {"content": [result]}}]))
    script = f"""mkdir -p "$CLAUDE_CONFIG_DIR/projects/x"; cat > "$CLAUDE_CONFIG_DIR/projects/x/s.jsonl" <<'END'
{lines}
END
echo '{claude("I could not read it.")}'"""
    direct(*command, "--solver", "claude-code", "--budget", "$5", env=put_program(direct, script))
    assert {one.outcome for one in rollouts(direct).values()} == {"infra"}


@BOXED
@pytest.mark.req("IM-10")
def test_the_box_grants_the_provider_of_the_person_and_no_host_that_a_skill_names(tmp_path: Path) -> None:
    solver, room = find_solver_program("codex"), tmp_path / "room"
    theirs = tmp_path / "person" / ".codex" / "config.toml"
    theirs.parent.mkdir(parents=True)
    theirs.write_text('[model_providers.here]\nbase_url = "https://me@models.example.org/v1"\n')
    environ = {"HOME": str(tmp_path / "person"), "OPENAI_BASE_URL": "http://127.0.0.1:8080"}
    question = AgentProgramPrompt(system="", prompt="x", model="", workspace=room, environ=environ, is_boxed=True)
    assert "danger-full-access" in solver.build_call(question).arguments
    for folder in (room / solver.skills / "evil", room / "work"):
        folder.mkdir(parents=True)
        (folder / "x.json").write_text('{"baseUrl": "https://evil.example"}')
    box = open_solver_box(solver, question, room / "work")
    assert box is not None
    assert box.hosts == (*solver.find_hosts(question), "127.0.0.1:8080", "models.example.org")
    assert open_solver_box(solver, replace(question, is_boxed=False), room / "work") is None


@pytest.mark.req("IM-10")
async def test_folders_of_killed_runs_are_swept_and_those_in_use_stay(tmp_path: Path) -> None:
    (left := tmp_path / "habitus-ask-left").mkdir()
    async with temporary_workspace(tmp_path) as used:
        for folder in (left, used.parent):
            os.utime(folder, (0, 0))
        async with temporary_workspace(tmp_path) as other:
            assert sorted(tmp_path.iterdir()) == sorted([used.parent, other.parent])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
@pytest.mark.req("IM-04")
def test_what_goes_wrong_with_a_solver_is_said_in_a_line_and_counts_for_nothing(direct: Direct) -> None:
    command = furnish(direct)
    near = direct(*command, "--solver", "claude-coed")
    assert (near.code, near.err) == (1, "habitus: 'claude-coed' solves no tasks. Did you mean 'claude-code'?\n")
    out = put_program(direct, f"""echo '{claude("Not logged in: Please run /login", is_error=True)}'""")
    said = direct(*command, "--solver", "claude-code", env=out).out
    assert "could not be tried 3 times: Claude Code is not signed in, or no longer" in said
    assert {one.outcome for one in rollouts(direct).values()} == {"infra"}


@pytest.mark.req("IM-04")
@pytest.mark.parametrize("is_error", [True, False])
def test_a_limit_that_is_reached_counts_for_neither_version(direct: Direct, is_error: bool) -> None:
    limit = "You\u2019ve hit your limit, resets at 3pm".replace("\u2019", "")
    out = put_program(direct, f"""echo '{claude(limit, is_error=is_error)}'""")
    said = " ".join(direct(*furnish(direct), "--solver", "claude-code", env=out).out.split())
    assert ("Claude Code has reached a limit" if is_error else f"the program says: {limit}") in said
    assert ".." not in said
    assert {one.outcome for one in rollouts(direct).values()} == {"infra"}


@pytest.mark.full
@pytest.mark.req("IM-04")
def test_the_real_claude_code_solves_the_tasks_itself(
    direct: Direct, provider: FakeProvider, real: dict[str, str]
) -> None:
    command = furnish(direct)

    def turn(number: int, *steps: Any, say: str) -> list[Reply]:
        made = [calls(10 * number + place, tool, **given) for place, (tool, given) in enumerate(steps)]
        return [*made, answers({"type": "text", "text": say})]

    skill = ("Skill", {"skill": "name-a-town"})
    loud = ("Bash", {"command": "tr a-z A-Z < hint.txt > town.txt", "description": "x"})
    plain = ("Bash", {"command": "cp hint.txt town.txt", "description": "x"})
    refused = ("Read", {"file_path": str(direct.home / "skills" / "name-a-town" / TASKS_FILE)})
    provider.gives(
        *turn(1, skill, loud, refused, say="Done."),  # the candidate is first where the first task is concerned
        *turn(2, skill, plain, say="Done."),
        *turn(3, say="Altberg"),
        *turn(4, skill, say="ALTBERG"),
    )
    said = direct(*command, "--solver", "claude-code:claude-sonnet-4-5", env=real).out
    assert "not shown: 0 → 100 of 100 on 2 tasks" in said, said
    found = rollouts(direct)
    assert {key: one.is_opened for key, one in found.items()} == {
        ("write", True): True,
        ("write", False): True,
        ("say", False): False,
        ("say", True): True,
    }
    assert all(one.tokens for one in found.values())
    assert [found["write", is_new].steps for is_new in (True, False)] == [3, 2]
    asked = [one.body for one in provider.requests]
    assert [tool["name"] for tool in asked[0]["tools"]] == ["Bash", "Edit", "Glob", "Grep", "Read", "Skill", "Write"]
    assert asked[-1]["tools"] == asked[0]["tools"]
    sent = json.dumps(asked)
    assert "PRIVATE MEMORY" not in sent
    assert "'ALT' + 'BERG'" not in sent
    assert "haven't granted it" in results_in(asked[3]["messages"])["call_12"]
    person = direct.cli.user_home
    assert not (person / "LOOPED").exists()
    assert not list((person / ".claude").rglob("*.jsonl"))
