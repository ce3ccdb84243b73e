"""REST for what a skill can do by itself: its tested tool and its recipes, run by hand."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import Field

from habitus.app import recipes, running_code
from habitus.events import ToolResult
from habitus.sandbox.model import ToolRun
from habitus.tools.model import Regression
from habitus.web.api.asking import Body, Json, Opened, told

router = APIRouter(prefix="/skills/{name}", tags=["skills"])


class Given(Body):
    payload: dict[str, Any] = Field(default_factory=dict)


@router.post("/run", response_model=ToolRun)
def run(habitus: Opened, name: str, wanted: Given) -> Json:
    """Call its tool; that counts as any other use."""
    answer: Json = told(running_code.run_tool(habitus, name, wanted.payload))
    return answer


@router.post("/test", response_model=Regression)
def test(habitus: Opened, name: str) -> Json:
    """Run the tests that its tool passed before once more."""
    answer: Json = told(running_code.check_tool(habitus, name))
    return answer


@router.post("/recipes/{recipe}", response_model=ToolResult)
def run_recipe(habitus: Opened, name: str, recipe: str, wanted: Given) -> Json:
    """Run one of its recipes, in a turn of its own that is written down."""
    answer: Json = told(recipes.run(habitus, recipe, wanted.payload))
    return answer
