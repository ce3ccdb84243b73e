"""What a model is told of the tools: names, parameters and what each gives back, as they were promised."""

from __future__ import annotations

import asyncio
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from habitus.agent.library.supporting_files import SupportingFileReaderAndPlacer
from habitus.agent.library.view import LibraryView
from habitus.agent.session import Session
from habitus.agent.stream import Consent, ConsentQuestion
from habitus.agent.tools.reading_skills import build_recall_skill_tool
from habitus.agent.tools.registry import Tool, ToolArguments, ToolCallContext, ToolRegistry, truncate_middle_of_result
from habitus.agent.tools.stage_tools import SkillStageAdvisor
from habitus.app import Habitus
from habitus.errors import ToolFailed
from habitus.events import OutcomeKind, ToolCall, ToolResult
from habitus.llm.model import ToolResultMessage
from habitus.llm.scripted import calls, says
from habitus.skills import trees
from habitus.skills.library import Library
from habitus.skills.lifecycle import GateContext
from habitus.skills.sources.trust import OutsideContentPolicy
from habitus.skills.stores.usage_cache import UsageCache
from habitus.sql.outage import OutageGuard
from tests.agent.conftest import Talk

SKILL_TOOLS: dict[str, tuple[dict[str, str], list[str]]] = {
    "create_skill": (
        {
            "name": "string",
            "title": "string",
            "description": "string",
            "content": "string",
            "tags": "array",
            "when_to_use": "string",
        },
        ["name", "title", "description", "content"],
    ),
    "update_skill": (
        {
            "name": "string",
            "title": "string",
            "description": "string",
            "tags": "array",
            "when_to_use": "string",
            "operation": "string",
            "content": "string",
            "find": "string",
            "replace": "string",
            "replace_all": "boolean",
        },
        ["name"],
    ),
    "delete_skill": ({"name": "string"}, ["name"]),
    "list_skills": ({"tag": "string", "include_disabled": "boolean"}, []),
    "read_skill": ({"name": "string", "path": "string", "offset": "integer"}, ["name"]),
    "enable_skill": ({"name": "string"}, ["name"]),
    "disable_skill": ({"name": "string"}, ["name"]),
}
OTHERS = {"scratchpad", "recall_skill", "search_skills", "memorize", "list_lessons", "create_tool", "manage_skills"}


@pytest.mark.req("AG-06")
async def test_every_promised_tool_is_there_with_its_parameters(talk: Talk) -> None:
    session, model = talk([says("ok")])
    await session.turn("hello")
    offered = {tool.name: tool for tool in model.asked[0].tools}
    assert set(offered) == {*SKILL_TOOLS, *OTHERS, "edit_system_prompt"}
    for name, (parameters, required) in SKILL_TOOLS.items():
        schema: Any = offered[name].parameters
        assert {key: value["type"] for key, value in schema["properties"].items()} == parameters
        assert schema["required"] == required
    operations = offered["update_skill"].parameters["properties"]["operation"]["enum"]  # type: ignore[index]  # JSON
    assert operations == ["replace", "find_replace", "append", "prepend", "delete"]
    create: Any = offered["create_tool"].parameters
    wanted = ["name", "description", "parameters_schema", "python_code", "test_payload"]
    assert create["required"] == wanted
    assert "null" not in json.dumps([dict(tool.parameters) for tool in offered.values()])


@pytest.mark.full
@pytest.mark.req("AG-06")
async def test_the_seven_skill_tools_give_back_what_was_promised(talk: Talk, habitus: Habitus) -> None:
    async def person(question: ConsentQuestion) -> Consent:
        return Consent.YES

    script = [
        calls("create_skill", {"name": "Tea_Time", "title": "Tea", "description": "Brews tea", "content": "1. Boil."}),
        calls("update_skill", {"name": "tea-time", "operation": "append", "content": "2. Wait.", "tags": ["kitchen"]}),
        calls("update_skill", {"name": "tea-time", "operation": "find_replace", "find": "$&", "replace": "x"}),
        calls("read_skill", {"name": "tea_time"}),
        calls("disable_skill", {"name": "tea-time"}),
        calls("list_skills", {"tag": "kitchen"}),
        calls("list_skills", {"tag": "kitchen", "include_disabled": True}),
        calls("enable_skill", {"name": "tea-time"}),
        calls("delete_skill", {"name": "tea-time"}),
        says("done"),
    ]
    session, _ = talk(script, ask=person)
    await session.turn("go through all of them")
    shown = [message.content for message in session.history.messages if isinstance(message, ToolResultMessage)]
    created, updated, missed, read, disabled, listed, all_of_them, enabled, deleted = shown
    assert json.loads(created) == {"name": "tea-time", "version": 1}
    assert json.loads(updated) == {"name": "tea-time", "version": 2}
    assert missed.startswith("Error: The text '$&' is not in the skill.")
    assert json.loads(read) == {
        "name": "tea-time",
        "title": "Tea",
        "description": "Brews tea",
        "content": "1. Boil.\n2. Wait.",
        "tags": ["kitchen"],
        "source": "agent",
        "version": 2,
        "files": [],
    }
    assert json.loads(disabled) == {"name": "tea-time", "enabled": False}
    assert json.loads(listed) == {"skills": []}
    assert [skill["name"] for skill in json.loads(all_of_them)["skills"]] == ["tea-time"]
    assert json.loads(enabled) == {"name": "tea-time", "enabled": True}
    assert json.loads(deleted) == {"deleted": True}
    assert [item.name for item in habitus.skills.list_archived()] == ["tea-time"]


