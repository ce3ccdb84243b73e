"""Drafting a skill: what the model is shown, and what becomes of its answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from habitus.errors import Invalid
from habitus.learning.budget import RunBudget
from habitus.learning.drafting import SkillDraftAnswer, draft_skill
from habitus.llm.model import (
    AssistantMessage,
    ChatMessage,
    CompletionRequest,
    PersonMessage,
    TextContent,
    ToolResultMessage,
)
from habitus.llm.scripted import ScriptedModel, says
from habitus.redact import Redactor
from habitus.sandbox.model import Cell
from habitus.skills.model import Skill

pytestmark = pytest.mark.req("AG-07")

DRAFT = {
    "label": "csv_summary",
    "name": "CSV summary",
    "description": "Sums up a CSV file.",
    "when_to_use": "Somebody asks for totals of a CSV file",
    "declarative_md": "1. Load it.\n2. Sum the columns.",
}
SAID: tuple[ChatMessage, ...] = (
    PersonMessage(parts=(TextContent(text="sum up sales.csv"),)),
    AssistantMessage(text="It is 42."),
)


def _model(**changes: str) -> ScriptedModel:
    return ScriptedModel([says(json.dumps(DRAFT | changes))])


def _shown(ask: CompletionRequest) -> str:
    (message,) = ask.messages
    assert isinstance(message, PersonMessage)
    (part,) = message.parts
    assert isinstance(part, TextContent)
    return part.text


async def _drafted(model: ScriptedModel, **given: Any) -> Skill:
    taken = given.pop("taken", ())
    return await draft_skill(
        RunBudget().wrap_model(model), **({"cells": (), "messages": SAID} | given), is_taken=lambda name: name in taken
    )


async def test_the_five_fields_become_a_skill() -> None:
    assert await _drafted(_model()) == Skill(
        name="csv-summary",
        title="CSV summary",
        description="Sums up a CSV file.",
        when_to_use="Somebody asks for totals of a CSV file",
        body="1. Load it.\n2. Sum the columns.\n",
    )
    assert set(SkillDraftAnswer.model_fields) == set(DRAFT)
    assert all(field.description for field in SkillDraftAnswer.model_fields.values())


async def test_a_taken_name_gets_a_number() -> None:
    drafted = await _drafted(_model(), taken={"csv-summary", "csv-summary-2"})
    assert drafted.name == "csv-summary-3"


async def test_nothing_to_save_is_refused_without_asking_a_model() -> None:
    model = _model()
    with pytest.raises(Invalid, match="nothing to save"):
        await _drafted(model, messages=())
    assert model.asked == []


@pytest.mark.parametrize("empty", ["", "  \n"])
async def test_an_empty_procedure_is_refused(empty: str) -> None:
    with pytest.raises(Invalid, match="no steps"):
        await _drafted(_model(declarative_md=empty))


async def test_the_model_sees_the_last_cells_and_messages_within_bounds() -> None:
    model = _model()
    cells = [Cell(code=f"print({n})", description=f"cell {n}", stdout="x" * 50_000) for n in range(100)]
    messages = [AssistantMessage(text=f"answer {n} " + "y" * 50_000) for n in range(100)]
    await _drafted(model, cells=cells, messages=messages, hint="the part with the totals")
    shown = _shown(model.asked[0])
    assert len(shown) < 60_000
    assert "cell 99" in shown
    assert "answer 99" in shown
    assert "cell 0\n" not in shown
    assert shown.endswith("the part with the totals")


async def test_a_cell_that_failed_says_so_and_results_of_tools_are_there() -> None:
    model = _model()
    returned = ToolResultMessage(call="1", tool="search_skills", content="nothing")
    await _drafted(model, cells=[Cell(code="1/0", error="ZeroDivisionError")], messages=[returned])
    shown = _shown(model.asked[0])
    assert "failed with:\n```\nZeroDivisionError" in shown
    assert "Result of search_skills: nothing" in shown


async def test_secrets_reach_neither_the_model_nor_the_skill() -> None:
    model = _model(declarative_md="1. Log in with hunter2-hunter2.")
    drafted = await _drafted(
        model,
        messages=[AssistantMessage(text="the password is hunter2-hunter2")],
        hint="hunter2-hunter2",
        redactor=Redactor(["hunter2-hunter2"]),
    )
    assert "hunter2" not in _shown(model.asked[0])
    assert "hunter2" not in drafted.body
