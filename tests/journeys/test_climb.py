"""The life of one skill: a lesson, prose, a recipe, code; degraded, fallen back on, retired, restored."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from habitus.app import Habitus
from habitus.app.learning import curating
from habitus.app.learning.climbing import ClimbPlannerAndRunner
from habitus.app.learning.curating import CuratorActionKind, CuratorStep
from habitus.app.learning.due_transitions import list_due_transitions
from habitus.app.review import inbox
from habitus.app.use_cases import review
from habitus.learning.budget import RunBudget
from habitus.llm.model import ToolResultMessage
from habitus.llm.scripted import ScriptedModel, ScriptStep, calls, says
from habitus.memory.model import LessonDraft, LessonKind, LessonProducer, SelfPlayLessonBody
from habitus.settings import Settings
from habitus.skills.model import Stage
from habitus.skills.proposals import Proposal
from habitus.tools.model import ToolStatus

pytestmark = pytest.mark.req("LA-04")

GET = "import json, sys\nn = json.loads(sys.argv[1])['number']\nprint(json.dumps({'id': n * 3}))\n"
SEND = "import json, sys\ngiven = json.loads(sys.argv[1])\nprint('label', given['size'], given['about'])\n"
LESSON = SelfPlayLessonBody(
    trigger="When a label for an order is printed",
    anti_pattern="printing the number of the order",
    correct_pattern="load the order first, and print its id",
    domains=("data_analysis",),
)
SKILL = "when-a-label-for-an-order-is-printed"
RECIPE = "load_order_then_print_label"
RIGHT = (
    "import json, sys\n"
    "number = json.loads(sys.argv[1])['number']\n"
    "assert number.startswith('A'), 'no such order'\n"
    "print('label large ' + f'A{number}x' * 3)\n"
)
CONSTANT = "print('label large AA0yxAA0yxAA0yx')\n"


@pytest.fixture
def habitus_settings(habitus_settings: Settings) -> Settings:
    return habitus_settings.model_copy(update={"reliable": 0.5})


async def talk(habitus: Habitus, request: str, *script: ScriptStep) -> list[str]:
    """One turn of a session of its own; what its calls came to."""
    model = ScriptedModel([*script, says("Done.")])
    async with habitus.session(model) as session:
        await session.turn(request)
    return [message.content for message in model.asked[-1].messages if isinstance(message, ToolResultMessage)]


async def climbed(habitus: Habitus) -> list[CuratorStep]:
    """What a run of the curator takes up."""
    done = (await curating.plan_or_run_curation(habitus, apply=True)).steps
    return [step for step in done if step.action is CuratorActionKind.CLIMB]


def approve(habitus: Habitus) -> Sequence[str]:
    """Let the one thing in that waits; why it did."""
    (item,) = inbox.list_pending(habitus)
    (decided,) = review.approve_items(habitus, ids=(item.id,)).approved
    return decided.item.reasons


async def made_tools(habitus: Habitus) -> None:
    async with habitus.tools as tools:
        for name, code, payload in (
            ("load-order", GET, {"number": "A1"}),
            ("print-label", SEND, {"size": "large", "about": "A1"}),
        ):
            fields = {key: {"type": "string"} for key in payload}
            schema = {"type": "object", "properties": fields, "required": list(fields)}
            await tools.create(name, "Does it.", schema, code, payload, habitus.build_author())


def coder(*codes: str) -> ScriptedModel:
    drafts = [
        {"description": "Prints the label of an order.", "code": code, "payload": {"number": "A1"}} for code in codes
    ]
    return ScriptedModel([says(json.dumps(draft)) for draft in drafts])


@pytest.mark.full
async def test_a_lesson_climbs_to_code_degrades_falls_back_retires_and_is_restored(habitus: Habitus) -> None:
    await made_tools(habitus)
    body = LessonDraft(
        text=LESSON.text, kind=LessonKind.LESSON, produced_by=LessonProducer.DREAM, body=LESSON, verified=True
    )
    lesson = habitus.memory.encode(body).engram
    assert lesson is not None

    # A lesson that a trial verified becomes a skill once requests it was shown for are said to have succeeded.
    for number in range(3):
        await talk(habitus, f"print a label for the order A{number}")
    assert await climbed(habitus) == []
    told = [turn.id for turn in reversed(habitus.journal.list_latest_turns_of_all_conversations(limit=3))]
    for turn in told:
        habitus.outcome(turn, ok=True)
    (step,) = await climbed(habitus)
    served = (
        f"It was verified by a trial, and 3 of the 3 judged requests it was shown for succeeded: "
        f"turns {', '.join(told)}."
    )
    assert (step.item, step.reason) == (SKILL, served)
    assert lesson.id in " ".join(approve(habitus))
    assert habitus.skills.load(SKILL).body.startswith(
        "When a label for an order is printed:\n\n1. Load the order first, and print its id."
    )

    # What is done with the skill again and again becomes its recipe.
    for number in range(3):
        made = (
            calls("load_order", {"number": f"A{number}x"}),
            calls("print_label", {"size": "large", "about": f"A{number}x" * 3}),
        )
        await talk(habitus, f"a label for A{number}x", calls("recall_skill", {"name": SKILL}), *made)
    assert await climbed(habitus) == []  # they ended without an error, which is no feedback
    told = [turn.id for turn in reversed(habitus.journal.list_latest_turns_of_all_conversations(limit=3))]
    for turn in told:
        habitus.outcome(turn, ok=True)
    (step,) = await climbed(habitus)
    assert (step.item, step.reason) == (
        SKILL,
        f"It served in 3 of the 3 uses that were judged: turns {', '.join(told)}.",
    )
    assert any("it makes the very calls of all 3 again" in reason for reason in approve(habitus))

    # A recipe that served becomes code, if a draft passes the recorded runs.
    for number in range(3):
        (ran,) = await talk(habitus, f"label of order A{number}y", calls(RECIPE, {"number": f"A{number}y"}))
        assert ran.endswith("label large " + f"AA{number}yx" * 3)
    climbing = ClimbPlannerAndRunner(habitus)
    (climb,) = climbing.plan_due_climbs(list_due_transitions(habitus))
    assert (climb.skill, climb.to) == (SKILL, Stage.CODE)
    calls_before = habitus.skills.read_counters("load-order")[Stage.CODE]
    model = coder(CONSTANT, RIGHT)
    done = await climbing.draft_and_propose_climb(climb, RunBudget().wrap_model(model))
    assert (done.problem, done.proposal is not None) == ("", True)
    assert "another result: the whole result is label large AA0yxAA0yxAA0yx" in str(model.asked[1].messages)
    assert habitus.skills.read_counters("load-order")[Stage.CODE] == calls_before  # running beside a trial is no use
    (waiting,) = inbox.list_pending(habitus)
    assert isinstance(waiting.subject, Proposal)
    last = "label large AA2yxAA2yxAA2yx"
    assert waiting.subject.trial[-1] == {
        "input": '{"number": "A2y"}',
        "recorded": last,
        "draft": last,
        "compared": "values",
    }
    assert any("it gave the same results as 3 recorded cases in the sandbox" in reason for reason in approve(habitus))
    assert await climbed(habitus) == []

    # It fails, and the same turn goes on below it; after three failures it is degraded.
    tool = SKILL.replace("-", "_")
    told = await talk(habitus, "and B?", calls("recall_skill", {"name": SKILL}), *[calls(tool, {"number": "B"})] * 3)
    assert f"Try the tool `{tool}` first: it is tested." in told[0]
    assert f"Go on in this turn with what is below `{tool}`" in told[1]
    assert f"There is its recipe `{RECIPE}`." in told[1]
    assert habitus.tools.get(SKILL).status is ToolStatus.DEGRADED
    (below,) = await talk(habitus, "label of order B", calls("recall_skill", {"name": SKILL}))
    assert f"Its tool `{tool}` is degraded" in below
    assert f"Try the recipe `{RECIPE}` first: it has served." in below

    # It retires by itself, and nothing but a person brings it back.
    for _ in range(3):
        await curating.plan_or_run_curation(habitus, apply=True)
    assert habitus.skills.find(SKILL).summary.stages == {Stage.STEPS, Stage.CHUNKS}  # type: ignore[union-attr]
    assert await climbed(habitus) == []
    habitus.tools.restore(SKILL, habitus.build_author())
    assert habitus.tools.get(SKILL).status is ToolStatus.ACTIVE