@pytest.mark.full
@pytest.mark.req("AG-06")
async def test_a_model_says_when_to_use_a_skill_and_says_it_anew(talk: Talk, habitus: Habitus) -> None:
    async def person(question: ConsentQuestion) -> Consent:
        return Consent.YES

    tea = {"name": "brew-tea", "title": "Tea", "description": "Brews tea", "content": "1. Boil."}
    script = [
        calls("create_skill", {**tea, "when_to_use": "When guests come."}),
        calls("update_skill", {"name": "brew-tea", "when_to_use": "When it is four."}),
        says("kept"),
        says("hello again"),
    ]
    session, model = talk(script, ask=person)
    await session.turn("keep how tea is made")
    versions = [
        trees.parse_skill_tree("brew-tea", habitus.skills.read_tree("brew-tea", number)).skill for number in (1, 2)
    ]
    assert [skill and skill.when_to_use for skill in versions] == ["When guests come.", "When it is four."]
    await session.turn("hello")
    assert "brew-tea — When it is four." in str(model.asked[-1])


@pytest.mark.req("AG-06", "SK-21")
async def test_without_a_person_changes_of_the_agent_are_proposals(talk: Talk, habitus: Habitus) -> None:
    session, _ = talk(
        [
            calls("delete_skill", {"name": "write-a-skill"}),
            calls("disable_skill", {"name": "write-a-skill"}),
            says("ok"),
        ]
    )
    await session.turn("tidy up")
    refused, proposed = (
        message.content for message in session.history.messages if isinstance(message, ToolResultMessage)
    )
    assert refused.startswith("Error: 'write-a-skill' is in the read-only layer 'bundled'.")
    assert json.loads(proposed) == {"name": "write-a-skill", "enabled": True, "status": "proposed", "proposal": 1}


@pytest.mark.req("AG-06", "SK-21")
async def test_what_waits_is_found_marked_and_taken_back_in_the_conversation_that_wrote_it(
    talk: Talk, habitus: Habitus
) -> None:
    tea = {"name": "tea", "title": "Tea", "description": "Brews green tea", "content": "1. Boil.", "tags": ["kitchen"]}
    look = [
        calls("list_skills", {"tag": "kitchen"}),
        calls("search_skills", {"query": "brew some tea"}),
        calls("read_skill", {"name": "tea"}),
        calls("delete_skill", {"name": "tea"}),
        calls("delete_skill", {"name": "tea"}),
    ]
    session, _ = talk([calls("create_skill", tea), *look, says("ok")])
    await session.turn("keep how tea is made")
    other, _ = talk([calls("list_skills", {"tag": "kitchen"}), says("ok")])
    shown = [message.content for message in session.history.messages if isinstance(message, ToolResultMessage)]
    listed, found, read, deleted, unknown = shown[1:]
    assert [(skill["name"], skill["status"]) for skill in json.loads(listed)["skills"]] == [("tea", "pending")]
    assert "- tea — Brews green tea [kitchen] (needs review)" in found
    assert json.loads(read)["status"] == "pending"
    assert (json.loads(deleted), json.loads(unknown)) == ({"deleted": True}, {"deleted": False})
    assert habitus.review.list_proposals_by_state() == []
    await other.turn("what is there for the kitchen?")
    assert '"skills": []' in repr(other.history.messages)


@pytest.mark.req("AG-06", "SK-21")
def test_what_waits_is_explained_and_neither_switched_on_nor_off(habitus: Habitus) -> None:
    tea = {"name": "tea", "title": "Tea", "description": "Brews green tea", "content": "1. Boil."}
    with habitus.turn("keep how tea is made", conversation="c") as turn:
        turn.run("create_skill", tea)
        for switch in ("enable_skill", "disable_skill"):
            told = turn.run(switch, {"name": "Tea"}).content
            assert told == "Error: 'tea' needs review. delete_skill withdraws it."
        assert turn.run("why", {"name": "tea"}).content.startswith(
            "'tea' was written in this conversation and needs review."
        )
    with habitus.turn("make tea", conversation="d") as turn:
        assert turn.run("why", {"name": "tea"}).content.startswith("Error: There is no skill 'tea'.")
        assert turn.run("disable_skill", {"name": "tea"}).content.startswith("Error: No skill 'tea'.")
    habitus.review.approve(1, habitus.build_author())
    with habitus.turn("make tea", conversation="c") as turn:  # an edit that waits makes no difference
        turn.run("update_skill", {"name": "tea", "operation": "append", "content": "2. Pour."})
        assert "needs review" not in turn.run("why", {"name": "tea"}).content
        assert "enabled" in turn.run("disable_skill", {"name": "tea"}).content


