"""REST for what a skill can do by itself: its tested tool and its recipes, looked at and run, and trust in them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import Field

from habitus.app import json_of
from habitus.app.conversations import running_code
from habitus.app.library import recipes, trusting
from habitus.events import ToolResult
from habitus.recipes.catalogue import SkillRecipe
from habitus.sandbox.model import ToolRun
from habitus.tools.model import CodeTool, Regression, ToolStatus
from habitus.web.api.asking import Body, Json, Opened, TaskRow, answer, as_json, many

router = APIRouter(prefix="/skills/{name}", tags=["skills"])


Tool = answer("ToolWhole", CodeTool, without=("cases",), code=str, cases=list[TaskRow])
Recipe = answer("Recipe", SkillRecipe, without=("key",), name=str)
Trust = answer("SkillTrust", is_trusted=bool, dangers=tuple[trusting.Dangers, ...])


class Given(Body):
    payload: dict[str, Any] = Field(default_factory=dict)


@router.get("/tool", response_model=Tool)
def tool(habitus: Opened, name: str) -> Json:
    """Its tested tool: what it takes, asks for and passed, and the code where that can be read."""
    found = habitus.tools.get(name)
    is_whole = found.status is not ToolStatus.BROKEN
    code, cases = (habitus.tools.code(name), habitus.tools.cases(name)) if is_whole else ("", ())
    return {**as_json(found), "code": as_json(code), "cases": as_json(json_of.result(cases))}


@router.post("/run", response_model=ToolRun)
def run(habitus: Opened, name: str, wanted: Given) -> Json:
    """Call its tool; that counts as any other use."""
    answer: Json = as_json(running_code.run_tool(habitus, name, wanted.payload))
    return answer


@router.post("/test", response_model=Regression)
def test(habitus: Opened, name: str) -> Json:
    """Run the tests that its tool passed before once more."""
    answer: Json = as_json(running_code.check_tool(habitus, name))
    return answer


@router.get("/recipes", response_model=answer("Recipes", recipes=many(Recipe)))
def list_recipes(habitus: Opened, name: str) -> Json:
    """Its recipes, each with its steps, and what keeps one from running."""
    skill = habitus.skills.find(name).name
    mine = [recipe for recipe in habitus.recipes.all() if recipe.skill == skill]
    return {"recipes": [{**as_json(recipe), "name": recipe.name} for recipe in mine]}


@router.post("/recipes/{recipe}", response_model=ToolResult)
def run_recipe(habitus: Opened, name: str, recipe: str, wanted: Given) -> Json:
    """Run one of its recipes, in a turn of its own that is written down."""
    answer: Json = as_json(recipes.run(habitus.recipes, habitus.turn, recipe, wanted.payload))
    return answer


@router.get("/trust", response_model=Trust)
def show_trust(habitus: Opened, name: str) -> Json:
    """What it can do, what looks suspicious about it, and whether it may act as it is now."""
    target = trusting.trustable_skill(habitus.skills, name)
    return {
        "is_trusted": trusting.is_trusted(habitus.trust, habitus.approvals, target),
        "dangers": as_json(trusting.dangers(habitus, target)),
    }


@router.put("/trust", response_model=Trust)
def trust(habitus: Opened, name: str) -> Json:
    """Let it act as it is now."""
    trusting.trust(habitus, trusting.trustable_skill(habitus.skills, name))
    return show_trust(habitus, name)


@router.delete("/trust", response_model=Trust)
def revoke(habitus: Opened, name: str) -> Json:
    """Trust it no longer."""
    trusting.revoke(habitus.trust, habitus.approvals, trusting.trustable_skill(habitus.skills, name))
    return show_trust(habitus, name)
