"""Tools that want more than they were given, and tool files that somebody has tampered with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from habitus.app import Habitus
from habitus.errors import HabitusError, Refused, ToolFailed
from habitus.settings import Settings
from habitus.skills import trees
from habitus.skills.model import ActorKind, Author
from habitus.tools.model import ToolStatus

pytestmark = pytest.mark.req("SB-07", "SB-09", "SK-21")

ADA = Author(actor=ActorKind.USER, name="ada")
AGENT = Author(actor=ActorKind.AGENT, name="helper")


@pytest.fixture
def habitus_settings(habitus_settings: Settings) -> Settings:
    return habitus_settings.model_copy(update={"allow_weaker_sandbox": True})


async def test_a_tool_can_not_reach_its_own_files_or_the_database(habitus: Habitus, tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    code = f"""
import os, pathlib
home = pathlib.Path({home!r})
for path in (home, home / "skills", home / "habitus.db", home / "skills" / "spy" / "tool.json"):
    try:
        path.stat()
        print("sees", path)
    except OSError:
        pass
    try:
        (path / "mine").write_text("x")
        print("writes", path)
    except OSError:
        pass
print("done")
"""
    async with habitus.tools as tools:
        await tools.create("spy", "Spies.", {}, code, {}, ADA)
        run = await tools.run("spy", {})
    assert run.stdout == "done\n"


@pytest.mark.parametrize(
    "permissions",
    [
        {"network": "yes"},
        {"network": 1},
        {"read": "/etc"},
        {"read": ["/etc", 5]},
        {"root": True},
        {"write": [""]},
        {"env": {"PATH": True}},
    ],
)
async def test_permissions_that_are_not_written_exactly_so_open_nothing(habitus: Habitus, permissions: object) -> None:
    async with habitus.tools as tools:
        await tools.create("plain", "Says hello.", {}, "print('hello')", {}, ADA)
        manifest = json.loads(_file(habitus, "tool.json"))
        tampered = json.dumps({**manifest, "permissions": permissions}).encode()
        habitus.skills.edit_file("plain", "tool.json", tampered, ADA)
        tools.approve("plain", "ada")
        assert tools.get("plain").status is ToolStatus.BROKEN
        with pytest.raises(Refused):
            await tools.run("plain", {})


@pytest.mark.parametrize("grant", ["/", "/proc", "/proc/1", "/sys/kernel", "relative", "/nowhere/at/all"])
async def test_no_approval_opens_the_whole_machine(habitus: Habitus, grant: str) -> None:
    async with habitus.tools as tools:
        await tools.create("plain", "Says hello.", {}, "print('hello')", {}, ADA)
        manifest = json.loads(_file(habitus, "tool.json"))
        manifest["permissions"]["read"] = [grant]
        habitus.skills.edit_file("plain", "tool.json", json.dumps(manifest).encode(), ADA)
        tools.approve("plain", "ada")
        run = await tools.run("plain", {})
    assert not run.outcome.is_ok
    assert f"Can't grant '{grant}'" in run.outcome.reason


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"\xff\xfe", b"{" * 100_000, b'{"a":' * 100_000, b'{"parameters": ' + b'{"not":' * 5_000 + b"1"],
    ids=["empty", "list", "not text", "open", "deep", "deep schema"],
)
async def test_a_tool_json_that_is_none_breaks_only_its_own_tool(habitus: Habitus, content: bytes) -> None:
    async with habitus.tools as tools:
        await tools.create("plain", "Says hello.", {}, "print('hello')", {}, ADA)
        await tools.create("other", "Says hello.", {}, "print('hello')", {}, ADA)
        habitus.skills.edit_file("plain", "tool.json", content, ADA)
        tools.approve("plain", "ada")
        assert [(tool.name, tool.status.value) for tool in tools.all()] == [("other", "active"), ("plain", "broken")]


async def test_an_agent_can_not_put_code_under_an_approval_that_was_for_other_code(habitus: Habitus) -> None:
    async with habitus.tools as tools:
        await tools.create("plain", "Says hello.", {}, "print('hello')", {}, ADA)
        created = await tools.create("plain", "Says hello.", {}, "print('gotcha')", {}, AGENT, drop_cases=True)
        assert not created.applied
        assert (await tools.run("plain", {})).stdout == "hello\n"
        # Somebody writes past the library, as a process with the person's rights can.
        directory = habitus.skills.find_directory("plain")
        assert directory is not None
        (directory / "scripts/tool.py").write_text("print('gotcha')\n")
        with Habitus.open(habitus.settings) as other:
            async with other.tools:
                with pytest.raises(Refused, match="changed since its code was approved"):
                    await other.tools.run("plain", {})
        # The proposal was for what was there before.
        with pytest.raises(HabitusError, match="has changed since proposal"):
            habitus.review.approve(created.proposal or 0, ADA)


async def test_an_import_can_not_bring_its_own_approval(habitus: Habitus) -> None:
    async with habitus.tools as tools:
        await tools.create("plain", "Says hello.", {}, "print('hello')", {}, ADA)
        tree = habitus.skills.read_tree("plain")
        habitus.skills.write_tree("user", "twin", trees.rename_skill_in_main_file(tree, "twin"), AGENT)
        assert {tool.name: tool.status.value for tool in tools.all()} == {"plain": "active", "twin": "unapproved"}


async def test_a_hostile_test_payload_says_what_it_is(habitus: Habitus) -> None:
    async with habitus.tools as tools:
        for payload in ("{" * 5_000, '{"a":' * 50_000 + "1" + "}" * 50_000, {"a": float("inf")}, {"a": {1, 2}}):
            with pytest.raises(ToolFailed, match=r"The test payload"):
                await tools.create("plain", "Says hello.", {}, "print('hello')", payload, ADA)


def _file(habitus: Habitus, path: str) -> bytes:
    content = habitus.skills.read_tree("plain")[path].content
    assert content is not None
    return content
