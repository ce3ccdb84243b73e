"""`habitus skills improve --solver claude-code`: the program itself solves, and its transcript is the rollout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from habitus.app.learning.improving import open_improve_store
from habitus.skills.trees import TASKS_FILE
from habitus.tasks.checks import CalledCheck, MatchesCheck, ValidatorCheck
from habitus.tasks.files import write_tasks
from habitus.tasks.model import Task
from habitus.tasks.rollouts import Rollout, TaskSplit
from tests.cli.conftest import Direct
from tests.cli.test_agent_as_model import path_to, provider, real
from tests.cli.test_climb import opened
from tests.fake_provider import FakeProvider, Reply
from tests.llm.agents import claude, install
from tests.mcp.test_real_clients import answers, calls, results_in

__all__ = ["provider", "real"]
SKILL = "---\nname: name-a-town\ndescription: Names a town.\n---\n1. Write its name as it stands.\n"
WRITE = Task(
    id="write",
    request="Write the town of hint.txt into town.txt.",
    files={"hint.txt": "Altberg"},
    checks=(
        ValidatorCheck(code="assert open('town.txt').read().strip() == 'ALT' + 'BERG'"),
        CalledCheck(command="hint.txt"),
    ),
)
SAY = Task(id="say", request="Which town is it?", checks=(MatchesCheck(pattern="^[A-Z]+$"),))


def furnish(direct: Direct) -> list[str]:
    """A skill with two tasks on the gate, and the command that tries a candidate on them."""
    folder = direct.home / "skills" / "name-a-town"
    (folder / TASKS_FILE).parent.mkdir(parents=True)
    (folder / "SKILL.md").write_text(SKILL)
    (folder / TASKS_FILE).write_text(write_tasks([WRITE, SAY]))
    (direct.cli.cwd / "better.md").write_text(SKILL + "2. Use capitals throughout, whatever the hint has.\n")
    with opened(direct) as habitus:
        open_improve_store(habitus).add_splits("name-a-town", {"write": TaskSplit.GATE, "say": TaskSplit.GATE})
    better = str(direct.cli.cwd / "better.md")
    return ["skills", "improve", "name-a-town", "--candidate", better, "--rounds", "1", "--yes"]


def rollouts(direct: Direct) -> dict[tuple[str, bool], Rollout]:
    with opened(direct) as habitus:
        return {(one.task, one.is_new): one for one in open_improve_store(habitus).rollouts()}


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
    signed_in.write_text("signed in")
    (signed_in.parent / "CLAUDE.md").write_text("PRIVATE")
    lines = "\n".join(map(json.dumps, _TRANSCRIPT))
    solve = f"""
own="$CLAUDE_CONFIG_DIR"
find "$HOME" -type f -o -type l | sort >> "$cd_seen/home"
[ "$(cat "$own/.credentials.json")" = "signed in" ] || exit 3
mkdir -p "$own/projects/x"; cat > "$own/projects/x/s.jsonl" <<'END'
{lines}
END
grep -q capitals "$own/skills/name-a-town/SKILL.md" && up='tr a-z A-Z' || {{ up=cat; n=2; }}
[ -f hint.txt ] && $up < hint.txt > town.txt
pwd >> "$cd_seen/places"
"""
    fake = install(direct.cli.cwd / "bin", "claude-code", claude("ALTBERG"), claude("Altberg"), then=f"n=1\n{solve}")
    env = path_to(fake)
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
    assert fake.seen.arguments[-2:] == ["--model", "opus"]
    assert "(solved by claude-code:opus)" in " ".join(direct.ok("skills", "improvements", "name-a-town").split())
    seen = (fake.place / "seen" / "home").read_text()
    assert "SKILL.md" in seen
    assert not [word for word in ("evals", "CLAUDE.md", "better") if word in seen]
    places = (fake.place / "seen" / "places").read_text().split()
    assert len(places) == 4
    assert not [place for place in places if Path(place).exists() or Path(place).is_relative_to(direct.home)]


@pytest.mark.full
@pytest.mark.req("IM-04")
def test_what_goes_wrong_with_a_solver_is_said_in_a_line_and_counts_for_nothing(direct: Direct) -> None:
    command = furnish(direct)
    near = direct(*command, "--solver", "claude-coed")
    assert (near.code, near.err) == (1, "habitus: 'claude-coed' solves no tasks. Did you mean 'claude-code'?\n")
    out = install(direct.cli.cwd / "bin", "claude-code", claude("Not logged in · Please run /login", is_error=True))
    said = direct(*command, "--solver", "claude-code", env=path_to(out)).out
    assert "could not be tried 3 times: Claude Code is not signed in, or no longer" in said
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
    assert [tool["name"] for tool in asked[-1]["tools"]] == ["Glob", "Grep", "Read", "Skill"]
    sent = json.dumps(asked)
    assert "PRIVATE MEMORY" not in sent
    assert "'ALT' + 'BERG'" not in sent
    assert "haven't granted it" in results_in(asked[3]["messages"])["call_12"]
    person = direct.cli.user_home
    assert not (person / "LOOPED").exists()
    assert not list((person / ".claude").rglob("*.jsonl"))
