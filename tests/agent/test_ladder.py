"""The stages of a skill in a session: which is tried first, and falling back in the same turn when it fails."""

from __future__ import annotations

import pytest

from habitus.app import Habitus
from habitus.learning.detectors.rules import run_detectors
from habitus.llm.scripted import ScriptStep, calls, says
from habitus.skills.model import Skill, Stage
from tests.agent.conftest import Talk
from tests.agent.test_code_tools import kept, results
from tests.agent.test_turn import Watcher
from tests.usage import record_use

pytestmark = pytest.mark.req("LA-01")

CHUNKS = """## look twice

```yaml
params: {name: Which skill}
steps:
  - tool: list_skills
    params: {}
  - tool: read_skill
    params: {name: $name}
```
"""


def with_recipe(habitus: Habitus) -> None:
    looking = Skill(name="looking", description="Looks things up.", body="1. List them.\n2. Read the one.")
    habitus.skills.create(looking, habitus.build_author())
    folder = habitus.skills.find_directory("looking")
    assert folder is not None
    (folder / "chunks.md").write_text(CHUNKS)


async def test_a_recipe_that_fails_falls_back_on_the_steps_and_says_which_ran(talk: Talk, habitus: Habitus) -> None:
    with_recipe(habitus)
    failing = calls("look_twice", {"name": "nothing-of-the-kind"})
    session, _ = talk([failing, failing, says("done by hand")])
    await session.turn("look it up")
    first, second = results(session)
    assert "2. read_skill: failed" in first
    assert "These steps are done; do not repeat them: 1. list_skills." in first
    assert first.endswith("Its steps are:\n\n1. List them.\n2. Read the one.")
    assert second.endswith("Its steps are in this conversation.")  # they are paid for once


@pytest.mark.full
async def test_a_recipe_that_served_is_tried_before_the_steps(talk: Talk, habitus: Habitus) -> None:
    with_recipe(habitus)
    again = calls("look_twice", {"name": "looking"})
    session, _ = talk([calls("recall_skill", {"name": "looking"}), says("ok"), *[again] * 12, says("ok")])
    await session.turn("how?")
    assert "There is a recipe `look_twice` for it, too." in results(session)[0]
    await session.turn("do it a dozen times")
    later, _ = talk([calls("recall_skill", {"name": "looking"}), says("ok")])
    await later.turn("how?")
    assert "Try the recipe `look_twice` first: it has served." in results(later)[0]


async def test_a_tool_that_fails_falls_back_on_the_steps(talk: Talk, habitus: Habitus) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}
    code = "import json, sys\nprint(1 / json.loads(sys.argv[1])['n'])\n"
    async with habitus.tools as tools:
        await tools.create("divide", "Divides one", schema, code, {"n": 2}, habitus.build_author())
    session, _ = talk([calls("divide", {"n": "many"}), calls("divide", {"n": 0}), says("by hand")])
    await session.turn("divide these")
    refused, failed = results(session)
    assert "Go on in this turn" not in refused  # it was called wrongly, and has not failed
    assert "ZeroDivisionError" in failed
    assert "Go on in this turn with what is below `divide` in the skill 'divide'." in failed


async def test_fresh_from_its_passed_cases_a_tool_is_tried_first_until_a_use_speaks_against_it(
    talk: Talk, habitus: Habitus
) -> None:
    await kept(habitus, "add-up")
    session, _ = talk([calls("recall_skill", {"name": "add-up"}), says("ok")])
    await session.turn("add these")
    assert "Try the tool `add_up` first: it is tested." in results(session)[0]
    record_use(habitus, "add-up", stage=Stage.CODE, succeeded=False)
    later, _ = talk([calls("recall_skill", {"name": "add-up"}), says("ok")])
    await later.turn("add these")
    assert "There is a tool `add_up` for it, too." in results(later)[0]


@pytest.mark.req("LA-02")
async def test_a_recall_names_the_stages_in_one_order_and_a_degraded_one_last(talk: Talk, habitus: Habitus) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}
    code = "import json, sys\nprint(1 / json.loads(sys.argv[1])['n'])\n"
    async with habitus.tools as tools:
        await tools.create("divide", "Divides one", schema, code, {"n": 2}, habitus.build_author())
    folder = habitus.skills.find_directory("divide")
    assert folder is not None
    (folder / "chunks.md").write_text(CHUNKS)

    async def recall(*before: ScriptStep) -> str:
        session, _ = talk([*before, calls("recall_skill", {"name": "divide"}), says("ok")])
        await session.turn("go on")
        return results(session)[-1]

    habitus.skills.create(Skill(name="other", description="Another.", body="1. Go."), habitus.build_author())
    told = await recall(*[calls("look_twice", {"name": "other"})] * 12)
    assert (
        "Try the tool `divide` first: it is tested. If it fails, try the recipe `look_twice`: it has served. "
        "The steps are for when it fails." in told
    )
    assert told.count("Try the") == 1
    failing, _ = talk([*[calls("divide", {"n": 0})] * 3, says("hm")])
    await failing.turn("divide these")
    told = await recall()
    assert told.index("Try the recipe `look_twice` first: it has served.") < told.index("`divide` is degraded")
    assert "Follow the steps" not in told


@pytest.mark.req("EL-02")
async def test_two_resets_without_a_cell_between_are_two_resets(talk: Talk) -> None:
    reset = calls("scratchpad", {"action": "reset", "name": "main"})
    cell = calls("scratchpad", {"action": "exec", "name": "main", "code": "x = 1"})
    watcher = Watcher()
    session, _ = talk([cell, reset, reset, says("done")], observers=[watcher])
    await session.turn("start over")
    assert results(session)[1:] == ["Scratchpad 'main' is empty again."] * 2
    assert [lesson.detector for lesson in run_detectors(watcher.seen)] == ["reset_churn"]
