"""A real little model on tasks bound to a schema: no filler is proposed, and the edit that helps is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from habitus.app import Habitus, read_settings
from habitus.app.learning.improving import open_improve_run
from habitus.files import Tree, build_tree_file
from habitus.improve.plan import ImproveRequest
from habitus.llm.model import CompletionRequest, Model, PersonMessage, TextContent, TokenUsage, fetch_answer
from habitus.llm.providers import open_provider_model
from habitus.skills import trees
from habitus.skills.trees import TASKS_FILE
from habitus.tasks.checks import ReplyEqualsCheck
from habitus.tasks.files import serialize_tasks
from habitus.tasks.judging import judge_submission
from habitus.tasks.model import Submission, Task
from habitus.tasks.rollouts import Rollout

NAME = "give-a-label"
SKILL = f"---\nname: {NAME}\ndescription: Gives a label.\n---\n1. Answer with one label.\n"
FILLERS = (
    "Read the question twice.",
    "Be kind to whoever wrote.",
    "Take your time.",
    "Messages are short.",
    "Somebody reads your answer.",
    "Think before you answer.",
    "Stay calm.",
    "This matters.",
    "Do your best.",
    "Every message counts.",
)
HELPS = 'Always answer {"label": "warm"}.'
THINGS = (
    "soup night stone river bread glass engine coat room paper lamp wheel apple cloud shoe piano "
    "chair bridge garden letter window mirror basket candle bottle carpet hammer kettle ladder needle pillow saddle"
)
SCHEMA = {
    "type": "object",
    "properties": {"label": {"enum": ["warm", "cold"]}},
    "required": ["label"],
    "additionalProperties": False,
}


class LittleModel:
    """Asked once for each text and request: at temperature 0 it says the same every time."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._said: dict[tuple[str, str], tuple[str, TokenUsage]] = {}

    async def said(self, body: str, request: str) -> tuple[str, TokenUsage]:
        if (body, request) not in self._said:
            asked = (PersonMessage(parts=(TextContent(text=request),)),)
            got = await fetch_answer(
                self._model, CompletionRequest(system=body, messages=asked, schema=SCHEMA, max_tokens=24)
            )
            self._said[body, request] = got.message.text, got.usage
        return self._said[body, request]

    @asynccontextmanager
    async def opened(self, tree: Tree) -> AsyncIterator[BoundSolver]:
        skill = trees.parse_skill_tree(NAME, tree).skill
        assert skill is not None
        yield BoundSolver(self, skill.body)


class BoundSolver:
    def __init__(self, model: LittleModel, body: str) -> None:
        self._model = model
        self._body = body

    async def solve(self, task: Task, rollout: Rollout) -> Rollout:
        reply, usage = await self._model.said(self._body, task.request)
        judged = await judge_submission(task, Submission(reply=reply))
        return rollout.with_outcome(judged.outcome, usage=usage, steps=1, is_opened=True)


@pytest.mark.full
@pytest.mark.req("IM-03", "IM-04")
async def test_no_filler_sentence_is_proposed_and_the_edit_that_helps_is(home: Path, real_address: str) -> None:
    model = open_provider_model("llamacpp:smollm2", {"LLAMACPP_BASE_URL": real_address})
    little = LittleModel(model)
    checks = (ReplyEqualsCheck(value="warm", path="label"),)
    tasks = [Task(id=thing, request=f"Which label has the {thing}?", checks=checks) for thing in THINGS.split()]
    with Habitus.open(read_settings(home)) as habitus:
        tree = {
            "SKILL.md": build_tree_file(SKILL.encode()),
            TASKS_FILE: build_tree_file(serialize_tasks(tasks).encode()),
        }
        habitus.skills.write_tree("user", NAME, tree, habitus.build_author())
        proposed = []
        for number, edit in enumerate((*FILLERS, HELPS)):
            request = ImproveRequest(skill=NAME, text=f"{SKILL}2. {edit}\n")
            done = await open_improve_run(habitus, request, f"r{number}", None, little.opened).execute()
            if done.proposal is not None:
                proposed.append(edit)
    await model.close()
    assert proposed == [HELPS]
