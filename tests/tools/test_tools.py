"""Tools from the first draft to the archive and back, through `Habitus.tools`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from habitus.app import Habitus, read_settings
from habitus.app.conversations.running_code import open_scratchpads
from habitus.errors import Invalid, NotFound, Refused, ToolFailed
from habitus.events import OutcomeKind
from habitus.sandbox.model import Permissions
from habitus.skills.model import Skill, Stage
from habitus.tools.model import CodeTool, ToolCreationResult, ToolStatus
from habitus.use_counts import UsageCounts
from tests.tools.conftest import ADA, AGENT, JOB, PARAMETERS, SHOUT, Time, make

FLAKY = 'import json, sys\ntext = json.loads(sys.argv[1])["text"]\nassert text == "hi", "only hi"\nprint(text)\n'


@pytest.mark.req("SB-05", "SB-06", "SB-07", "SK-05")
async def test_a_persons_tool_is_there_at_once_as_the_code_stage_of_a_skill(habitus: Habitus, home: Path) -> None:
    async with habitus.tools as tools:
        created = await make(habitus)
        assert created == ToolCreationResult(name="shout", applied=True, version=1, undo=("undo", "shout@user:1"))
        run = await tools.run("shout", {"text": "hello"})
    assert json.loads(run.stdout) == {"loud": "HELLO"}
    shutil.rmtree(home / "cache")  # whatever the sandbox used can go
    [tool] = tools.active()
    assert tool == CodeTool(
        name="shout",
        callable_name="shout",
        description="Makes it loud.",
        parameters=PARAMETERS,
        status=ToolStatus.ACTIVE,
        example={"text": "hi"},
        returns={"type": "object", "properties": {"loud": {}}},  # as its case has printed it
        cases=1,
        proved_on=tool.proved_on,
        version=1,
        layer="user",
    )
    assert tool.proved_on is not None
    assert habitus.skills.load("shout").stages == {Stage.STEPS, Stage.CODE}
    assert sorted(habitus.skills.read_tree("shout")) == ["SKILL.md", "scripts/tool.py", "tool.json"]
    assert json.loads((home / "skills/shout/tool.json").read_text())["cases"][0]["payload"] == {"text": "hi"}


@pytest.mark.req("SB-06")
async def test_what_fails_its_test_leaves_no_trace(habitus: Habitus, home: Path) -> None:
    async with habitus.tools as tools:
        with pytest.raises(ToolFailed, match=r"^It failed on its test payload: KeyError: 'txt'$"):
            await make(habitus, code='import json, sys\nprint(json.loads(sys.argv[1])["txt"])')
        with pytest.raises(ToolFailed, match="can't be the name of a skill"):
            await make(habitus, "no/name")
        with pytest.raises(ToolFailed, match="'recall_skill' is the name of a built-in tool"):
            await make(habitus, "recall-skill")
    assert (tools.all(), list((home / "skills").glob("*")), habitus.review.list_proposals_by_state()) == ((), [], [])


@pytest.mark.full
@pytest.mark.req("SK-05", "SB-07")
async def test_a_tool_joins_the_skill_that_is_there_and_leaves_it_alone(habitus: Habitus) -> None:
    habitus.skills.create(Skill(name="read-aloud", description="How to read.", body="1. Breathe.\n"), ADA)
    async with habitus.tools as tools:
        created = await make(habitus, "read_aloud")
    assert created.undo == ("undo", "read-aloud@user:2")
    assert habitus.skills.load("read-aloud").body == "1. Breathe."
    assert tools.get("read_aloud").callable_name == "read_aloud"
    tools.retire("read-aloud", ADA)
    assert tools.all() == ()
    assert habitus.skills.load("read-aloud").stages == {Stage.STEPS}
    assert tools.restore("read-aloud", ADA).status is ToolStatus.ACTIVE


@pytest.mark.req("SK-04", "SK-05")
async def test_the_tool_of_a_skill_with_a_name_beyond_ascii_is_called_by_an_ascii_name(habitus: Habitus) -> None:
    habitus.skills.create(Skill(name="навык", description="How to read.", body="1. Breathe.\n"), ADA)
    async with habitus.tools as tools:
        await make(habitus, "навык")
        called = tools.get("навык").callable_name
        assert re.fullmatch("navyk_[0-9a-f]{8}", called)
        assert tools.get(called).name == "навык"
        assert (await tools.run(called, {"text": "a"})).outcome.is_ok


@pytest.mark.full
@pytest.mark.req("SK-21")
async def test_an_agents_tool_waits_and_is_approved_as_it_is(habitus: Habitus) -> None:
    async with habitus.tools as tools:
        created = await make(habitus, author=AGENT)
        assert (created.applied, created.reasons) == (False, ("the agent started it", "it brings code"))
        assert tools.all() == ()
        habitus.review.approve(created.proposal, ADA)
        assert (await tools.run("shout", {"text": "a"})).outcome.is_ok
    [tool] = tools.active()
    assert tool.proved_on is not None
    assert [(found.names, found.trusted_by) for found in habitus.approvals.list_trusted_roots()] == [
        (("shout",), "ada")
    ]


@pytest.mark.full
@pytest.mark.req("SK-21", "SB-09")
async def test_an_agents_code_is_tested_without_permissions_nobody_granted(habitus: Habitus, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "note").write_text("s3cret")
    wants = Permissions(read=(secret,), env=("HOME_OF_ADA",))
    code = f"print(open({str(secret / 'note')!r}).read())"
    async with habitus.tools as tools:
        with pytest.raises(ToolFailed, match=r"No such file.*without the permissions it asks for"):
            await make(habitus, author=AGENT, code=code, permissions=wants)
        created = await make(habitus, code=code, permissions=wants)
        assert (await tools.run("shout", {"text": "a"})).stdout == "s3cret\n"
        # The agent may change what a person has granted these permissions to, and asks for nothing new.
        again = await make(habitus, author=AGENT, code=f"{code}\nprint(1)", permissions=wants, drop_cases=True)
    assert created.applied
    assert again.reasons == ("the agent started it", "it brings code")
    more = replace(wants, network=True)
    async with habitus.tools:
        third = await make(habitus, author=AGENT, code=f"{code}\nprint(2)", permissions=more, drop_cases=True)
    assert "uses the network" in third.reasons


@pytest.mark.req("SK-21", "SB-09")
async def test_changed_code_or_permissions_need_approval_again(habitus: Habitus, home: Path) -> None:
    async with habitus.tools as tools:
        await make(habitus)
        file, manifest = home / "skills/shout/scripts/tool.py", home / "skills/shout/tool.json"
        before = manifest.read_text()
        habitus.skills.edit_file(
            "shout", "tool.json", before.replace('"network": false', '"network": true').encode(), ADA
        )
        tool = tools.get("shout")
        assert (tool.status, tool.permissions.network) == (ToolStatus.UNAPPROVED, True)
        assert (
            tool.reason
            == "changed since its code was approved, and it uses the network; see 'habitus review trust shout'"
        )
        with pytest.raises(Refused, match=r"can't run: .*habitus review trust shout"):
            await tools.run("shout", {"text": "a"})
        habitus.skills.edit_file("shout", "tool.json", before.encode(), ADA)
        assert tools.get("shout").status is ToolStatus.ACTIVE
        habitus.skills.edit_file("shout", "SKILL.md", (home / "skills/shout/SKILL.md").read_bytes() + b"\nMore.\n", ADA)
        assert tools.get("shout").status is ToolStatus.ACTIVE  # prose is not what was approved
        habitus.skills.edit_file("shout", "scripts/tool.py", file.read_bytes() + b"\nprint(1)\n", ADA)
        assert tools.active() == ()
        report = await tools.test("shout")
        assert (report.passed, report.was_stale) == (False, True)
        tools.approve("shout", "ada")
        assert (await tools.run("shout", {"text": "a"})).outcome.is_ok


@pytest.mark.full
@pytest.mark.req("SB-06")
async def test_a_better_version_keeps_the_cases_of_the_old_one(habitus: Habitus) -> None:
    async with habitus.tools as tools:
        await make(habitus)
        with pytest.raises(ToolFailed, match="It fails a case that worked before"):
            await make(habitus, code="print(5)", payload={"text": "yo"})
        assert (await make(habitus, payload={"text": "yo"})).version == 2
        assert tools.get("shout").cases == 2
        assert (await make(habitus, code="print(5)", drop_cases=True)).applied
    assert tools.get("shout").cases == 1


@pytest.mark.req("SB-08", "SK-06")
async def test_three_failures_in_a_row_degrade_and_an_ok_brings_it_back(habitus: Habitus) -> None:
    async with habitus.tools as tools:
        await make(habitus, code=FLAKY)
        for _ in range(2):
            await tools.run("shout", {"text": "no"})
        await tools.run("shout", {"text": "hi"})
        for _ in range(3):
            assert len(tools.active()) == 1
            await tools.run("shout", {"text": "no"})
        [tool] = tools.all()
        assert tools.active() == ()
        assert (tool.status, tool.reason) == (
            ToolStatus.DEGRADED,
            "failed 3 times in a row, last with: AssertionError: only hi",
        )
        with pytest.raises(ToolFailed):
            await tools.run("shout", {"text": 5})  # a mistake of the caller counts for nobody
        assert (await tools.run("shout", {"text": "hi"})).outcome.is_ok
    assert len(tools.active()) == 1
    counted = habitus.skills.read_counters("shout")[Stage.CODE]
    assert replace(counted, last_used=None) == UsageCounts(used=7, succeeded=2, failed=5)


@pytest.mark.full
@pytest.mark.req("SB-08")
async def test_what_goes_wrong_around_a_tool_counts_against_nobody(habitus: Habitus, home: Path) -> None:
    async with habitus.tools as tools:
        await make(habitus)
        code = (home / "skills/shout/scripts/tool.py").read_text()
        needs = code.replace("dependencies = []", 'dependencies = ["no-such-package-of-ours"]')
        habitus.skills.edit_file("shout", "scripts/tool.py", needs.encode(), ADA)
        tools.approve("shout", "ada")
        kinds = [(await tools.run("shout", {"text": "a"})).outcome.kind for _ in range(3)]
    assert kinds == [OutcomeKind.INFRA] * 3
    assert tools.get("shout").status is ToolStatus.ACTIVE
    assert replace(habitus.skills.read_counters("shout")[Stage.CODE], last_used=None) == UsageCounts(used=3)


async def _degraded(habitus: Habitus) -> None:
    await make(habitus, code=FLAKY)
    for _ in range(3):
        await habitus.tools.run("shout", {"text": "no"})


@pytest.mark.req("SB-08")
async def test_how_long_a_degraded_tool_stays_is_a_setting(home: Path, environ: dict[str, str], time: Time) -> None:
    home.mkdir(exist_ok=True)
    (home / "habitus.toml").write_text("[retention]\ndegraded_tool_days = 2\n")
    with Habitus.open(read_settings(environ=environ), clock=time) as habitus:
        async with habitus.tools as tools:
            await _degraded(habitus)
            assert await tools.curate(JOB) == []
            time.now += timedelta(days=2)
            [retired] = await tools.curate(JOB)
            assert (retired.reason, tools.all()) == ("degraded for 2 days", ())
            assert [item.name for item in habitus.skills.list_archived()] == ["shout"]
            assert tools.restore("shout", ADA).status is ToolStatus.ACTIVE
            assert await tools.curate(JOB) == []


@pytest.mark.full
@pytest.mark.req("SB-08")
async def test_a_degraded_tool_that_fails_its_cases_is_retired_at_once(habitus: Habitus, home: Path) -> None:
    async with habitus.tools as tools:
        await make(habitus)
        file = home / "skills/shout/scripts/tool.py"
        habitus.skills.edit_file("shout", "scripts/tool.py", file.read_bytes() + b"raise SystemExit(2)\n", ADA)
        tools.approve("shout", "ada")
        for _ in range(3):
            await tools.run("shout", {"text": "a"})
        [retired] = await tools.curate(JOB)
    assert retired.reason == "degraded, and it fails its own cases"
    assert retired.undo == ("tools", "restore", "shout@user")


@pytest.mark.full
@pytest.mark.req("SB-08")
async def test_new_code_starts_with_a_clean_slate(habitus: Habitus) -> None:
    async with habitus.tools as tools:
        await _degraded(habitus)
        await make(habitus, code=SHOUT, drop_cases=True)
        assert len(tools.active()) == 1


async def test_a_switched_off_or_broken_tool_is_not_offered_and_says_why(habitus: Habitus) -> None:
    async with habitus.tools as tools:
        await make(habitus)
        habitus.skills.set_enabled("shout", False, ADA)
        assert (tools.get("shout").status, tools.get("shout").reason) == (ToolStatus.OFF, "disabled: switched off")
        habitus.skills.set_enabled("shout", True, ADA)
        habitus.skills.edit_file("shout", "tool.json", b'{"parameters": {"type": 5}}', ADA)
        assert tools.get("shout").status is ToolStatus.BROKEN
        with pytest.raises(Refused, match="Fix its files"):
            await tools.run("shout", {})
    with pytest.raises(NotFound, match="Did you mean 'shout'"):
        tools.get("shot")
    with pytest.raises(NotFound, match="There is no tool 'elsewhere'"):
        tools.retire("elsewhere", ADA)


async def test_restore_says_when_there_is_nothing_to_restore(habitus: Habitus) -> None:
    habitus.skills.create(Skill(name="plain", description="Prose.", body="1. Read.\n"), ADA)
    with pytest.raises(NotFound, match="never had a tool"):
        habitus.tools.restore("plain", ADA)
    async with habitus.tools as tools:
        await make(habitus)
    with pytest.raises(Invalid, match="there already"):
        tools.restore("shout", ADA)


_COUNT = """
import asyncio, sys
from habitus.app import Habitus
async def main():
    with Habitus.open() as habitus:
        async with habitus.tools as tools:
            for _ in range(5):
                await tools.run("shout", {"text": "no"})
asyncio.run(main())
"""


@pytest.mark.full
@pytest.mark.req("SB-08", "SK-06")
async def test_many_processes_count_every_call(habitus: Habitus, environ: dict[str, str], python: str) -> None:
    async with habitus.tools as tools:
        await make(habitus, code=FLAKY)
    env = {**environ, "PATH": os.environ["PATH"]}
    processes = [subprocess.Popen([python, "-c", _COUNT], env=env) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    with Habitus.open(read_settings(environ=environ)) as fresh:
        assert fresh.skills.read_counters("shout")[Stage.CODE].failed == 15
        assert fresh.tools.get("shout").reason.startswith("failed 15 times in a row")
    assert tools.active() == ()


async def test_a_pad_of_the_home_runs_cells(habitus: Habitus, home: Path) -> None:
    pads = open_scratchpads(habitus)
    cell = await pads.execute_code("one", "print(6 * 7)")
    await pads.close()
    assert (cell.stdout, cell.error) == ("42\n", None)
    assert (home / "pads" / "one" / "files").is_dir()
