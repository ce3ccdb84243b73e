"""`habitus tools …` as a person types it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Direct

pytestmark = pytest.mark.req("SB-06")

SHOUT = 'import json, sys\nprint(json.loads(sys.argv[1])["text"].upper())\n'
SCHEMA = '{"properties": {"text": {"type": "string"}}, "required": ["text"]}'
NEW = ("tools", "new", "shout", "-d", "Makes it loud.", "--code", "-", "-p", '{"text": "hi"}', "-s", SCHEMA)


def _kept_tool(direct: Direct) -> None:
    said = direct.ok(*NEW, stdin=SHOUT)
    assert said == (
        "shout works: saved as version 1, with its payload as a test case.\nUndo: habitus undo shout@user:1\n"
    )


def test_a_tool_is_made_run_shown_tested_removed_and_brought_back(direct: Direct) -> None:
    _kept_tool(direct)
    assert direct.ok("tools", "run", "shout", '{"text": "psst"}') == "PSST\n"
    assert direct.ok("tools", "list").splitlines()[1].split() == [
        "shout",
        "active",
        "user",
        "v1",
        *["Makes", "it", "loud."],
    ]
    shown = direct.json("tools", "show", "shout")
    assert (shown["status"], shown["example"], shown["counters"]["succeeded"]) == ("active", {"text": "hi"}, 1)
    assert "only its own empty folder" in direct.ok("tools", "show", "shout")
    assert direct.ok("tools", "test") == "shout: 1 of 1 case passed.\n"
    assert direct.json("tools", "test", "shout")["tested"][0]["passed"] is True
    assert "Undo: habitus tools restore shout@user" in direct.ok("tools", "remove", "shout")
    restoring = {"name": "shout", "reason": "tool retired", "undo": ["tools", "restore", "shout"]}
    assert direct.json("tools", "list") == {"tools": [], "retired": [restoring], "next": None, "total": 0}
    assert "shout retired tool retired; habitus tools restore shout" in " ".join(direct.ok("tools", "list").split())
    assert "was restored (active)" in direct.ok("tools", "restore", "shout")
    assert direct.json("tools", "list")["retired"] == []


@pytest.mark.full
def test_what_does_not_work_is_told_in_one_line_and_leaves_nothing(direct: Direct) -> None:
    for change, message in [
        (("--code", "/nowhere.py"), "Can't read /nowhere.py"),
        (("-s", "[1]"), "The parameters are not a JSON Schema object"),
        (("-s", '{"type": '), "The schema is not valid JSON"),
        (("-p", '{"text": 5}'), "The test payload does not fit the parameters at 'text'"),
        (("-p", '{"text": "hi"} x'), "The payload is not valid JSON"),
    ]:
        ran = direct(*NEW, *change, stdin=SHOUT)
        assert (ran.code, ran.out) == (1, "")
        assert ran.err.startswith(f"habitus: {message}")
        assert ran.err.count("\n") == 1
    ran = direct(*NEW, stdin="raise ValueError('bad day')")
    assert ran.err == "habitus: It failed on its test payload: ValueError: bad day\n"
    assert json.loads(direct(*NEW, "--json", stdin="print()").out)["error"].startswith("It printed nothing.")
    assert direct.json("tools", "list")["tools"] == []
    assert direct("tools", "run", "shuot").err == "habitus: There is no tool 'shuot'. See 'habitus tools list'.\n"


@pytest.mark.full
def test_a_failing_call_fails_the_command(direct: Direct) -> None:
    _kept_tool(direct)
    ran = direct("tools", "run", "shout", '{"text": 5}')
    assert (ran.code, ran.err) == (
        1,
        "habitus: The payload does not fit the parameters at 'text': 5 is not of type \"string\".\n",
    )
    direct.ok(*NEW, "--drop-cases", stdin=SHOUT + "assert len(sys.argv[1]) < 20, 'too long'\n")
    ran = direct("tools", "run", "shout", '{"text": "a rather long text"}')
    assert (ran.code, ran.out) == (1, "A RATHER LONG TEXT\n")
    assert ran.err.endswith("habitus: shout failed: AssertionError: too long\n")


@pytest.mark.req("SK-21", "SB-09")
def test_permissions_are_shown_and_need_a_yes(direct: Direct, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    wants = ("--network", "--read", str(tmp_path / "notes"), "--env", "LANG")
    ran = direct(*NEW, *wants, stdin=SHOUT)
    assert ran.code == 2
    assert f"Allow it to use the network, read {tmp_path / 'notes'}, see the variable LANG" in ran.err
    said = direct.ok(*NEW, *wants, "--yes", stdin=SHOUT)
    assert (
        f"It asks for permission to:\n  use the network\n  read {tmp_path / 'notes'}\n  see the variable LANG\n" in said
    )
    assert "use the network" in direct.ok("tools", "show", "shout")


@pytest.mark.req("SK-21")
def test_changed_code_runs_again_once_it_is_trusted(direct: Direct) -> None:
    _kept_tool(direct)
    file = direct.home / "skills/shout/scripts/tool.py"
    file.write_text(file.read_text() + "print('and more')\n")
    ran = direct("tools", "run", "shout", '{"text": "a"}')
    assert ran.code == 1
    assert ran.err.startswith("habitus: The tool 'shout' can't run: changed since its code was approved")
    assert "runs scripts/tool.py" in direct.ok("review", "trust", "shout", "--yes")
    assert direct.ok("tools", "run", "shout", '{"text": "a"}') == "A\nand more\n"
    assert "Undo: habitus review trust shout" in direct.ok("review", "trust", "shout", "--revoke")
    assert direct.json("tools", "list")["tools"][0]["status"] == "unapproved"


@pytest.mark.req("SB-06", "SK-21")
def test_a_tool_named_like_a_built_in_one_is_refused_at_every_door(direct: Direct, tmp_path: Path) -> None:
    ran = direct("tools", "new", "Memorize", *NEW[3:], stdin=SHOUT)
    assert (ran.code, ran.err) == (1, "habitus: 'memorize' is the name of a built-in tool. Take another.\n")
    theirs = tmp_path / "theirs" / "list-skills"
    (theirs / "scripts").mkdir(parents=True)
    (theirs / "SKILL.md").write_text("---\nname: list-skills\ndescription: Lists.\n---\n\n1. List.\n")
    (theirs / "tool.json").write_text(json.dumps({"name": "list_skills", "description": "Lists.", "parameters": {}}))
    (theirs / "scripts" / "tool.py").write_text(SHOUT)
    [refused] = json.loads(direct("skills", "import", str(theirs.parent), "--json").out)["results"]
    reason = "'list_skills' is the name of a built-in tool, so no code can go by it"
    assert (refused["verdict"], refused["reason"]) == ("refused", reason)
    shutil.copytree(theirs, direct.home / "skills" / "list-skills")
    assert direct.json("tools", "list")["tools"][0]["status"] == "broken"
    for command in (("review", "trust", "list-skills", "--yes"), ("tools", "run", "list-skills")):
        ran = direct(*command)
        assert (ran.code, reason in ran.err, ".." in ran.err) == (1, True, False)
    assert f"warning: list-skills: {reason}. Take another name" in direct("skills", "lint", "list-skills").out
    _kept_tool(direct)
    direct.ok("skills", "remove", "shout")
    ran = direct("skills", "restore", "shout", "--as", "Search_Skills")
    expected = f"habitus: {reason.replace('list', 'search')}. Take another name for the skill.\n"
    assert (ran.code, ran.err) == (1, expected)
    assert "search-skills" not in direct.ok("skills", "list")
    direct.ok("skills", "restore", "shout", "--as", "yell")


@pytest.mark.req("SB-06", "SB-08", "SB-10")
def test_a_tool_that_reports_an_error_fails_its_gate_and_its_call(direct: Direct) -> None:
    answer = """json.dumps({"status": "error", "error": "no such city"} if "Ys" in sys.argv[1] else {"status": "ok"})"""
    code = f"import json, sys\nprint({answer})\n"
    ran = direct(*NEW, "-p", '{"text": "Ys"}', stdin=code)
    expected = "habitus: It failed on its test payload: It reports an error: no such city\n"
    assert (ran.code, ran.err) == (1, expected)
    assert direct.json("tools", "list")["tools"] == []
    direct.ok(*NEW, stdin=code)
    for _ in range(3):
        ran = direct("tools", "run", "shout", '{"text": "Ys"}')
        assert (ran.code, ran.out) == (1, '{"status": "error", "error": "no such city"}\n')
    assert "habitus: 'shout' is degraded: it failed 3 times in a row, last with: It reports an error" in ran.err
    shown = json.loads(direct("tools", "show", "shout", "--json").out)  # once, a reminder of the repair stands beside
    assert (shown["status"], shown["counters"]["failed"]) == ("degraded", 3)
    ran = direct("tools", "run", "shout", '{"text": "fine"}')
    assert (ran.code, ran.out) == (0, '{"status": "ok"}\n')
    assert direct.json("tools", "show", "shout")["status"] == "active"


REGISTRY = {
    "loud": {
        "name": "loud",
        "description": "Makes it loud.",
        "parameters_schema": json.loads(SCHEMA),
        "status": "active",
        "usage_count": 12,
        "failure_count": 1,
        "test_payload": {"text": "hi"},
    },
    "lost": {"name": "lost", "description": "Its file is gone.", "status": "active"},
}


@pytest.mark.req("SB-07", "SK-06", "SK-21")
def test_a_registry_of_tools_comes_in_with_counters_and_waits_for_trust(direct: Direct, tmp_path: Path) -> None:
    there = tmp_path / "theirs"
    there.mkdir()
    (there / "skills_registry.json").write_text(json.dumps(REGISTRY))
    (there / "loud.py").write_text(SHOUT)
    ran = direct("skills", "import", str(there))
    assert "lost" in ran.out
    assert "There is no lost.py for it." in ran.out
    [tool] = direct.json("tools", "list")["tools"]
    assert (tool["name"], tool["status"]) == ("loud", "unapproved")
    assert direct("tools", "run", "loud", '{"text": "a"}').code == 1
    assert direct.ok("tools", "test", "loud") == (
        "loud: 1 of 1 case passed, which were stale; of 1 only the shape is compared.\n"
    )
    direct.ok("review", "trust", "loud", "--yes")
    assert direct.ok("tools", "run", "loud", '{"text": "a"}') == "A\n"
    counted = direct.json("tools", "show", "loud")["counters"]
    assert (counted["succeeded"], counted["failed"]) == (1, 0)
    assert direct.json("skills", "show", "loud")["source_counts"] == [
        "its source says of code: used 13, succeeded 12, failed 1"
    ]


@pytest.mark.req("SB-09")
def test_the_doctor_lists_each_protection(direct: Direct) -> None:
    checks = {check["name"]: check for check in direct.json("doctor")["checks"]}
    for name in ("files", "network", "limits", "Landlock", "environment"):
        check = checks[f"sandbox: {name}"]
        assert check["state"] == "ok" or check["hint"], check
    hidden = {check["name"]: check for check in direct.json("doctor", env={"PATH": "/nowhere"})["checks"]}
    assert hidden["sandbox: bubblewrap"] == {
        "name": "sandbox: bubblewrap",
        "state": "missing",
        "detail": "off.",
        "hint": "Install bubblewrap (Debian, Ubuntu: apt-get install bubblewrap).",
    }


@pytest.mark.req("SB-08")
def test_a_tool_that_fails_three_runs_is_proposed_for_repair(direct: Direct, tmp_path: Path) -> None:
    code = tmp_path / "divide.py"
    code.write_text("import json, sys\nprint(1 / json.loads(sys.argv[1])['n'])\n")
    schema = '{"type": "object", "properties": {"n": {"type": "number"}}}'
    direct.ok("tools", "new", "divide", "-d", "Divides one", "--code", str(code), "-p", '{"n": 2}', "-s", schema)
    for _ in range(3):
        assert direct.json("review", "list")["proposals"] == []
        assert direct("tools", "run", "divide", '{"n": 0}').code == 1
    (proposal,) = json.loads(direct("review", "list", "--json").out)["proposals"]
    assert proposal["name"] == "divide"
    assert any(reason.startswith('with {"n": 0} it failed: ZeroDivisionError') for reason in proposal["reasons"])
