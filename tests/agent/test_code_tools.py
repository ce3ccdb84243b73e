"""Tools that come of skills' code: offered by name, made in a conversation, tested before they exist."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from habitus.agent.session import Session
from habitus.agent.stream import Consent, ConsentQuestion
from habitus.agent.tools.stage_tools import CODE_TOOLS
from habitus.app import Habitus
from habitus.app.use_cases import review
from habitus.errors import Invalid
from habitus.events import OutcomeKind
from habitus.files import TreeFile, build_tree_file
from habitus.llm.model import ToolResultMessage
from habitus.llm.scripted import ScriptedModel, calls, says
from habitus.skills import names
from habitus.skills.model import ActorKind, Author, Manifest, Skill, Stage
from habitus.skills.review import ProposalAction, SkillChange
from tests.agent.conftest import Talk
from tests.usage import record_use

CODE = "import json, sys\nprint(sum(json.loads(sys.argv[1])['numbers']))\n"
SCHEMA = {
    "type": "object",
    "properties": {"numbers": {"type": "array", "items": {"type": "number"}}},
    "required": ["numbers"],
}
ADD = {
    "name": "add-up",
    "description": "Adds numbers up",
    "parameters_schema": SCHEMA,
    "python_code": CODE,
    "test_payload": {"numbers": [1, 2]},
}
GONE = {"name": "zebra", "operation": "append", "content": "More."}
pytestmark = pytest.mark.req("AG-06", "SE-12")


def results(session: Session) -> list[str]:
    return [message.content for message in session.history.messages if isinstance(message, ToolResultMessage)]


async def kept(habitus: Habitus, name: str, description: str = "Adds numbers up") -> None:
    async with habitus.tools as tools:
        await tools.create(name, description, SCHEMA, CODE, {"numbers": [1, 2]}, habitus.build_author())


@pytest.mark.full
async def test_a_tool_is_refused_for_a_defect_then_accepted_and_called(talk: Talk, habitus: Habitus) -> None:
    broken = {**ADD, "python_code": CODE.replace("numbers", "nubmers")}
    session, model = talk(
        [calls("create_tool", broken), calls("create_tool", ADD), calls("add_up", {"numbers": [2, 3, 4]}), says("9")]
    )
    done = await session.turn("I add numbers up all day")
    refused, made, called = results(session)
    assert refused.startswith("Error: ")
    assert "KeyError: 'nubmers'" in refused
    assert json.loads(made) == {
        "name": "add_up",
        "next": "call add_up by its name",
        "status": "proposed",
        "proposal": 1,
    }
    assert called == "9"
    assert done.outcome.kind is OutcomeKind.OK
    assert "add_up" not in [tool.name for tool in model.asked[0].tools]
    assert model.asked[2].tools[-1].name == "add_up"
    assert model.asked[2].tools[:-1] == model.asked[0].tools
    assert habitus.tools.active() == ()


@pytest.mark.full
async def test_a_person_who_says_yes_lets_it_in_at_once(talk: Talk, habitus: Habitus) -> None:
    asked: list[ConsentQuestion] = []

    async def person(question: ConsentQuestion) -> Consent:
        asked.append(question)
        return Consent.YES

    session, _ = talk([calls("create_tool", ADD), calls("add_up", {"numbers": [2, 3]}), says("5")], ask=person)
    await session.turn("keep this")
    assert [question.text for question in asked] == ["'add_up' passed its test. Keep it as a tool?"]
    assert results(session)[1] == "5"
    assert [tool.name for tool in habitus.tools.active()] == ["add-up"]
    counted = habitus.skills.read_counters("add-up")[Stage.CODE]
    assert (counted.used, counted.succeeded) == (1, 1)


async def test_a_persons_no_leaves_nothing_behind(talk: Talk, habitus: Habitus) -> None:
    async def person(question: ConsentQuestion) -> Consent:
        return Consent.NO

    session, model = talk([calls("create_tool", ADD), says("fine")], ask=person)
    await session.turn("keep this")
    assert results(session) == ["Error: The person does not want it as a tool. Go on without it."]
    assert habitus.review.list_proposals_by_state() == []
    assert model.asked[1].tools == model.asked[0].tools


async def test_a_built_in_name_is_refused(talk: Talk) -> None:
    session, _ = talk([calls("create_tool", {**ADD, "name": "Recall_Skill"}), says("ok")])
    await session.turn("clash")
    assert results(session) == ["Error: 'recall_skill' is the name of a built-in tool. Take another."]


def as_files(name: str, code: str = CODE) -> dict[str, TreeFile]:
    manifest = {"name": name, "description": "Adds numbers up", "parameters": SCHEMA}
    return {
        "SKILL.md": build_tree_file(f"---\nname: {name}\ndescription: Adds numbers up.\n---\n\n1. Add.\n".encode()),
        "tool.json": build_tree_file(json.dumps(manifest).encode()),
        "scripts/tool.py": build_tree_file(code.encode()),
    }


@pytest.mark.full
@pytest.mark.req("SB-06")
async def test_the_built_in_names_are_those_of_the_tools_of_every_session(talk: Talk, habitus: Habitus) -> None:
    habitus.skills.write_trees(
        "user", {"scratchpad": as_files("scratchpad")}, habitus.build_author()
    )  # laid there by hand
    session, model = talk([says("ok")])
    await session.turn("hello")
    offered = {tool.name for tool in model.asked[0].tools}
    async with habitus.turn("hello") as turn:
        hosted = {tool["name"] for tool in turn.tools(profile="all")}
    assert hosted == names.BUILT_IN_TOOLS
    assert hosted - offered == {"report_outcome", "why"}
    [tool] = habitus.tools.all()
    assert (tool.status.value, tool.reason) == (
        "broken",
        "'scratchpad' is the name of a built-in tool, so no code can go by it. Take another name for the skill.",
    )
    with pytest.raises(Invalid, match="built-in tool"):
        habitus.tools.approve("scratchpad", "ann")


@pytest.mark.req("SB-06", "SK-21")
async def test_code_by_a_built_in_name_is_neither_proposed_nor_approved(talk: Talk, habitus: Habitus) -> None:
    change = SkillChange(action=ProposalAction.WRITE, name="memorize", layer="user", tree=as_files("memorize"))
    agent = Author(actor=ActorKind.AGENT, name="agent")
    for author in (agent, habitus.build_author()):
        with pytest.raises(Invalid, match="'memorize' is the name of a built-in tool"):
            habitus.review.submit(change, author)
    session, _ = talk([calls("create_tool", ADD), says("ok")])
    await session.turn("I add numbers up all day")
    with closing(sqlite3.connect(habitus.settings.home / "habitus.db")) as database, database:
        database.execute("UPDATE skill_proposals SET name = 'memorize'")  # from before that tool was built in
    with pytest.raises(Invalid, match="'memorize' is the name of a built-in tool"):
        review.approve_items(habitus, ids=("1",))
    assert (habitus.tools.all(), habitus.skills.is_name_taken("memorize")) == ((), False)


@pytest.mark.req("SB-08")
async def test_a_degraded_tool_is_told_to_the_model_with_the_reason(talk: Talk, habitus: Habitus) -> None:
    moody = CODE + "assert len(sys.argv[1]) < 25, 'too many'\n"
    async with habitus.tools as tools:
        await tools.create("add-up", "Adds numbers up", SCHEMA, moody, {"numbers": [1, 2]}, habitus.build_author())
    many, few = {"numbers": [1, 2, 3, 4, 5, 6]}, {"numbers": [1]}
    session, _ = talk([*[calls("add_up", many)] * 3, says("it breaks")])
    await session.turn("add these")
    assert [result.startswith("Error: ") for result in results(session)] == [True, True, False]
    degraded = "'add_up' is degraded: it failed 3 times in a row, last with: AssertionError: too many."
    assert results(session)[-1].startswith(f"[{degraded} It is no longer offered; do it another way, or repair it.]")
    session, model = talk(
        [calls("recall_skill", {"name": "add-up"}), calls("add_up", few), calls("add_up", few), says("1")]
    )
    await session.turn("add one")
    assert "add_up" not in [tool.name for tool in model.asked[0].tools]
    recalled, back, again = results(session)
    assert "Its tool `add_up` is degraded, it failed 3 times in a row, last with: AssertionError: too many;" in recalled
    before = "it failed 3 times in a row, last with: AssertionError: too many."
    assert back == f"['add_up' is no longer degraded; before, {before}]\n\n1"
    assert again == "1"


@pytest.mark.full
async def test_a_tool_is_offered_with_its_example_and_recalled_skills_point_to_it(talk: Talk, habitus: Habitus) -> None:
    await kept(habitus, "add-up")
    session, model = talk([calls("recall_skill", {"name": "add-up"}), calls("add_up", {"numbers": ["x"]}), says("ok")])
    await session.turn("add these")
    offered = model.asked[0].tools[-1]
    assert offered.name == "add_up"
    assert 'Example: add_up({"numbers": [1, 2]}).' in offered.description
    assert offered.parameters == SCHEMA
    recalled, wrong = results(session)
    assert "Try the tool `add_up` first: it is tested." in recalled  # its case has passed
    assert wrong.startswith("Error: ")


@pytest.mark.full
@pytest.mark.req("AG-06")
async def test_errors_advise_a_model_to_use_tools_and_leave_commands_to_people(talk: Talk, habitus: Habitus) -> None:
    await kept(habitus, "add-up")
    one = calls("add_up", {"numbers": [1]})
    session, _ = talk([says("ready"), one, says("no"), one, says("no"), calls("update_skill", GONE), says("no")])
    await session.turn("get ready")
    code = (habitus.skills.find_directory("add-up") or Path()) / "scripts" / "tool.py"
    code.write_text(code.read_text() + "print('more')\n")
    await session.turn("add one")
    habitus.tools.retire("add-up", habitus.build_author())
    await session.turn("add one again")
    await session.turn("change it")
    changed, gone, unknown = results(session)
    assert changed.startswith("Error: The tool 'add-up' can't run: changed since its code was approved")
    assert changed.endswith("Only a person can do that; tell them: Read it first: 'habitus tools show add-up'.")
    assert gone == "Error: There is no tool 'add-up'. manage_skills lists them."
    assert unknown == "Error: No skill 'zebra'. list_skills shows what there is."


@pytest.mark.req("AG-06", "AG-09")
async def test_reasons_that_a_model_reads_leave_commands_to_people(
    talk: Talk, habitus: Habitus, tmp_path: Path
) -> None:
    await kept(habitus, "add-up")
    code = (habitus.skills.find_directory("add-up") or Path()) / "scripts" / "tool.py"
    code.write_text(code.read_text() + "print('more')\n")
    skill = tmp_path / "work" / ".claude" / "skills" / "theirs" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: theirs\ndescription: Does it.\n---\n\n1. Do it.\n")
    habitus.pause.pause("ann")
    asked = [
        calls("recall_skill", {"name": "add-up"}),
        calls("manage_skills", {"action": "list"}),
        calls("memorize", {"text": "The user drinks tea.", "kind": "profile"}),
        calls("recall_skill", {"name": "theirs"}),
        calls("read_skill", {"name": "theirs"}),
    ]
    with Habitus.open(habitus.settings.model_copy(update={"cwd": tmp_path / "work"})) as there:
        session = there.session(ScriptedModel([*asked, says("ok")]))
        await session.turn("what is there?")
        await session.close()
    left = "; only a person can change that, tell them: 'habitus "
    said = results(session)
    commands = ["review trust add-up", "review trust add-up", "learn resume", "review trust", "review trust"]
    assert [f"{left}{command}'" in text for command, text in zip(commands, said, strict=True)] == [True] * 5
    assert [text.count("habitus ") for text in said] == [1] * 5


LOOK = """import json, sys
wanted = json.loads(sys.argv[1])["name"]
print([s["name"] for s in skills.list("kitchen")], skills.read(wanted)["content"] if wanted else "")
"""


@pytest.mark.req("SB-12")
async def test_code_in_a_tool_can_read_the_library_and_no_more(talk: Talk, habitus: Habitus) -> None:
    tea = Skill(name="brew-tea", description="Brews.", body="1. Boil.", tags=("kitchen",))
    habitus.skills.create(tea, habitus.build_author())
    hidden = Manifest(disable_model_invocation=True)
    habitus.skills.create(replace(tea, name="launch", body="1. Fire.", manifest=hidden), habitus.build_author())
    look = ADD | {
        "name": "look",
        "parameters_schema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        "python_code": LOOK,
        "test_payload": {"name": "brew_tea"},
    }
    wanted = [calls("look", {"name": name}) for name in ("brew-tea", "launch")]
    session, _ = talk([calls("create_tool", look), *wanted, says("ok"), *wanted, says("ok")])
    await session.turn("look into the library")
    habitus.review.approve(1, habitus.build_author())
    await session.turn("once more, now that it is yours")
    assert results(session)[1] == results(session)[3] == "['brew-tea'] 1. Boil."
    assert all("LookupError: No skill 'launch'." in results(session)[n] for n in (2, 4))
    async with habitus.tools as tools:  # and without any conversation
        assert (await tools.run("look", {"name": "brew-tea"})).stdout == "['brew-tea'] 1. Boil.\n"


@pytest.mark.req("LA-01")
async def test_a_proved_tool_is_recommended_before_the_steps(talk: Talk, habitus: Habitus) -> None:
    await kept(habitus, "add-up")
    for _ in range(12):
        record_use(habitus, "add-up", stage=Stage.CODE, succeeded=True)
    session, _ = talk([calls("recall_skill", {"name": "add-up"}), says("ok")])
    await session.turn("add these")
    assert "Try the tool `add_up` first: it is tested." in results(session)[0]


@pytest.mark.full
async def test_many_tools_are_offered_by_how_they_fit(talk: Talk, habitus: Habitus, tmp_path: Path) -> None:
    await kept(habitus, "add-up", "Adds numbers up to a total")
    source = habitus.skills.find_directory("add-up") or tmp_path
    for number in range(CODE_TOOLS + 3):
        target = source.parent / f"zz-other-{number}"
        target.mkdir()
        for file in source.rglob("*"):
            if file.is_file():
                copy = target / file.relative_to(source)
                copy.parent.mkdir(exist_ok=True)
                text = file.read_text().replace("add-up", target.name)
                copy.write_text(text.replace("Adds numbers up to a total", f"Counts the petals of flower {number}"))
        habitus.tools.approve(target.name, "ann")
    session, model = talk([says("ok")])
    await session.turn("add the numbers of this list up to a total")
    made = {tool.callable_name for tool in habitus.tools.all()}
    code = [tool.name for tool in model.asked[0].tools if tool.name in made]
    assert len(code) == CODE_TOOLS
    assert "add_up" in code


async def test_tools_are_looked_after(talk: Talk, habitus: Habitus) -> None:
    async def person(question: ConsentQuestion) -> Consent:
        return Consent.YES

    await kept(habitus, "add-up")
    actions = ({"action": "list"}, {"action": "test", "name": "add_up"}, {"action": "retire", "name": "add_up"})
    session, _ = talk([*(calls("manage_skills", action) for action in actions), says("ok")], ask=person)
    await session.turn("clean up the tools")
    listed, tested, retired = map(json.loads, results(session))
    assert listed == {"tools": [{"name": "add_up", "status": "active", "reason": "", "does": "Adds numbers up"}]}
    assert tested == {"name": "add_up", "passed": True, "cases": 1}
    assert retired == {"name": "add-up", "retired": True}
    assert habitus.tools.all() == ()
    session, _ = talk([calls("manage_skills", {"action": "restore", "name": "add_up"}), says("ok")])
    await session.turn("bring it back")
    assert results(session)[0].startswith("Error: Only a person can do that")