@pytest.mark.req("SE-09")
async def test_an_empty_library_says_so(habitus: Habitus) -> None:
    outside = OutsideContentPolicy(habitus.trust, habitus.shared)
    nothing = Library(
        [],
        usage=UsageCache(habitus.shared),
        outside=outside,
        read_revision=lambda: (0, 0),
        gate_context=GateContext(),
        placeholder_values={},
    )
    view = LibraryView(
        library=nothing, review=habitus.review, outage=OutageGuard(), redactor=habitus.redactor, conversation="c1"
    )
    ladder = SkillStageAdvisor(view=view, tools=habitus.tools, recipes=habitus.recipes, reliable=0.7)
    result = await ToolRegistry([build_recall_skill_tool(view, SupportingFileReaderAndPlacer(view), ladder)]).run_call(
        _call("recall_skill", {"name": "x"}), ToolCallContext()
    )
    assert result.content.startswith("Error: There are no skills yet.")


@pytest.mark.req("AG-06", "SE-12", "SC-01")
async def test_a_clash_is_skipped_and_a_bug_in_a_tool_is_a_result(caplog: pytest.LogCaptureFixture) -> None:
    class Nothing(ToolArguments):
        pass

    async def breaks(given: Nothing, running: ToolCallContext) -> ToolResult:
        raise RuntimeError("boom")

    async def other(given: Nothing, running: ToolCallContext) -> ToolResult:
        raise ToolFailed("Not today.")

    tools = ToolRegistry(
        [
            Tool(name="one", description="", arguments=Nothing, run=breaks, access=None),
            Tool(name="one", description="", arguments=Nothing, run=other, access=None),
            Tool(name="two", description="", arguments=Nothing, run=other, access=None),
        ]
    )
    assert tools.list_tool_names() == ("one", "two")
    assert tools.skipped == ["one"]
    assert "The tool one is not offered" in caplog.text
    broken = await tools.run_call(_call("one", {}), ToolCallContext())
    assert (broken.outcome.kind, broken.content) == (
        OutcomeKind.INFRA,
        "one broke: RuntimeError. This is not your mistake; try another way.",
    )
    failed = await tools.run_call(_call("two", {}), ToolCallContext())
    assert (failed.outcome.kind, failed.content) == (OutcomeKind.FAILED, "Error: Not today.")


def test_a_long_result_keeps_its_beginning_and_end() -> None:
    cut = truncate_middle_of_result(ToolResult(content="a" * 15_000 + "b" * 15_000)).content
    assert cut.startswith("a" * 15_000)
    assert cut.endswith("b" * 5_000)
    assert "[… 10,000 characters left out …]" in cut


def _call(name: str, arguments: dict[str, object]) -> ToolCall:
    return ToolCall(id="1", name=name, arguments=json.dumps(arguments))


@pytest.mark.some(1)
@pytest.mark.req("SB-03")
@pytest.mark.parametrize("answer", [Consent.YES, Consent.NO])
async def test_a_missing_module_is_asked_for_in_a_conversation(
    talk: Talk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Consent
) -> None:
    with zipfile.ZipFile(tmp_path / "habitus_greeting-1.0-py3-none-any.whl", "w") as wheel:
        info = "habitus_greeting-1.0.dist-info"
        wheel.writestr("habitus_greeting.py", "HELLO = 'hello'\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: habitus_greeting\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: us\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    for name, value in {"UV_FIND_LINKS": tmp_path, "UV_OFFLINE": "1", "UV_CACHE_DIR": tmp_path / "cache"}.items():
        monkeypatch.setenv(name, str(value))
    asked: list[str] = []

    async def person(question: ConsentQuestion) -> Consent:
        asked.append(question.text)
        return answer

    code = "import habitus_greeting\nprint(habitus_greeting.HELLO)"
    session, _ = talk([calls("scratchpad", {"action": "exec", "code": code}), says("ok")], ask=person)
    await session.turn("greet me")
    (shown,) = (message.content for message in session.history.messages if isinstance(message, ToolResultMessage))
    assert asked == ["Install the package 'habitus_greeting'?"]
    assert ("hello" in shown) == (answer is Consent.YES)
    assert ("ModuleNotFoundError" in shown) == (answer is Consent.NO)


async def test_two_turns_at_once_are_refused(talk: Talk) -> None:
    session, _ = talk([says("one"), says("two")])

    async def first(session: Session) -> str:
        return (await session.turn("one at a time")).reply

    results = await asyncio.gather(first(session), first(session), return_exceptions=True)
    assert sorted(str(result) for result in results) == [
        "A turn of this session is running. Wait for it, or cancel it first.",
        "one",
    ]
