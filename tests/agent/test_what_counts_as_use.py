"""What counts as use of a skill, and whose work a turn that went well or wrong is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from habitus.app import Habitus
from habitus.app.learning.due_transitions import list_due_transitions
from habitus.app.learning.mining import RepeatedProcedureFinder
from habitus.app.learning.usage import find_stale_usage_counters
from habitus.app.use_cases.uses import list_uses
from habitus.files import build_tree_file
from habitus.journal.model import JudgementSourceKind
from habitus.llm.scripted import ScriptedModel, says
from habitus.memory.model import LessonDraft, LessonKind, LessonProducer, SelfPlayLessonBody
from habitus.settings import Settings
from habitus.skills import trees
from habitus.skills.model import Manifest, Skill, Stage
from habitus.use_counts import UsageCounts

STEPS = "1. Boil fresh water in the kettle.\n2. Warm the porcelain teapot.\n3. Steep the leaves four minutes."
WRAP = "1. Take brown paper.\n2. Fold the corners.\n3. Fasten them with sellotape, twice."
WRAPPED = "I took brown paper, folded the corners and fastened them with sellotape."
ADD = "import json, sys\nprint(sum(json.loads(sys.argv[1])['numbers']))\n"


@pytest.fixture
def habitus_settings(habitus_settings: Settings) -> Settings:
    return habitus_settings.model_copy(update={"reliable": 0.3})


def turn(
    habitus: Habitus, request: str, *, recall: str = "", reply: str = "Done.", ok: bool = True, conversation: str = "c"
) -> None:
    with habitus.turn(request, conversation=conversation) as opened:
        if recall:
            opened.run("recall_skill", {"name": recall})
        opened.done(reply, ok=ok)


def steps_of(habitus: Habitus, name: str) -> tuple[int, int, int]:
    counted = habitus.skills.read_counters(name).get(Stage.STEPS, UsageCounts())
    return counted.used, counted.succeeded, counted.failed


@pytest.mark.req("SK-06")
def test_what_only_stood_there_is_not_used_and_shares_no_failure(habitus: Habitus) -> None:
    always = Manifest(always_include=True)
    for skill in (
        Skill(name="brew-tea", description="Brews tea.", body=STEPS),
        Skill(name="house-style", description="How we write.", body="Write short sentences.", manifest=always),
        Skill(name="tables", description="Reads tables.", body=STEPS, manifest=Manifest(source_types=("desk",))),
    ):
        habitus.skills.create(skill, habitus.build_author())
    for number in range(3):  # recalled once in each conversation; sticky in the turns after
        conversation = f"c{number}"
        turn(habitus, "brew some tea", recall="brew-tea", conversation=conversation)
        turn(habitus, "and what about the invoices?", ok=False, conversation=conversation)
        turn(habitus, "and the parcels?", ok=False, conversation=conversation)
    assert steps_of(habitus, "brew-tea") == (3, 3, 0)
    assert steps_of(habitus, "house-style") == (0, 0, 0)
    assert [one.item.name for one in list_due_transitions(habitus) if one.item.name.startswith("house-style")] == []

    followed = "I boiled fresh water, warmed the porcelain teapot, steeped the leaves."
    for number, reply in enumerate(("Nothing to say.", followed)):
        with habitus.turn("what is in it?", conversation=f"t{number}", source_type="desk") as opened:
            opened.done(reply, ok=True)
    assert steps_of(habitus, "tables") == (1, 1, 0)  # the one that left a trace


@pytest.mark.req("SK-06")
def test_text_that_came_by_a_file_a_path_or_a_companion_is_used_where_it_left_a_trace(
    habitus: Habitus, tmp_path: Path
) -> None:
    for name, manifest in (
        ("by-file", Manifest(file_types=("csv",))),
        ("by-path", Manifest(paths=("src/**/*.py",))),
        ("beside", Manifest()),
    ):
        habitus.skills.create(
            Skill(name=name, description=f"Wraps {name}.", body=WRAP, manifest=manifest), habitus.build_author()
        )
    beside = Manifest(companion_skills=("beside",))
    habitus.skills.create(Skill(name="tea", description="Brews.", body=STEPS, manifest=beside), habitus.build_author())
    table, script = tmp_path / "a.csv", tmp_path / "src" / "a" / "b.py"
    table.write_text("a,b\n1,2\n")
    for number, (reply, ok) in enumerate((("Nothing to say.", False), (WRAPPED, True))):
        for name, files, paths in (("by-file", [table], []), ("by-path", [], [str(script)]), ("beside", [], [])):
            turn_of = habitus.turn("what is in it?", conversation=f"{name}-{number}", attachments=files, paths=paths)
            with turn_of as opened:
                recalled = opened.run("recall_skill", {"name": "tea"}).content if name == "beside" else ""
                assert "sellotape" in opened.context + recalled
                opened.done(reply, ok=ok)
            assert steps_of(habitus, name) == (number, number, 0), name


@pytest.mark.req("SK-06")
async def test_a_skill_that_the_person_calls_by_its_name_is_used_where_it_left_a_trace(habitus: Habitus) -> None:
    wrap = habitus.skills.create(Skill(name="wrap", description="Wraps.", body=WRAP), habitus.build_author())
    for number, reply in enumerate(("Nothing to say.", WRAPPED)):
        session = habitus.session(ScriptedModel([says(reply)]))
        await session.turn("/wrap the vase", invoked=wrap)
        await session.close()
        assert steps_of(habitus, "wrap") == (number, 0, 0)
        # It was shown for either request.
        assert habitus.skills.read_counters("wrap")[Stage.STEPS].recommended == number + 1
        assert list_uses(habitus, "wrap", recommended=True).total == number + 1
        assert list_uses(habitus, "wrap").total == number


@pytest.mark.req("SK-06")
async def test_steps_take_no_credit_for_what_the_tool_did(habitus: Habitus) -> None:
    habitus.skills.create(Skill(name="add-up", description="Adds.", body="1. Add them up."), habitus.build_author())
    schema = {"type": "object", "properties": {"numbers": {"type": "array"}}, "required": ["numbers"]}
    async with habitus.tools as tools:
        await tools.create("add-up", "Adds.", schema, ADD, {"numbers": [1]}, habitus.build_author())
    async with habitus.turn("add these up", conversation="c") as opened:
        await opened.run("recall_skill", {"name": "add-up"})
        await opened.run("add_up", {"numbers": [1, 2]})
        await opened.done("3", ok=True)
    counted = habitus.skills.read_counters("add-up")
    assert (counted[Stage.STEPS].used, counted[Stage.STEPS].succeeded) == (1, 0)
    assert (counted[Stage.CODE].used, counted[Stage.CODE].succeeded) == (1, 1)


RECIPE = """## add both

```yaml
params: {numbers: Them}
steps:
- {tool: add_up, params: {numbers: $numbers}}
```
"""


async def adding(habitus: Habitus) -> None:
    """A skill with steps, a recipe and a tool, which fails where it is given words."""
    steps = "1. Sort every figure by its column.\n2. Write the running subtotal under each, then carry the remainder."
    skill = Skill(name="add-up", description="Adds.", body=steps)
    tree = {**trees.update_main_file({}, skill), trees.CHUNKS_FILE: build_tree_file(RECIPE.encode())}
    habitus.skills.write_tree("user", "add-up", tree, habitus.build_author())
    schema = {"type": "object", "properties": {"numbers": {"type": "array"}}, "required": ["numbers"]}
    async with habitus.tools as tools:
        await tools.create("add-up", "Adds.", schema, ADD, {"numbers": [1]}, habitus.build_author())


async def called(habitus: Habitus, *calls: str, reply: str, ok: bool | None, numbers: Sequence[object] = ("x",)) -> str:
    async with habitus.turn("add these up") as opened:
        await opened.run("recall_skill", {"name": "add-up"})
        for name in calls:
            if name == "shell":
                await opened.observe(name, {"command": "expr 1 + 2"}, "3")
            else:
                await opened.run(name, {"numbers": numbers} if name.startswith("add") else {"query": "add"})
        await opened.done(reply, ok=ok)
        return opened.id


@pytest.mark.req("SK-06")
@pytest.mark.parametrize("stage", ["add_up", "add_both"])
async def test_a_failure_counts_for_the_tool_or_recipe_that_failed_and_not_for_the_steps(
    habitus: Habitus, stage: str
) -> None:
    await adding(habitus)
    for _ in range(2):
        await called(habitus, stage, "search_skills", reply=f"{stage} failed: it can't.", ok=False)
    for _ in range(2):
        await called(habitus, stage, reply="3", ok=True, numbers=[1, 2])
    counted = habitus.skills.read_counters("add-up")
    above = counted[Stage.CODE if stage == "add_up" else Stage.CHUNKS]
    assert (above.used, above.succeeded, above.failed) == (4, 2, 2)
    assert steps_of(habitus, "add-up") == (4, 0, 0)
    assert list_due_transitions(habitus) == ()
    assert recounted(habitus, "add-up") == (4, 0, 0)


@pytest.mark.req("SK-06")
async def test_steps_that_were_followed_after_the_tool_failed_take_what_came_of_the_turn(habitus: Habitus) -> None:
    await adding(habitus)
    by_hand = "I sorted the figures by column and carried the remainder."
    await called(habitus, "add_up", "shell", reply="3", ok=True)
    await called(habitus, "add_up", reply=by_hand, ok=True)
    await called(habitus, "add_both", "shell", reply="No.", ok=False)
    counted = habitus.skills.read_counters("add-up")
    assert (counted[Stage.CODE].succeeded, counted[Stage.CODE].failed) == (0, 3)  # the recipe called it, too
    assert steps_of(habitus, "add-up") == recounted(habitus, "add-up") == (3, 2, 1)


@pytest.mark.req("SK-06", "LA-06")
async def test_a_persons_word_outweighs_an_exit_code_unless_the_steps_did_the_work(habitus: Habitus) -> None:
    await adding(habitus)
    by_person = partial(habitus.outcome, by="user", source_kind=JudgementSourceKind.PERSON)

    def code() -> tuple[int, int]:
        counted = habitus.skills.read_counters("add-up")[Stage.CODE]
        return counted.succeeded, counted.failed

    alone = await called(habitus, "add_up", reply="add_up says so.", ok=None)
    assert code() == (0, 1)
    by_person(alone, ok=True)
    assert code() == (1, 0)
    by_person(alone, ok=False)
    assert code() == (0, 1)
    # The person judges what came of the steps; the tool, which they replaced, has failed all the same.
    by_person(await called(habitus, "add_up", "shell", reply="3", ok=None), ok=True)
    assert code() == (0, 2)
    assert steps_of(habitus, "add-up") == recounted(habitus, "add-up") == (2, 1, 0)
    assert find_stale_usage_counters(habitus) == []


def recounted(habitus: Habitus, name: str) -> tuple[int, int, int]:
    """The same from the recorded uses and judgements."""
    version = habitus.skills.load(name).version
    used = [
        one for one in habitus.journal.load_judged_uses_of_skill(name, "user") if one.use.stage == Stage.STEPS.value
    ]
    counted = sum((one.counts for one in used if one.use.version == version), UsageCounts())
    return counted.used, counted.succeeded, counted.failed


@pytest.mark.req("LA-05")
def test_practice_is_no_use_and_helps_nobody(habitus: Habitus) -> None:
    habitus.skills.create(Skill(name="brew-tea", description="Brews tea.", body=STEPS), habitus.build_author())
    body = SelfPlayLessonBody(
        trigger="When rows of two tables are joined", correct_pattern="check both keys for blanks first"
    )
    lesson = habitus.memory.encode(
        LessonDraft(text=body.text, kind=LessonKind.LESSON, produced_by=LessonProducer.DREAM, body=body, verified=True)
    ).engram
    assert lesson is not None
    for source, number in (("dream", 3), ("trial", 3), ("replay", 3), ("api", 1)):
        for at in range(number):
            with habitus.turn(
                "rows of two tables are to be joined", conversation=f"{source}-{at}", source_type=source
            ) as opened:
                opened.run("recall_skill", {"name": "brew-tea"})
                opened.done("Done.", ok=True)
    assert steps_of(habitus, "brew-tea") == (1, 1, 0)
    counted = habitus.memory.get(lesson.id).counters
    assert counted.retrievals == 1
    assert counted.helpful <= 1  # the credit of the real one may still be on its way


@pytest.mark.full
@pytest.mark.req("LA-03", "LA-05")
async def test_tools_and_recipes_called_in_practice_are_not_used_and_nothing_is_mined_of_it(habitus: Habitus) -> None:
    habitus.skills.create(Skill(name="add-up", description="Adds.", body="1. Add them up."), habitus.build_author())
    block = "params: {numbers: Them}\nsteps:\n- {tool: add_up, params: {numbers: $numbers}}"
    (habitus.settings.home / "skills" / "add-up" / "chunks.md").write_text(f"## add both\n```yaml\n{block}\n```\n")
    schema = {"type": "object", "properties": {"numbers": {"type": "array"}}, "required": ["numbers"]}
    async with habitus.tools as tools:
        await tools.create("add-up", "Adds.", schema, ADD, {"numbers": [1]}, habitus.build_author())
    before = habitus.skills.read_counters("add-up")
    for at in range(3):
        async with habitus.turn("add these up", conversation=f"p{at}", source_type="dream") as opened:
            for name in ("add_up", "add_both"):
                assert "3" in (await opened.run(name, {"numbers": [1, 2]})).content
            await opened.done("3", ok=True)
    assert habitus.skills.read_counters("add-up") == before
    assert habitus.recipes.get("add_both").counts.used == 0
    assert habitus.evidence.compute_findings().items == ()
    mining = RepeatedProcedureFinder(habitus)
    mining.collect_suggestion_drafts()
    assert (mining.make_report().turns, mining.make_report().suggestions) == (0, ())
    async with habitus.turn("add these up", conversation="r", source_type="api") as opened:
        await opened.run("add_both", {"numbers": [1, 2]})
        await opened.done("3", ok=True)
    assert habitus.recipes.get("add_both").counts.used == 1
    assert habitus.skills.read_counters("add-up") != before
